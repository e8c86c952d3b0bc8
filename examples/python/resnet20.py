"""ResNet-20 on CIFAR-10's binary files (data_batch_*.bin, test_batch.bin), dense or sparse.

    torchrun --nproc-per-node 4 examples/python/resnet20.py DIRECTORY --density 0.01
"""

import argparse
import pathlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

import spardl.torch

parser = argparse.ArgumentParser()
parser.add_argument("directory", type=pathlib.Path)
parser.add_argument("--epochs", type=int, default=30)
parser.add_argument("--batch-size", type=int, default=32, help="per rank")
parser.add_argument("--density", type=float, default=0.01, help="0 for plain DDP")
parser.add_argument("--method", default="spardl")
parser.add_argument("--hand-over", action="store_true", help="only the momentum that waits leave")
parser.add_argument("--images", type=int, default=50_000)
arguments = parser.parse_args()


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
    return nn.Sequential(*first, *stages, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


def load(pattern: str) -> tuple[torch.Tensor, torch.Tensor]:
    rows = b"".join(path.read_bytes() for path in sorted(arguments.directory.glob(pattern)))
    if not rows or len(rows) % 3073:
        raise SystemExit(f"{arguments.directory}/{pattern}: expected files of rows of 3073 bytes")
    data = torch.frombuffer(bytearray(rows), dtype=torch.uint8).reshape(-1, 3073)
    return (data[:, 1:].reshape(-1, 3, 32, 32).float() / 255 - 0.47) / 0.25, data[:, 0].long()


dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
images, labels = (part[: arguments.images] for part in load("data_batch_*.bin"))
torch.manual_seed(0)
model = DDP(resnet20())
state = None
if arguments.density > 0:
    state = spardl.torch.register(model, method=arguments.method, density=arguments.density, dense_steps=50)
optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
if state and arguments.hand_over:
    spardl.torch.hand_over(optimiser, state)
steps = len(images) // (arguments.batch_size * size)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 0.1, total_steps=max(arguments.epochs * steps, 2))

for epoch in range(arguments.epochs):
    model.train()
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(epoch))[rank::size]
    for step in range(steps):
        rows = order[step * arguments.batch_size : (step + 1) * arguments.batch_size]
        batch = images[rows]
        if torch.rand(()) < 0.5:
            batch = batch.flip(3)
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(batch), labels[rows]).backward()
        optimiser.step()
        schedule.step()
    if rank == 0:
        print(f"epoch {epoch + 1} of {arguments.epochs}", flush=True)

model.eval()
test_images, test_labels = (part[rank::size] for part in load("test_batch.bin"))
with torch.no_grad():
    right = sum((model.module(x).argmax(1) == y).sum() for x, y in zip(test_images.split(250), test_labels.split(250)))
counts = torch.tensor([float(right), float(len(test_labels))])
dist.all_reduce(counts)
if rank == 0:
    sent = state.report()["bytes_sent_total"] if state else float("nan")
    print(f"accuracy {100 * counts[0] / counts[1]:.2f} %, {sent / 1e6:.1f} MB sent by rank 0")
if state:
    state.close()
dist.destroy_process_group()
