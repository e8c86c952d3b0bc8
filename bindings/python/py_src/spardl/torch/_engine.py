"""One background thread that reduces units over gloo connections of its own, oldest first, several in flight.

A unit that waits for its messages lets the next one begin; nobody waits for a younger unit before an older one is done, so ranks
that are at different points of their backward pass never wait for each other in a circle.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import torch

from .._native import Message, Round, SpardlError, Worker


class PeerError(SpardlError):
    """A peer is lost, late or failed; the message says which and in which round."""


@dataclass
class Times:
    """Where the time of a job went, in seconds."""

    local: float = 0.0
    """In kernels."""
    waited: float = 0.0
    """For peers."""
    overhead: float = 0.0
    """CPU time of the threads outside kernels and messages."""


@dataclass
class Job:
    """One unit in one step. ``done`` is called once, on the engine's thread, with the job; ``error`` then says how it went."""

    label: str
    worker: Worker
    arrays: Sequence[torch.Tensor]
    step: int
    density: float
    scale_in: float
    scale_out: float
    done: Callable[[Job], None]
    prepare: Callable[[Job], None] = lambda job: None
    inputs: Sequence[torch.Tensor] = ()
    """What is reduced; the same as the arrays, which get the result, unless ``prepare`` puts something else there."""
    waiting: torch.Tensor | None = None
    """What goes out beside the gradient: another method held it back."""
    error: BaseException | None = None
    outcome: str | None = None
    times: Times = field(default_factory=Times)
    began: float = 0.0
    ended: float = 0.0

    @property
    def skipped(self) -> bool:
        """Was the step skipped on all ranks?"""
        return self.outcome is not None and self.outcome != "updated"


@dataclass
class Whole:
    """A tensor that spardl does not take (sparse, float64): reduced whole, in its turn."""

    tensor: torch.Tensor
    scale: float
    done: Callable[[Whole], None]
    error: BaseException | None = None


class _Watch:
    """Adds the wall time of its block to one counter and takes the block's CPU time out of the overhead."""

    def __init__(self, times: Times, counter: str) -> None:
        self._times, self._counter = times, counter

    def __enter__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.thread_time()

    def __exit__(self, *_: object) -> None:
        wall = getattr(self._times, self._counter) + time.perf_counter() - self._wall
        setattr(self._times, self._counter, wall)
        self._times.overhead -= time.thread_time() - self._cpu


@dataclass
class _Active:
    job: Job
    tag: int
    round: Round | None = None
    receives: list[tuple[int, Any, Message]] = field(default_factory=list)
    sends: list[tuple[int, Any, Message]] = field(default_factory=list)


