"""What is trained in the experiments: data, networks, and the rows that are compared."""

import pathlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel as DDP

import spardl.torch
from networks import CONTEXT, Transformer, resnet20, small_cnn
from samples import Data, cifar10, cifar10_larger, mnist, shakespeare


@dataclass(frozen=True)
class Row:
    """One way to reduce gradients."""

    name: str
    config: dict[str, Any] | None = None
    """Keywords of ``register``; None for plain DDP."""
    hand_over: bool = False
    momentum: float | None = None
    """That of the hand-over; None for momentum by wait."""
    power_rank: int = 0
    """The rank of torch's powerSGD hook; 0 for none."""

    def register(self, ddp: DDP, optimiser: torch.optim.Optimizer, dense_steps: int) -> Any:
        """Puts the hooks on; the first steps are dense whatever the row."""
        if self.power_rank:
            state = powerSGD_hook.PowerSGDState(None, self.power_rank, start_powerSGD_iter=max(dense_steps, 2))
            ddp.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
            return state
        if self.config is None:
            return None
        sparse = spardl.torch.register(ddp, **{"dense_steps": dense_steps, "banner": False, **self.config})
        if self.hand_over:
            spardl.torch.hand_over(optimiser, sparse, self.momentum)
        return sparse

    def bytes_sent(self, state: Any, elements: int, steps: int) -> float:
        """By a rank so far; computed for dense and powerSGD, as all-reduces that are optimal in bytes."""
        if isinstance(state, spardl.torch.State):
            return state.report()["bytes_sent_total"]
        if isinstance(state, powerSGD_hook.PowerSGDState):
            dense = min(steps, state.start_powerSGD_iter) * elements
            return all_reduced(dense + state.total_numel_after_compression)
        return all_reduced(steps * elements)

    def saved(self, state: Any) -> Any:
        """What this rank needs to go on after a restart."""
        if isinstance(state, spardl.torch.State):
            return state.state_dict()
        if isinstance(state, powerSGD_hook.PowerSGDState):
            return {name: getattr(state, name) for name in state.__slots__ if name != "process_group"}
        return None

    def restore(self, state: Any, saved: Any, backward: Callable[[], object]) -> None:
        """Goes on from what was saved; ``backward`` runs a backward pass whose gradients nobody uses."""
        if isinstance(state, spardl.torch.State):
            state.load_state_dict(saved)
        if isinstance(state, powerSGD_hook.PowerSGDState):
            # DDP orders its bucket anew after the first backward pass, and the hook's errors are in that order.
            for _ in range(2):
                backward()
            for name, value in saved.items():
                setattr(state, name, value)


def all_reduced(elements: int) -> float:
    """The bytes that a rank sends for them."""
    size = dist.get_world_size()
    return 2 * (size - 1) / size * 4 * elements


@dataclass(frozen=True)
class Task:
    """An experiment."""

    name: str
    rows: tuple[Row, ...]
    load: Callable[[pathlib.Path], Data]
    model: Callable[[], nn.Module]
    epochs: int
    batch: int
    """Of a rank."""
    lr: float
    dense_epochs: float = 1
    lr_epochs: tuple[int, ...] = ()
    """Where the rate falls to a tenth."""
    metric: str = "accuracy"

    test_every: int = 1000
    """After how many epochs the test set is used, besides the last."""

    def tested(self, epoch: int) -> bool:
        """Is the test set used after this epoch?"""
        return (epoch + 1) % self.test_every == 0 or epoch + 1 == self.epochs

    def optimiser(self, parameters: Iterable[nn.Parameter], row: Row) -> torch.optim.Optimizer:
        """SGD with momentum, as published for such networks."""
        return torch.optim.SGD(parameters, lr=self.lr, momentum=0.9, weight_decay=1e-4)

    def steps_per_epoch(self, data: Data, size: int) -> int:
        """How many steps see every sample at most once."""
        return len(data["labels"]) // (self.batch * size)

    def order(self, data: Data, generator: torch.Generator) -> torch.Tensor:
        """The samples of an epoch, equal on all ranks."""
        return torch.randperm(len(data["labels"]), generator=generator)

    def loss(self, model: nn.Module, data: Data, rows: torch.Tensor, chance: torch.Generator) -> torch.Tensor:
        """Of a batch."""
        return cross_entropy(model(data["images"][rows]), data["labels"][rows])

    def clip(self, model: nn.Module) -> None:
        """Before the optimiser's step."""

    @torch.no_grad()
    def test(self, model: nn.Module, data: Data, rank: int, size: int) -> dict[str, float]:
        """On the whole test set, a part on every rank."""
        sums = torch.zeros(3)
        for images, labels in zip(data["test_images"][rank::size].split(250), data["test_labels"][rank::size].split(250)):
            scores = model(images).float()
            sums += torch.tensor([float((scores.argmax(1) == labels).sum()), float(cross_entropy(scores, labels, reduction="sum")), len(labels)])
        dist.all_reduce(sums)
        return {"accuracy": 100 * float(sums[0] / sums[2]), "test_loss": float(sums[1] / sums[2])}


