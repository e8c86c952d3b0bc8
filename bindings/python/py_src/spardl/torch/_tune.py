"""``method="auto"``: the fastest one between the ranks of a group, measured over that group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import torch

from .._native import Message, tune
from ._config import Config
from ._engine import PeerError
from ._link import Link

_TAG = 1 << 21
"""Beyond the tags of the engine."""


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


def choose(config: Config, link: Link, lengths: Sequence[int]) -> tuple[Config, str]:
    """The configuration with the method in place of ``auto``, the same on all ranks, and why. Every rank must call it."""

    def isend(peer: int, message: Message) -> _Sent:
        work = link.group.send([torch.frombuffer(message, dtype=torch.uint8)], peer, _TAG)
        return _Sent(peer, work, message, config.wait)

    def irecv(peer: int, max_bytes: int) -> _Sent:
        message = Message(max_bytes)
        work = link.group.recv([torch.frombuffer(message, dtype=torch.uint8)], peer, _TAG)
        return _Sent(peer, work, message, config.wait)

    if not lengths or link.size == 1:
        return replace(config, method="dense"), "dense is used: there is nothing to choose"
    value_types = None if config.value_type is None else [config.value_type]
    try:
        chosen = tune(
            lengths, link.rank, link.size, isend, irecv, density=config.density_at(0), value_types=value_types
        )
    except Exception as error:
        raise link.share(error) from error
    return replace(config, method=chosen.method, value_type=None, options=chosen.options), chosen.reason
