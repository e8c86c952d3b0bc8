"""Runs a function in several processes with a gloo group; every wait has a limit."""

import contextlib
import io
import multiprocessing
import os
import runpy
import socket
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from datetime import timedelta
from typing import Any


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])


def run(size: int, job: Callable[..., Any], *arguments: Any, limit: float = 120.0, lost: tuple[int, ...] = ()) -> list[Any]:
    """The results of ``job(rank, size, *arguments)`` by rank; ranks in ``lost`` may end without one."""
    # Ranks are forked from one process that has imported torch: that takes seconds, each time.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch._dynamo", "torch.distributed", "spardl.torch", "models"])
    results: Any = context.Queue()
    port = free_port()
    processes = [
        context.Process(target=_start, args=(rank, size, port, results, job, arguments)) for rank in range(size)
    ]
    for process in processes:
        process.start()
    found: dict[int, Any] = {}
    try:
        while len(found) < size - len(lost):
            rank, ok, value = results.get(timeout=limit)
            if not ok:
                raise AssertionError(f"rank {rank} failed:\n{value}")
            found[rank] = value
    finally:
        for process in processes:
            process.join(10 if len(found) == size - len(lost) else 0.1)
            if process.is_alive():
                process.kill()
    return [found.get(rank) for rank in range(size)]


def _start(rank: int, size: int, port: int, results: Any, job: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(size))
    try:
        if job is not recipe:
            dist.init_process_group("gloo", rank=rank, world_size=size, timeout=timedelta(seconds=60))
        value = job(rank, size, *arguments)
        results.put((rank, True, value))
    except BaseException:  # noqa: BLE001: the parent shows it
        results.put((rank, False, traceback.format_exc()))
    results.close()
    results.join_thread()


def wait_until_all_failed(rank: int, size: int) -> None:
    """Lives on until the other ranks have failed too; rank 0, which holds their store, goes last."""
    import torch.distributed as dist

    store = dist.distributed_c10d._get_default_store()
    store.set(f"failed {rank}", "")
    store.wait([f"failed {other}" for other in range(size)], timedelta(seconds=30))
    store.add("gone", 1)
    while rank == 0 and store.add("gone", 0) < size:
        time.sleep(0.01)


def recipe(rank: int, size: int, script: str, arguments: list[str]) -> str:
    """Runs a script as torchrun would start it; returns what it printed."""
    os.environ.update(LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(size), GROUP_RANK="0", ACCELERATE_USE_CPU="true")
    sys.argv = [script, *arguments]
    # Other packages warn about each other.
    warnings.resetwarnings()
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        runpy.run_path(script, run_name="__main__")
    return printed.getvalue()


def scratch() -> str:
    return tempfile.mkdtemp(prefix="spardl-test-")
