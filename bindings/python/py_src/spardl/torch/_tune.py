"""``method="auto"``: the fastest one between the ranks of a group, measured over that group, and again when times change."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from statistics import median
from typing import Any

import torch

from .._native import Message, Tuning, tune
from ._config import Config
from ._engine import PeerError
from ._link import Link

_TAG = 1 << 21
"""Beyond the tags of the engine."""
EVERY = 100
"""Steps from one look at the times to the next."""


@dataclass
class _Sent:
    """A message on its way; the tensor keeps its memory."""

    peer: int
    work: Any
    message: Message
    timeout: timedelta

    def wait(self) -> Message:
        try:
            self.work.wait(self.timeout)
        except RuntimeError as error:
            first_line = str(error).splitlines()[0]
            raise PeerError(f"choosing a method: waiting for rank {self.peer}: {first_line}") from error
        return self.message


def measure(config: Config, link: Link, lengths: Sequence[int], density: float, current: Tuning | None) -> Tuning:
    """The fastest method for buckets of these lengths, the same on all ranks. Every rank must call it.

    What is in use stays unless it should take a tenth longer than the fastest: two measurements differ by noise.
    """

    def isend(peer: int, message: Message) -> _Sent:
        work = link.group.send([torch.frombuffer(message, dtype=torch.uint8)], peer, _TAG)
        return _Sent(peer, work, message, config.wait)

    def irecv(peer: int, max_bytes: int) -> _Sent:
        message = Message(max_bytes)
        work = link.group.recv([torch.frombuffer(message, dtype=torch.uint8)], peer, _TAG)
        return _Sent(peer, work, message, config.wait)

    value_types = None if config.value_type is None else [config.value_type]
    in_use = None if current is None else (current.method, current.options)
    return tune(lengths, link.rank, link.size, isend, irecv, density=density, value_types=value_types, current=in_use)


class Chooser:
    """Puts a method in the place of ``auto``, and another one when steps no longer take what was expected.

    A model knows neither the other programs of a machine nor waits that backward hides: when the same method is chosen again,
    what steps take is what they should.
    """

    def __init__(self, config: Config, link: Link, lengths: Sequence[int]) -> None:
        self._config, self._link, self._lengths = config, link, lengths
        self._tuning: Tuning | None = None
        self._calibration = 1.0
        self._times: list[float] = []
        self._expected = (-1.0, 0.0)
        self._next = config.dense_steps + EVERY

    def choose(self, density: float) -> tuple[Config, str]:
        """The configuration with a method, the same on all ranks, and why. Every rank must call it."""
        config = self._config
        if not self._lengths or self._link.size == 1:
            return replace(config, method="dense"), "dense is used: there is nothing to choose"
        try:
            self._tuning = chosen = measure(config, self._link, self._lengths, density, self._tuning)
        except Exception as error:
            raise self._link.share(error) from error
        return replace(config, method=chosen.method, value_type=None, options=chosen.options), chosen.reason

    def note(self, seconds: float, density: float) -> None:
        """What an exchange took this rank."""
        if self._tuning is None:
            return
        if self._expected[0] != density:
            self._expected = (density, max(self._tuning.seconds_at(density), 1e-9))
        self._times.append(seconds / self._expected[1])

    def is_due(self, step: int) -> bool:
        """Is it time to look? Alike on all ranks."""
        return self._tuning is not None and self._config.retune >= 1.0 and step >= self._next

    def look(self, current: Config, step: int, density: float) -> tuple[Config, str] | None:
        """Another method and why, if one is faster by now. Every rank must call it at the same step, with nothing under way."""
        assert self._tuning is not None
        mine = median(self._times) if self._times else math.inf
        self._times.clear()
        self._next = step + EVERY
        try:
            # The rank that waits least: the others wait for the slow one, not for the network.
            took = min(self._link.hear(mine))
        except Exception as error:
            raise self._link.share(error) from error
        times = took / self._calibration
        if math.isinf(took) or 1.0 / self._config.retune <= times <= self._config.retune:
            return None
        before = self._tuning.seconds_at(density)
        config, reason = self.choose(density)
        self._expected = (-1.0, 0.0)
        if config.chosen == current.chosen:
            self._calibration = took * before / max(self._tuning.seconds_at(density), 1e-9)
            return None
        self._calibration = 1.0
        return config, f"from step {step} on, as steps took {times:.2g} times what was expected: {reason}"