class Cifar(Task):
    """Every image is shifted by up to 4 pixels and mirrored by chance; the network computes in bfloat16, its weights are float32."""

    def loss(self, model: nn.Module, data: Data, rows: torch.Tensor, chance: torch.Generator) -> torch.Tensor:
        padded = nn.functional.pad(data["images"][rows], (4, 4, 4, 4))
        shifts = torch.randint(0, 9, (len(rows), 2), generator=chance).tolist()
        mirrored = torch.rand(len(rows), generator=chance) < 0.5
        images = torch.stack([image[:, y : y + 32, x : x + 32] for image, (y, x) in zip(padded, shifts)])
        images = torch.where(mirrored[:, None, None, None], images.flip(3), images)
        # Convolutions keep this order of memory, and are a tenth faster with it.
        images = images.contiguous(memory_format=torch.channels_last)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            scores = model(images)
        return cross_entropy(scores.float(), data["labels"][rows])

    def test(self, model: nn.Module, data: Data, rank: int, size: int) -> dict[str, float]:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return super().test(model, data, rank, size)


class Text(Task):
    """Windows of a text, drawn at random; the held-out tenth is scored on the same windows every time."""

    def optimiser(self, parameters: Iterable[nn.Parameter], row: Row) -> torch.optim.Optimizer:
        return torch.optim.AdamW(parameters, lr=self.lr)

    def steps_per_epoch(self, data: Data, size: int) -> int:
        return 100

    def order(self, data: Data, generator: torch.Generator) -> torch.Tensor:
        # Ranks take every size-th row of this: enough for any number of them.
        return torch.randint(0, len(data["text"]) - CONTEXT - 1, (100 * self.batch * dist.get_world_size(),), generator=generator)

    def loss(self, model: nn.Module, data: Data, rows: torch.Tensor, chance: torch.Generator) -> torch.Tensor:
        return _score(model, data["text"], rows)

    def clip(self, model: nn.Module) -> None:
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)

    @torch.no_grad()
    def test(self, model: nn.Module, data: Data, rank: int, size: int) -> dict[str, float]:
        starts = torch.randint(0, len(data["held_out"]) - CONTEXT - 1, (512,), generator=torch.Generator().manual_seed(0))
        total = sum(_score(model, data["held_out"], part) * len(part) for part in starts[rank::size].split(32))
        total = torch.as_tensor(total)
        dist.all_reduce(total)
        return {"held-out loss": float(total) / len(starts)}


def _score(model: nn.Module, text: torch.Tensor, starts: torch.Tensor) -> torch.Tensor:
    windows = torch.stack([text[start : start + CONTEXT + 1] for start in starts])
    return cross_entropy(model(windows[:, :-1]).flatten(0, 1), windows[:, 1:].flatten())


def at(density: float, **config: Any) -> dict[str, Any]:
    return {"density": density, **config}


