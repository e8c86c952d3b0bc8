"""Accuracy against dense DDP: every row trained with the same seeds, paired differences with standard errors.

    SPARDL_DATA_DIR=DATA OMP_NUM_THREADS=1 python bindings/python/bench/experiments.py cifar10 --out results.jsonl

The experiments and their rows stand in ``tasks.py``. A line is written after every run; what is there already is not run again,
so an interrupted command goes on where it was. ``--summary`` only prints the table.
"""

import argparse
import json
import math
import os
import pathlib
import statistics
import time
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

import spardl.torch
from tasks import TASKS, Row, Task, all_reduced


def train(task: Task, row: Row, seed: int, data: dict[str, torch.Tensor]) -> dict[str, Any]:
    """One run on this rank; the numbers are those of rank 0 and of the whole test set."""
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(seed)
    # One bucket: with several, ranks start the all-reduces of torch's powerSGD hook in different orders, and wait for ever.
    ddp = DDP(task.model(), forward_sync_buffers=False, bucket_cap_mb=1000)
    steps = task.steps_per_epoch(data, size)
    elements = sum(parameter.numel() for parameter in ddp.parameters())
    optimiser = task.optimiser(ddp.parameters(), row)
    state = row.register(ddp, optimiser, round(task.dense_epochs * steps))
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimiser, [epoch * steps for epoch in task.lr_epochs], 0.1)
    chance = torch.Generator().manual_seed(10_007 * seed + rank)
    began, epochs = time.perf_counter(), []
    for epoch in range(task.epochs):
        ddp.train()
        order = task.order(data, torch.Generator().manual_seed(1000 * seed + epoch))[rank::size]
        losses = []
        for step in range(steps):
            optimiser.zero_grad()
            loss = task.loss(ddp, data, order[step * task.batch : (step + 1) * task.batch], chance)
            loss.backward()
            task.clip(ddp)
            optimiser.step()
            schedule.step()
            losses.append(loss.detach())
        average(ddp)
        ddp.eval()
        epochs.append({"loss": mean(torch.stack(losses).mean()), "step": (epoch + 1) * steps})
        epochs[-1]["bytes_sent"] = row.bytes_sent(state, elements, (epoch + 1) * steps)
        if task.tested(epoch):
            epochs[-1] |= task.test(ddp.module, data, rank, size)
        if rank == 0:
            print(f"{task.name}, {row.name}, seed {seed}, epoch {epoch + 1}: {epochs[-1]}", flush=True)
    if isinstance(state, spardl.torch.State):
        state.close()
    spent = {"seconds": time.perf_counter() - began, "dense_bytes": all_reduced(steps * task.epochs * elements)}
    return {"epochs": epochs, **epochs[-1], **spent}


def mean(number: torch.Tensor) -> float:
    """The mean over ranks."""
    number = number.clone()
    dist.all_reduce(number)
    return float(number) / dist.get_world_size()


def average(ddp: nn.Module) -> None:
    """Running statistics are a rank's own while it trains; they are tested as their mean."""
    for buffer in ddp.buffers():
        if buffer.is_floating_point():
            dist.all_reduce(buffer)
            buffer /= dist.get_world_size()


def run_rank(rank: int, size: int, port: int, task: Task, runs: list[tuple[Row, int]], data: Any, out: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=size)
    for row, seed in runs:
        result = train(task, row, seed, data)
        if rank == 0:
            with open(out, "a", encoding="utf-8") as file:
                file.write(json.dumps({"task": task.name, "row": row.name, "seed": seed, **result}) + "\n")
            print(f"{task.name}, {row.name}, seed {seed}: {task.metric} {result[task.metric]:.3f}, {result['seconds']:.0f} s", flush=True)
    dist.destroy_process_group()


def read(out: pathlib.Path, task: Task) -> dict[tuple[str, int], dict[str, Any]]:
    lines = out.read_text(encoding="utf-8").splitlines() if out.exists() else []
    found = [json.loads(line) for line in lines]
    return {(one["row"], one["seed"]): one for one in found if one["task"] == task.name}


def summary(task: Task, results: dict[tuple[str, int], dict[str, Any]]) -> str:
    """A table: the mean over seeds, and the paired difference to the first row with its standard error."""
    base = task.rows[0].name
    lines = [f"| {task.name} | {task.metric} | per seed | difference to {base} | loss | % of dense's bytes |"]
    lines.append("| --- | ---: | --- | ---: | ---: | ---: |")
    for row in task.rows:
        seeds = sorted(seed for name, seed in results if name == row.name)
        if not seeds:
            continue
        mine = [results[row.name, seed] for seed in seeds]
        values = [one[task.metric] for one in mine]
        paired = [results[row.name, seed][task.metric] - results[base, seed][task.metric] for seed in seeds if (base, seed) in results]
        error = statistics.stdev(paired) / math.sqrt(len(paired)) if len(paired) > 1 else float("nan")
        difference = f"{statistics.mean(paired):+.2f} ± {error:.2f}" if paired and row.name != base else ""
        share = 100 * mine[0]["bytes_sent"] / mine[0]["dense_bytes"]
        each = ", ".join(f"{seed}: {value:.2f}" for seed, value in zip(seeds, values))
        loss = statistics.mean(one["loss"] for one in mine)
        lines.append(f"| {row.name} | {statistics.mean(values):.2f} | {each} | {difference} | {loss:.4f} | {share:.2f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("task", choices=sorted(TASKS))
    parser.add_argument("--out", type=pathlib.Path, required=True, help="a file with a line of JSON per run")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--rows", help="names, by commas; all without")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--port", type=int, default=29571)
    parser.add_argument("--summary", action="store_true", help="print the table of what there is and end")
    arguments = parser.parse_args()
    task = TASKS[arguments.task]
    if not arguments.summary:
        chosen = [row for row in task.rows if arguments.rows is None or row.name in arguments.rows.split(",")]
        there = read(arguments.out, task)
        wanted = [(row, int(seed)) for seed in arguments.seeds.split(",") for row in chosen]
        missing = [(row, seed) for row, seed in wanted if (row.name, seed) not in there]
        if missing:
            data = task.load(pathlib.Path(os.environ["SPARDL_DATA_DIR"]))
            for tensor in data.values():
                tensor.share_memory_()
            given = (arguments.ranks, arguments.port, task, missing, data, str(arguments.out))
            mp.spawn(run_rank, given, nprocs=arguments.ranks)
    print(summary(task, read(arguments.out, task)))


if __name__ == "__main__":
    main()
