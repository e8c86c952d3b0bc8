"""What is trained in the experiments: data, networks, and the rows that are compared."""

import gzip
import lzma
import pathlib
import tarfile
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

Data = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Row:
    """One way to reduce gradients."""

    name: str
    config: dict[str, Any] | None = None
    """Keywords of ``register``; None for plain DDP."""
    hand_over: bool = False
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
            spardl.torch.hand_over(optimiser, sparse)
        return sparse


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

    @property
    def tested(self) -> range:
        """The epochs after which the test set is used: the last."""
        return range(self.epochs - 1, self.epochs)

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
        with torch.autocast("cpu", dtype=torch.bfloat16):
            scores = model(images)
        return cross_entropy(scores.float(), data["labels"][rows])

    def test(self, model: nn.Module, data: Data, rank: int, size: int) -> dict[str, float]:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return super().test(model, data, rank, size)


class Block(nn.Module):
    """Two convolutions and a shortcut without parameters."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.stride = 1 if before == after else 2
        self.first = nn.Conv2d(before, after, 3, self.stride, 1, bias=False)
        self.second = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(after), nn.BatchNorm2d(after)])

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = self.norms[0](self.first(inputs)).relu()
        hidden = self.norms[1](self.second(hidden))
        short = inputs[:, :, :: self.stride, :: self.stride]
        short = nn.functional.pad(short, (0, 0, 0, 0, 0, hidden.shape[1] - short.shape[1]))
        return (hidden + short).relu()


def resnet20() -> nn.Module:
    stages = [Block(*sides) for sides in [(16, 16)] * 3 + [(16, 32)] + [(32, 32)] * 2 + [(32, 64)] + [(64, 64)] * 2]
    first = [nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
    model = nn.Sequential(*first, *stages, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out")
    return model


def cifar10(directory: pathlib.Path) -> Data:
    """The first 10,000 images, the test set whole; the official archive or its files."""

    def rows(data: bytes) -> tuple[torch.Tensor, torch.Tensor]:
        table = torch.frombuffer(bytearray(data), dtype=torch.uint8).reshape(-1, 3073)
        images = table[:, 1:].reshape(-1, 3, 32, 32).float() / 255
        middle, spread = torch.tensor([0.4914, 0.4822, 0.4465]), torch.tensor([0.247, 0.2435, 0.2616])
        return (images - middle[:, None, None]) / spread[:, None, None], table[:, 0].long()

    with lzma.open(directory / "cifar10" / "cifar-10-binary.tar.xz") as packed, tarfile.open(fileobj=packed) as archive:
        files = {pathlib.Path(one.name).name: archive.extractfile(one) for one in archive if one.name.endswith("batch_1.bin") or one.name.endswith("test_batch.bin")}
        images, labels = rows(files["data_batch_1.bin"].read())
        test_images, test_labels = rows(files["test_batch.bin"].read())
    return {"images": images, "labels": labels, "test_images": test_images, "test_labels": test_labels}


def mnist(directory: pathlib.Path) -> Data:
    """The official files."""

    def values(name: str, header: int) -> torch.Tensor:
        with gzip.open(directory / "mnist" / name) as file:
            return torch.frombuffer(bytearray(file.read()[header:]), dtype=torch.uint8)

    data = {}
    for prefix, kind in (("", "train"), ("test_", "t10k")):
        data[f"{prefix}images"] = values(f"{kind}-images-idx3-ubyte.gz", 16).reshape(-1, 1, 28, 28).float() / 255
        data[f"{prefix}labels"] = values(f"{kind}-labels-idx1-ubyte.gz", 8).long()
    return data


def small_cnn() -> nn.Module:
    """About 100,000 parameters."""
    first = [nn.Conv2d(1, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 5), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*first, nn.Flatten(), nn.Linear(512, 160), nn.ReLU(), nn.Linear(160, 10))


CONTEXT = 64
SYMBOLS = 65


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


class Transformer(nn.Module):
    """Embeddings, two encoder layers with a causal mask, a head."""

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(SYMBOLS, width), nn.Embedding(CONTEXT, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, SYMBOLS)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(CONTEXT), persistent=False)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        hidden = self.tokens(text) + self.places.weight
        return self.head(self.layers(hidden, mask=self.mask, is_causal=True))


def shakespeare(directory: pathlib.Path) -> Data:
    """A million characters; the last tenth is held out."""
    text = (directory / "text" / "tinyshakespeare" / "input.txt").read_text(encoding="utf-8")
    symbols = {symbol: number for number, symbol in enumerate(sorted(set(text)))}
    data = torch.tensor([symbols[symbol] for symbol in text])
    return {"text": data[: -len(data) // 10], "held_out": data[-len(data) // 10 :]}


def at(density: float, **config: Any) -> dict[str, Any]:
    return {"density": density, **config}


RULE_B = {"options": {"residual": "global-b"}}

TASKS = {
    "cifar10": Cifar(
        name="cifar10",
        rows=(
            Row("dense"),
            Row("spardl", at(0.01, dense_below=0)),
            Row("hand-over (rule A)", at(0.01, dense_below=0), hand_over=True),
            Row("hand-over (rule B)", at(0.01, dense_below=0, **RULE_B), hand_over=True),
            Row("powerSGD rank 4", power_rank=4),
        ),
        load=cifar10,
        model=resnet20,
        epochs=8,
        batch=16,
        lr=0.03,
        lr_epochs=(6,),
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
            Row("spardl", at(0.01)),
            Row("spardl 10 %", at(0.1)),
            Row("hand-over (rule A)", at(0.01), hand_over=True),
            Row("hand-over (rule B)", at(0.01, **RULE_B), hand_over=True),
            Row("powerSGD rank 4", power_rank=4),
        ),
        load=shakespeare,
        model=Transformer,
        epochs=10,
        batch=8,
        lr=1e-3,
        metric="held-out loss",
    ),
}
