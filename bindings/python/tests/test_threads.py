"""Who holds what while something runs: Python goes on beside kernels and waits; futures complete off the main thread."""

import sys
import threading
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from models import batch, network, train
from ranks import run, wait_until_all_failed
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

import spardl.torch

pytestmark = pytest.mark.modern


def runs_beside(call: Any) -> bool:
    """Does another thread run Python while ``call`` does? Threads switch only where the lock is given up."""
    went, ended, seen = threading.Semaphore(0), threading.Event(), []
    inside = False

    def other() -> None:
        while went.acquire() and not ended.is_set():
            seen.append(inside)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000.0)
    thread = threading.Thread(target=other)
    thread.start()
    try:
        for _ in range(200):
            inside = True
            went.release()
            call()
            inside = False
            if any(seen):
                break
    finally:
        sys.setswitchinterval(interval)
        ended.set()
        went.release()
        thread.join()
    return any(seen)


def test_python_runs_beside_kernels() -> None:
    size, n = 2, 4_000_000
    workers = [spardl.Worker("spardl", n, rank, size) for rank in range(size)]
    gradients = [np.random.default_rng(rank).standard_normal(n).astype(np.float32) for rank in range(size)]

    def begin_again() -> None:
        workers[0].begin(gradients[0])
        workers[0].abort()

    assert runs_beside(begin_again)
    assert runs_beside(lambda: workers[0].write(gradients[0]))
    assert runs_beside(lambda: spardl.encode(gradients[0], density=0.01))
    assert not runs_beside(lambda: None)


def waits(rank: int, size: int) -> str:
    """Rank 1 begins only after a word that rank 0 gives while its exchange waits for rank 1."""
    store = dist.distributed_c10d._get_default_store()
    tensor = torch.ones(1000)
    sync = spardl.torch.Sync([("w", tensor)], dense_steps=0, banner=False)
    if rank == 1:
        store.wait(["begun"])
    sync.start()
    if rank == 0:
        store.set("begun", "yes")
    return sync.wait()


def test_python_runs_beside_waits() -> None:
    assert run(2, waits, limit=60) == ["updated"] * 2


def completions(rank: int, size: int) -> dict[str, Any]:
    """Where futures complete and what they hold, with buckets that begin somewhere inside the gradient."""
    seen: dict[str, Any] = {"threads": set(), "offsets": set(), "same": True, "buckets": 0}
    ddp = DDP(network(), bucket_cap_mb=0.001)
    state = spardl.torch.State(density=0.05, dense_steps=0, bucket_mb=0.005, banner=False)
    state.bind(ddp.module)
    inner = state._receive

    def receive(bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:  # type: ignore[name-defined]
        future, buffer = inner(bucket), bucket.buffer()

        def look(done: torch.futures.Future[torch.Tensor]) -> torch.Tensor:
            result = done.value()
            seen["threads"].add(threading.current_thread().name)
            seen["offsets"].add(result.storage_offset())
            seen["same"] &= result.data_ptr() == buffer.data_ptr()
            seen["buckets"] += 1
            return result

        return future.then(look)

    state._receive = receive  # type: ignore[method-assign]
    ddp.register_comm_hook(state, spardl.torch.hook)
    train(ddp, rank, range(3), torch.optim.SGD(ddp.parameters(), lr=0.1))
    return seen


def test_futures_complete_on_the_engines_thread_with_ddps_own_buffer_from_its_start() -> None:
    for seen in run(2, completions):
        assert "spardl" in seen["threads"], "a future that is done already runs its callback where it is asked"
        assert seen["offsets"] == {0} and seen["same"] and seen["buckets"] > 3


def fails_in_the_middle(rank: int, size: int) -> tuple[list[str], int]:
    """One of several buckets fails on one rank; those behind it must not be waited for."""
    ddp = DDP(network(), bucket_cap_mb=0.001)
    state = spardl.torch.register(ddp, density=0.05, dense_steps=0, bucket_mb=0.005, timeout=300, banner=False)
    optimiser = torch.optim.SGD(ddp.parameters(), lr=0.1)
    train(ddp, rank, range(2), optimiser)
    if rank == 1:

        def broken(*_: object, **__: object) -> None:
            raise ValueError("the kernel broke")

        prepare = state._prepare
        state._prepare = lambda unit, job, call: broken() if unit.index == 1 else prepare(unit, job, call)  # type: ignore[method-assign]
    errors = []
    for step in (2, 3):
        try:
            inputs, labels = batch(rank, step)
            nn.functional.cross_entropy(ddp(inputs), labels).backward()
        except Exception as error:  # noqa: BLE001
            errors.append(str(error))
    state.close()
    wait_until_all_failed(rank, size)
    return errors, len(state._units)


def test_an_error_in_one_of_several_buckets_ends_all_ranks_long_before_the_timeout() -> None:
    for errors, units in run(3, fails_in_the_middle, limit=60):
        assert units > 2 and len(errors) == 2
        assert all("the kernel broke" in error for error in errors), errors


def ways(rank: int, size: int, config: dict[str, Any]) -> list[float]:
    ddp = DDP(network(), bucket_cap_mb=0.001)
    spardl.torch.register(ddp, density=0.05, dense_steps=1, bucket_mb=0.005, banner=False, **config)
    return train(ddp, rank, range(4), torch.optim.SGD(ddp.parameters(), lr=0.1))[-1]


def test_threads_and_buckets_in_flight_do_not_change_bits() -> None:
    expected = run(2, ways, {})
    assert run(2, ways, {"in_flight": 1}) == run(2, ways, {"threads": 2, "in_flight": 9}) == expected
