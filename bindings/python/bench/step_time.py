"""Time of a DDP step whose backward pass computes next to nothing: dense gloo, torch's powerSGD hook, spardl.

    OMP_NUM_THREADS=1 torchrun --nproc-per-node 4 bindings/python/bench/step_time.py
    OMP_NUM_THREADS=1 scripts/bench-network 4 1gbit --each python bindings/python/bench/step_time.py
"""

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
from torch.nn.parallel import DistributedDataParallel as DDP

import spardl.torch

parser = argparse.ArgumentParser()
parser.add_argument("--layers", type=int, default=14)
parser.add_argument("--width", type=int, default=1024, help="n is about layers x width x width")
parser.add_argument("--density", type=float, default=0.01)
parser.add_argument("--rounds", type=int, default=12)
arguments = parser.parse_args()
# Without it DDP copies every gradient twice, whatever reduces it.
VIEW = {"gradient_as_bucket_view": True}


class Given(torch.autograd.Function):
    """A loss whose gradients are there already: nothing is computed."""

    @staticmethod
    def forward(context: Any, gradients: list[torch.Tensor], *weights: torch.Tensor) -> torch.Tensor:
        context.gradients = gradients
        return torch.zeros(())

    @staticmethod
    def backward(context: Any, *_: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        return (None, *context.gradients)


class Weights(nn.Module):
    """Parameters whose gradients are given: backward only puts them into DDP's buckets."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(rank)
        sides = (arguments.width, arguments.width)
        self.weights = nn.ParameterList(torch.zeros(sides) for _ in range(arguments.layers))
        self.given = [torch.randn(sides, generator=generator).pow(3) for _ in range(arguments.layers)]

    def forward(self) -> torch.Tensor:
        loss: torch.Tensor = Given.apply(self.given, *self.weights)
        return loss


def models(rank: int) -> dict[str, tuple[DDP, spardl.torch.State | None]]:
    made: dict[str, tuple[DDP, spardl.torch.State | None]] = {"dense gloo": (DDP(Weights(rank), **VIEW), None)}
    # One bucket: with several, ranks start the all-reduces of torch's hook in different orders, and wait for ever.
    power = DDP(Weights(rank), bucket_cap_mb=1000, **VIEW)
    low_rank = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=4, start_powerSGD_iter=2)
    power.register_comm_hook(low_rank, powerSGD_hook.powerSGD_hook)
    made["powerSGD rank 4"] = (power, None)
    for method in ("spardl", "spardl-bf16", "spardl-q4"):
        ddp = DDP(Weights(rank), **VIEW)
        options = {"method": method, "density": arguments.density, "dense_steps": 0, "banner": False}
        made[method] = (ddp, spardl.torch.register(ddp, **options))
    return made


def timed(step: Callable[[], object]) -> float:
    """The time of the slowest rank."""
    dist.barrier()
    began = time.perf_counter()
    step()
    seconds = torch.tensor(time.perf_counter() - began)
    dist.all_reduce(seconds, dist.ReduceOp.MAX)
    return float(seconds)


dist.init_process_group("gloo")
rank = dist.get_rank()
compared = models(rank)
alone = Weights(rank)
times: dict[str, list[float]] = {name: [] for name in ["backward alone", *compared]}
splits: dict[str, list[dict[str, float]]] = {name: [] for name in compared}
for _ in range(arguments.rounds + 4):
    times["backward alone"].append(timed(lambda: alone().backward()))
    for name, (ddp, state) in compared.items():
        times[name].append(timed(lambda ddp=ddp: ddp().backward()))
        if state is not None:
            splits[name].append(state.report())
if rank == 0:
    elements = arguments.layers * arguments.width**2
    print(f"n = {elements}, density {arguments.density}, {dist.get_world_size()} ranks; medians, in turn, slowest rank")
    for name, seconds in times.items():
        kept = seconds[4:]
        print(f"{name:16} {1e3 * statistics.median(kept):7.1f} ms ({1e3 * min(kept):.1f} to {1e3 * max(kept):.1f})")
    for name, reports in splits.items():
        if reports:
            local, waited, overhead = (
                1e3 * statistics.median(report[f"seconds_{part}"] for report in reports[4:])
                for part in ("local", "waited", "overhead")
            )
            buckets = reports[-1]["buckets"]
            print(
                f"{name}: rank 0 sends {reports[-1]['bytes_sent'] / 1e6:.2f} MB in {buckets:.0f} buckets; "
                f"{local:.1f} ms in kernels, {waited:.1f} ms waiting for peers, {overhead / buckets:.2f} ms of CPU time per "
                "bucket outside of both"
            )
for _, state in compared.values():
    if state is not None:
        state.close()
dist.destroy_process_group()
