"""Reducing named tensors in place without DDP: plain loops, gradients under ``no_sync``, outer steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from .._native import ConfigError
from ._config import Config
from ._engine import Job
from ._plan import SUPPORTED, Slot
from ._session import Session
from ._staging import Direct, stage


class Sync(Session):
    """Replaces tensors by their sparse mean over ranks, and keeps what is not delivered.

    ``start()`` may run while something else is computed; ``wait()`` returns when the results are in place::

        sync = spardl.torch.Sync(model.named_parameters(), density=0.01)
        loss.backward()
        sync.start()        # the gradients of the parameters
        sync.wait()
        optimiser.step()

    Keywords are the fields of :class:`spardl.torch.Config`. All ranks must make it, and start and wait together.
    """

    def __init__(self, named_tensors: Iterable[tuple[str, torch.Tensor]], group: Any = None, **config: Any) -> None:
        super().__init__(Config(**config), group)
        self._tensors = dict(named_tensors)
        for name, tensor in self._tensors.items():
            if tensor.dtype not in SUPPORTED:
                raise ConfigError(f"'{name}' is {tensor.dtype}: expected float32, bfloat16 or float16")
        self._bind(self._tensors.items())
        self._placed: list[Direct] = []

    def start(self, tensors: Mapping[str, torch.Tensor] | None = None) -> None:
        """Starts to reduce ``tensors``, by default the gradients of those given that require one and the others themselves.

        A missing gradient takes part as zeros, and what is delivered for it is given back.
        """
        self.settle()
        self._look_at_times()
        given = self._tensors if tensors is None else tensors
        self._placed = []
        for unit in self._units:
            stagings = [self._stage(slot, _value(given.get(slot.name))) for slot in unit.slots]
            self._placed += stagings

            def prepare(stagings: list[Direct] = stagings) -> None:
                for staging in stagings:
                    staging.arrive()

            def done(job: Job, stagings: list[Direct] = stagings) -> None:
                for staging in stagings:
                    if job.error is not None:
                        staging.fail(job.error)
                    else:
                        staging.complete()

            self._submit(unit, [staging.host for staging in stagings], done, prepare)

    def _stage(self, slot: Slot, tensor: torch.Tensor | None) -> Direct:
        if tensor is None:
            self._unclaimed.add(slot.name)
            return Direct(torch.zeros(slot.numel, dtype=slot.dtype))
        if tuple(tensor.shape) != slot.shape or tensor.dtype != slot.dtype:
            got = f"{tuple(tensor.shape)} {tensor.dtype}"
            raise ConfigError(f"'{slot.name}' has shape and type {got}, expected {slot.shape} {slot.dtype}")
        if tensor.stride() == slot.stride and tensor.numel() == slot.numel:
            return stage(tensor.as_strided((slot.numel,), (1,)), self.config.staging)
        return Scattered(slot, tensor)

    def wait(self) -> str:
        """Waits for what was started and returns ``"updated"``, or ``"skipped: ..."`` on all ranks alike.

        The step stays open until the next ``start``: ``discard_step`` takes it back.
        """
        self._wait()
        for staging in self._placed:
            staging.future.wait()
        self._note_step()
        skipped = [job.outcome for _, job in self._pending if job.skipped]
        return skipped[0] or "updated" if skipped else "updated"


class Scattered(Direct):
    """A tensor whose memory is not in the order it was planned with: a copy is reduced."""

    def __init__(self, slot: Slot, tensor: torch.Tensor) -> None:
        super().__init__(tensor)
        self._slot = slot
        self.host = torch.empty(slot.numel, dtype=slot.dtype)
        slot.logical(self.host).copy_(tensor)

    def complete(self) -> None:
        self._buffer.copy_(self._slot.logical(self.host))
        super().complete()


def _value(tensor: torch.Tensor | None) -> torch.Tensor | None:
    if tensor is None or not tensor.requires_grad:
        return tensor
    return tensor.grad
