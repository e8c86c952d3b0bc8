"""Moving the rounds of workers: over anything that sends and receives, or inside this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from ._native import ConfigError, Message, Round, Worker

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from ._native import DLPack


class Request(Protocol):
    """A send under way."""

    def wait(self) -> object:
        """Returns when the message may be forgotten."""


class Received(Protocol):
    """A receive under way."""

    def wait(self) -> Buffer:
        """Returns the message; a buffer longer than it will do."""


def drive(
    worker: Worker,
    isend: Callable[[int, Message], Request],
    irecv: Callable[[int, int], Received],
    gradient: DLPack | Sequence[DLPack],
    **begin: Any,
) -> str:
    """Runs one step of ``worker`` and returns its outcome: ``"updated"``, or ``"skipped: ..."`` on all workers alike.

    ``isend(rank, message)`` starts to send and ``irecv(rank, max_bytes)`` to receive; messages between two workers keep
    their order. Afterwards read the update with ``worker.write(out)``, then ``commit()`` or ``abort()``. Keywords go to
    ``worker.begin``. When something fails the worker is as before the step.
    """
    try:
        round = worker.begin(gradient, **begin)
        while round is not None:
            receives = [irecv(source, max_bytes) for source, max_bytes in round.receives]
            sends = [isend(target, message) for target, message in round.sends]
            inbox = [receive.wait() for receive in receives]
            for send in sends:
                send.wait()
            round = worker.resume(inbox)
    except BaseException:
        worker.abort()
        raise
    outcome = worker.outcome
    assert outcome is not None
    return outcome


def allreduce(
    gradients: Sequence[DLPack | Sequence[DLPack]],
    method: str = "spardl",
    *,
    workers: Sequence[Worker] | None = None,
    op: str = "mean",
    out: Sequence[DLPack | Sequence[DLPack]] | None = None,
    **options: Any,
) -> str:
    """Replaces the gradient of every worker of this process by the update, for learning and for tests.

    With ``out`` the updates go there and the gradients stay, as arrays of JAX must, which nobody may change. Without
    ``workers`` they are made for this call and their residuals forgotten; ``options`` are those of :class:`Worker`.
    Returns the outcome. A skipped step leaves the gradients as they were.
    """
    if op not in ("mean", "sum"):
        raise ConfigError(f"op '{op}' is not known: use mean or sum")
    size = len(gradients)
    if workers is None:
        workers = [
            Worker(method, _length(gradient), rank, size, **options)
            for rank, gradient in enumerate(gradients)
        ]
    if [worker.rank for worker in workers] != list(range(size)):
        raise ConfigError(f"expected the workers of ranks 0 to {size - 1} in order")
    if out is not None and len(out) != size:
        raise ConfigError(f"out has {len(out)} arrays, expected {size}: one per worker")
    try:
        _exchange(workers, gradients)
    except BaseException:
        for worker in workers:
            worker.abort()
        raise
    outcome = workers[0].outcome
    assert outcome is not None
    for worker, place in zip(workers, gradients if out is None else out):
        if outcome == "updated":
            worker.write(place, scale=1.0 if op == "sum" else None)
            worker.commit()
        else:
            worker.abort()
    return outcome


def _exchange(
    workers: Sequence[Worker], gradients: Sequence[DLPack | Sequence[DLPack]]
) -> None:
    """Runs all workers to the end, always the lowest that can go on."""
    messages: dict[tuple[int, int, int], Message] = {}
    rounds: dict[int, Round] = {}

    def post(rank: int, round: Round | None) -> None:
        rounds.pop(rank, None)
        if round is not None:
            rounds[rank] = round
            for target, message in round.sends:
                messages[rank, target, round.number] = message

    for rank, (worker, gradient) in enumerate(zip(workers, gradients)):
        post(rank, worker.begin(gradient))
    while rounds:
        for rank, round in sorted(rounds.items()):
            wanted = [(source, rank, round.number) for source, _ in round.receives]
            if all(key in messages for key in wanted):
                post(rank, workers[rank].resume([messages.pop(key) for key in wanted]))


def _length(gradient: DLPack | Sequence[DLPack]) -> int:
    if isinstance(gradient, (list, tuple)):
        return sum(_length(part) for part in gradient)
    length = 1
    for side in getattr(gradient, "shape"):
        length *= int(side)
    return length