RULE_A = {"options": {"residual": "global-a"}}
RULE_B = {"options": {"residual": "global-b"}}
# 10,000 images: what experiments that compare many rows train.
CIFAR_SHORT: dict[str, Any] = {"load": cifar10, "model": resnet20, "epochs": 8, "batch": 16, "lr": 0.03, "lr_epochs": (6,)}

TASKS = {
    "cifar10": Cifar(
        name="cifar10",
        rows=(
            Row("dense"),
            Row("spardl", at(0.01, dense_below=0, **RULE_A)),
            Row("by wait (rule A)", at(0.01, dense_below=0, **RULE_A), hand_over=True),
            Row("by wait (rule B)", at(0.01, dense_below=0, **RULE_B), hand_over=True),
            Row("momentum 0 (rule A)", at(0.01, dense_below=0, **RULE_A), hand_over=True, momentum=0.0),
            Row("momentum 0 (rule B)", at(0.01, dense_below=0, **RULE_B), hand_over=True, momentum=0.0),
            Row("spardl 0.1 %", at(0.001, dense_below=0, **RULE_A)),
            Row("rule B 0.1 %", at(0.001, dense_below=0, **RULE_B)),
            Row("by wait (rule A) 0.1 %", at(0.001, dense_below=0, **RULE_A), hand_over=True),
            Row("by wait (rule B) 0.1 %", at(0.001, dense_below=0, **RULE_B), hand_over=True),
            Row("momentum 0 (rule B) 0.1 %", at(0.001, dense_below=0, **RULE_B), hand_over=True, momentum=0.0),
            Row("powerSGD rank 4", power_rank=4),
        ),
        **CIFAR_SHORT,
    ),
    "cifar10-few-bits": Cifar(
        name="cifar10-few-bits",
        rows=(
            Row("bf16", at(0.01, value_type="bf16", dense_below=0), hand_over=True),
            *(
                Row(f"{name}{words}", at(density, value_type=name, dense_below=0), hand_over=True)
                for words, values in (
                    ("", {"q4": 0.01, "q1": 0.01, "q2": 0.01, "q8": 0.01}),
                    (" at the bytes of bf16", {"q4": 0.0205, "q1": 0.025, "q2": 0.0245, "q8": 0.0148}),
                )
                for name, density in values.items()
            ),
        ),
        **CIFAR_SHORT,
    ),
    "cifar10-longer": Cifar(
        name="cifar10-longer",
        rows=(
            Row("dense"),
            Row("hand-over (rule B) 1 %", at(0.01, dense_below=0, **RULE_B), hand_over=True),
            Row("spardl 1 %", at(0.01, dense_below=0)),
            Row("powerSGD rank 4", power_rank=4),
            Row("spardl 10 %", at(0.1, dense_below=0)),
        ),
        load=cifar10_larger,
        model=resnet20,
        epochs=30,
        batch=32,
        lr=0.05,
        lr_epochs=(18, 26),
        test_every=3,
    ),
    "mnist": Task(
        name="mnist",
        rows=(
            Row("dense"),
            Row("spardl", at(0.01)),
            Row("hand-over (rule A)", at(0.01), hand_over=True),
            Row("hand-over (rule B)", at(0.01, **RULE_B), hand_over=True),
        ),
        load=mnist,
        model=small_cnn,
        epochs=1,
        batch=16,
        lr=0.02,
        dense_epochs=0.05,
    ),
    "text": Text(
        name="text",
        rows=(
            Row("dense"),
            Row("hand-over (rule A) 1 %", at(0.01), hand_over=True),
            Row("spardl 1 %", at(0.01)),
            Row("powerSGD rank 4", power_rank=4),
            Row("spardl 10 %", at(0.1)),
            Row("hand-over (rule B) 1 %", at(0.01, **RULE_B), hand_over=True),
        ),
        load=shakespeare,
        model=Transformer,
        epochs=10,
        batch=8,
        lr=1e-3,
        metric="held-out loss",
        test_every=1,
    ),
}