class Engine:
    """The thread and its queue."""

    def __init__(self, group: Any, in_flight: int, timeout: timedelta, on_error: Callable[[BaseException], BaseException]) -> None:
        self._group = group
        self._in_flight = in_flight
        self._timeout = timeout
        self._on_error = on_error
        self._queue: queue.SimpleQueue[Job | Whole | None] = queue.SimpleQueue()
        self._active: deque[_Active] = deque()
        self._held: Whole | None = None
        self._tag = 0
        self._accounted = 0.0
        self._lock = threading.Lock()
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="spardl", daemon=True)
        self._thread.start()

    def submit(self, job: Job | Whole) -> None:
        """Puts a job at the end of the queue; all ranks must do so in the same order."""
        with self._lock:
            if self.error is None:
                self._queue.put(job)
                return
        job.error = self.error
        job.done(job)  # type: ignore[arg-type]

    def fail(self, error: BaseException) -> None:
        """Ends the engine because of an error on this rank outside of it; jobs under way fail at their next wait."""
        with self._lock:
            self.error = self.error or error
        self._on_error(error)
        self._queue.put(None)

    def close(self) -> None:
        """Ends the thread once it has done what was submitted."""
        self._queue.put(None)
        if threading.current_thread() is not self._thread:
            self._thread.join(self._timeout.total_seconds())

    def _run(self) -> None:
        try:
            while self._turn():
                pass
        except BaseException as error:  # noqa: BLE001: whatever it is, the user must get it, on every rank
            self._abandon(error)
        self._group = None

    def _turn(self) -> bool:
        """Begins at most one job, then takes the oldest one a round further."""
        if self._held is None and len(self._active) < self._in_flight and (not self._active or not self._queue.empty()):
            job = self._queue.get()
            if job is None:
                if self.error is not None:
                    raise self.error
                while self._active:
                    self._advance(self._active[0])
                return False
            if isinstance(job, Whole):
                self._held = job
            else:
                self._begin(job)
        if self._active:
            self._advance(self._active[0])
        elif self._held is not None:
            self._reduce(self._held)
        return True

    def _begin(self, job: Job) -> None:
        active = _Active(job, self._tag)
        self._active.append(active)
        # Messages of different jobs never meet; gloo's tags are 32 bits.
        self._tag = (self._tag + 1) % (1 << 20)
        job.began = time.perf_counter()
        job.inputs = job.arrays
        job.prepare(job)
        with _Watch(job.times, "local"):
            active.round = job.worker.begin(job.inputs, density=job.density, step=job.step, scale=job.scale_in)
        self._post(active)
        self._account(job)

    def _account(self, job: Job) -> None:
        """Puts the thread's CPU time since the last call on a job's bill, which kernels and messages are taken from."""
        now = time.thread_time()
        job.times.overhead += now - self._accounted
        self._accounted = now

    def _post(self, active: _Active) -> None:
        if active.round is None:
            return
        active.receives = []
        for source, max_bytes in active.round.receives:
            message = Message(max_bytes)
            buffer = torch.frombuffer(message, dtype=torch.uint8)
            with _Watch(active.job.times, "waited"):
                work = self._group.recv([buffer], source, active.tag)
            active.receives.append((source, work, message))
        for target, message in active.round.sends:
            buffer = torch.frombuffer(message, dtype=torch.uint8)
            with _Watch(active.job.times, "waited"):
                work = self._group.send([buffer], target, active.tag)
            active.sends.append((target, work, message))

    def _advance(self, active: _Active) -> None:
        job = active.job
        if active.round is not None:
            with _Watch(job.times, "waited"):
                for source, work, _ in active.receives:
                    self._wait(active, source, work)
            with _Watch(job.times, "local"):
                active.round = job.worker.resume([message for _, _, message in active.receives])
            self._post(active)
            self._account(job)
        if active.round is None:
            self._finish(active)

    def _wait(self, active: _Active, peer: int, work: Any) -> None:
        try:
            work.wait(self._timeout)
        except RuntimeError as error:
            number = active.round.number if active.round is not None else "the last"
            first_line = str(error).splitlines()[0]
            text = f"{active.job.label}, step {active.job.step}, round {number}: waiting for rank {peer}: {first_line}"
            raise PeerError(text) from error

    def _finish(self, active: _Active) -> None:
        job = active.job
        job.outcome = job.worker.outcome
        if not job.skipped:
            with _Watch(job.times, "local"):
                job.worker.write(job.arrays, scale=job.scale_out)
        with _Watch(job.times, "waited"):
            for target, work, _ in active.sends:
                self._wait(active, target, work)
        job.ended = time.perf_counter()
        self._active.popleft()
        self._account(job)
        job.done(job)

    def _reduce(self, whole: Whole) -> None:
        try:
            self._group.allreduce([whole.tensor]).wait()
        except RuntimeError as error:
            first_line = str(error).splitlines()[0]
            raise PeerError(f"a dense sum of {whole.tensor.dtype} numbers: waiting for other ranks: {first_line}") from error
        whole.tensor.mul_(whole.scale)
        self._held = None
        whole.done(whole)

    def _abandon(self, error: BaseException) -> None:
        """Everything under way and everything to come ends with this error."""
        shown = self._on_error(error)
        with self._lock:
            self.error = self.error or shown
            jobs: list[Job | Whole] = [active.job for active in self._active]
            jobs += [self._held] if self._held is not None else []
            while not self._queue.empty():
                job = self._queue.get()
                jobs += [job] if job is not None else []
        for job in jobs:
            if isinstance(job, Job):
                job.worker.abort()
            job.error = self.error
            job.done(job)  # type: ignore[arg-type]
        self._active.clear()
