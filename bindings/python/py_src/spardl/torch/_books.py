"""What a session may keep besides residuals: momentum before the reduction, and accounts of what came in and went out.

``taken`` and ``given`` run on the engine's thread, before and after a unit is reduced; ``kept`` when its step becomes final. A
step that is taken back leaves nothing.
"""

from __future__ import annotations

import torch

from .._native import Worker
from ._engine import Job
from ._plan import Unit

DELIVERED = 1.0 / 64.0
"""An element whose residual is at most this part of what it was counts as delivered, whatever the value type."""
HOPS = 4.0
"""How often a value may be rounded on its way, in the sense that most errors stay below so many of the largest."""


class Correction:
    """Momentum on each rank before the reduction, as in Deep Gradient Compression: the velocity is what enters the residual.

    With masking the momentum of an element stops where its mass was delivered.
    """

    def __init__(self, momentum: float, masking: bool) -> None:
        self._momentum = momentum
        self._masking = masking
        self._velocity: dict[int, torch.Tensor] = {}
        self._next: dict[int, torch.Tensor] = {}
        self._before: dict[int, torch.Tensor] = {}
        self._places: dict[int, torch.Tensor] = {}

    def velocity(self, unit: Unit) -> torch.Tensor:
        """This rank's velocity of a unit, flat."""
        return self._velocity.setdefault(unit.index, torch.zeros(unit.numel))

    def taken(self, unit: Unit, job: Job) -> None:
        """Puts the velocity in the place of the gradient."""
        following = torch.cat([array.to(torch.float32) for array in job.inputs]).mul_(job.scale_in)
        following.add_(self.velocity(unit), alpha=self._momentum)
        self._next[unit.index] = following
        job.inputs, job.scale_in = [following], 1.0
        if self._masking and job.worker.keeps_residual:
            self._before[unit.index] = _residual(job.worker).add_(following)

    def given(self, unit: Unit, job: Job) -> None:
        """Notes where something was delivered."""
        if unit.index in self._before:
            delivered = torch.cat([array.ne(0) for array in job.arrays])
            self._places[unit.index] = delivered.nonzero().reshape(-1)

    def kept(self, unit: Unit, job: Job, unclaimed: set[str]) -> None:
        """The step is final, the residual new: the velocity follows."""
        following = self._velocity[unit.index] = self._next.pop(unit.index)
        before, places = self._before.pop(unit.index, None), self._places.pop(unit.index, None)
        if before is None or places is None:
            return
        rest = max(DELIVERED, HOPS * job.worker.value_error)
        whole = _residual(job.worker)[places].abs() <= rest * before[places].abs()
        following[places[whole]] = 0.0


class Ledger:
    """Sums, in float64, of what this rank put in and of what all ranks got out, since the session began or was loaded."""

    def __init__(self) -> None:
        self._in: dict[int, torch.Tensor] = {}
        self._out: dict[int, torch.Tensor] = {}
        self._taken: dict[int, torch.Tensor] = {}
        self._given: dict[int, torch.Tensor] = {}

    def taken(self, unit: Unit, job: Job) -> None:
        """The gradient is written over in place: a copy stays."""
        if unit.index not in self._in:
            # What was there before the first step counts as put in.
            waiting = 0.0 if job.waiting is None else job.waiting.double()
            self._in[unit.index] = _residual(job.worker).double() + waiting
            self._out[unit.index] = torch.zeros(unit.numel, dtype=torch.float64)
        self._taken[unit.index] = torch.cat([array.double() for array in job.inputs]).mul_(job.scale_in)

    def given(self, unit: Unit, job: Job) -> None:
        """The sum over ranks, as it left the method."""
        update = torch.empty(unit.numel)
        job.worker.write([update], scale=1.0)
        self._given[unit.index] = update.double()

    def kept(self, unit: Unit, job: Job, unclaimed: set[str]) -> None:
        """The step is final; what is given back was not delivered."""
        given = self._given.pop(unit.index)
        for slot in unit.slots:
            if slot.name in unclaimed and job.worker.keeps_residual:
                given[slot.start : slot.start + slot.numel] = 0.0
        self._in[unit.index] += self._taken.pop(unit.index)
        self._out[unit.index] += given

    def missing(self, unit: Unit, held: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor] | None:
        """What this rank put in and holds no more, and what all got; their sums over ranks must be equal."""
        if unit.index not in self._in:
            return None
        return self._in[unit.index] - held.double(), self._out[unit.index]


def _residual(worker: Worker) -> torch.Tensor:
    flat = torch.zeros(worker.n)
    if worker.keeps_residual:
        worker.read_residual(flat)
    return flat
