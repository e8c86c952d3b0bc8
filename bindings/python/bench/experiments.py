"""Accuracy against dense DDP: every row trained with the same seeds, paired differences with standard errors.

    SPARDL_DATA_DIR=DATA OMP_NUM_THREADS=1 python bindings/python/bench/experiments.py cifar10 --out results.jsonl

The experiments and their rows stand in ``tasks.py``. A line is written after every run, and what is there already is not run
again. A run that was interrupted goes on after its last whole epoch (``results.jsonl.unfinished``). ``--summary`` only prints
the table.
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
from progress import Progress
from tasks import TASKS, Row, Task, all_reduced


class Run:
    """One row with one seed on this rank."""

    def __init__(self, task: Task, row: Row, seed: int, data: dict[str, torch.Tensor]) -> None:
        self.task, self.row, self.seed, self.data = task, row, seed, data
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        torch.manual_seed(seed)
        self.model = task.model()
        # One bucket: with several, ranks start the all-reduces of torch's powerSGD hook in different orders, and wait for ever.
        self.ddp = DDP(self.model, forward_sync_buffers=False, bucket_cap_mb=1000)
        self.steps = task.steps_per_epoch(data, self.size)
        self.elements = sum(parameter.numel() for parameter in self.ddp.parameters())
        self.optimiser = task.optimiser(self.ddp.parameters(), row)
        self.state = row.register(self.ddp, self.optimiser, round(task.dense_epochs * self.steps))
        falls = [epoch * self.steps for epoch in task.lr_epochs]
        self.schedule = torch.optim.lr_scheduler.MultiStepLR(self.optimiser, falls, 0.1)
        self.chance = torch.Generator().manual_seed(10_007 * seed + self.rank)
        self.epochs: list[dict[str, float]] = []
        self.seconds = 0.0
        self._sent_before = 0.0

    def train(self, progress: Progress) -> dict[str, Any]:
        """From the first epoch, or where it was interrupted; the numbers are those of rank 0 and of the whole test set."""
        self._restore(progress.load())
        for epoch in range(len(self.epochs), self.task.epochs):
            began = time.perf_counter()
            loss = self._epoch(epoch)
            average(self.model)
            self.ddp.eval()
            sent = self._sent_before + self.row.bytes_sent(self.state, self.elements, (epoch + 1) * self.steps)
            self.epochs.append({"loss": loss, "step": (epoch + 1) * self.steps, "bytes_sent": sent})
            if self.task.tested(epoch):
                self.epochs[-1] |= self.task.test(self.model, self.data, self.rank, self.size)
            self.seconds += time.perf_counter() - began
            if self.rank == 0:
                print(f"{self.name}, epoch {epoch + 1}: {self.epochs[-1]}", flush=True)
            progress.save(epoch + 1, self._saved())
        if isinstance(self.state, spardl.torch.State):
            self.state.close()
        dense_bytes = all_reduced(self.steps * self.task.epochs * self.elements)
        return {"epochs": self.epochs, **self.epochs[-1], "seconds": self.seconds, "dense_bytes": dense_bytes}

    @property
    def name(self) -> str:
        """What is run, for people and for files."""
        return f"{self.task.name}, {self.row.name}, seed {self.seed}"

    def _epoch(self, epoch: int) -> float:
        """All steps of an epoch; returns the mean loss."""
        self.ddp.train()
        order = self.task.order(self.data, torch.Generator().manual_seed(1000 * self.seed + epoch))[self.rank :: self.size]
        losses = []
        for rows in order[: self.steps * self.task.batch].split(self.task.batch):
            loss = self._backward(rows)
            self.task.clip(self.ddp)
            self.optimiser.step()
            self.schedule.step()
            losses.append(loss)
        return mean(torch.stack(losses).mean())

    def _backward(self, rows: torch.Tensor) -> torch.Tensor:
        self.optimiser.zero_grad()
        loss = self.task.loss(self.ddp, self.data, rows, self.chance)
        loss.backward()
        return loss.detach()

    def _saved(self) -> dict[str, Any]:
        parts = {"model": self.model, "optimiser": self.optimiser, "schedule": self.schedule}
        plain = {"chance": self.chance.get_state(), "epochs": self.epochs, "seconds": self.seconds}
        return {**{name: part.state_dict() for name, part in parts.items()}, **plain, "row": self.row.saved(self.state)}

    def _restore(self, saved: dict[str, Any] | None) -> None:
        if saved is None:
            return
        self.row.restore(self.state, saved["row"], lambda: self._backward(torch.arange(self.task.batch)))
        self.model.load_state_dict(saved["model"])
        self.optimiser.load_state_dict(saved["optimiser"])
        self.schedule.load_state_dict(saved["schedule"])
        self.chance.set_state(saved["chance"])
        self.epochs, self.seconds = saved["epochs"], saved["seconds"]
        if isinstance(self.state, spardl.torch.State):
            # Its report counts from the restart.
            self._sent_before = self.epochs[-1]["bytes_sent"]


def mean(number: torch.Tensor) -> float:
    """The mean over ranks."""
    number = number.clone()
    dist.all_reduce(number)
    return float(number) / dist.get_world_size()


def average(model: nn.Module) -> None:
    """Running statistics are a rank's own while it trains; they are tested as their mean."""
    for buffer in model.buffers():
        if buffer.is_floating_point():
            dist.all_reduce(buffer)
            buffer /= dist.get_world_size()


def run_rank(rank: int, size: int, port: int, task: Task, runs: list[tuple[Row, int]], data: Any, out: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=size)
    for row, seed in runs:
        run = Run(task, row, seed, data)
        progress = Progress(pathlib.Path(f"{out}.unfinished"), run.name)
        result = run.train(progress)
        if rank == 0:
            with open(out, "a", encoding="utf-8") as file:
                file.write(json.dumps({"task": task.name, "row": row.name, "seed": seed, **result}) + "\n")
            print(f"{run.name}: {task.metric} {result[task.metric]:.3f}, {result['seconds']:.0f} s", flush=True)
        dist.barrier()
        progress.clear()
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
        difference = f"{statistics.mean(paired):+.2f}" if paired and row.name != base else ""
        if difference and len(paired) > 1:
            difference += f" ± {statistics.stdev(paired) / math.sqrt(len(paired)):.2f}"
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
