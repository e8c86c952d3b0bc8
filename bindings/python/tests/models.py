"""Small models and data for tests."""

import torch
from torch import nn


def network(seed: int = 0, width: int = 64) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(20, width), nn.ReLU(), nn.LayerNorm(width), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 5))


class Sometimes(nn.Module):
    """Its second layer is used when asked for."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(20, 20)
        self.second = nn.Linear(20, 20)
        self.head = nn.Linear(20, 5)

    def forward(self, inputs: torch.Tensor, second: bool = True) -> torch.Tensor:
        hidden = self.first(inputs)
        return self.head(self.second(hidden) if second else hidden)


def batch(rank: int, step: int, rows: int = 8) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1000 * step + rank)
    return torch.randn(rows, 20, generator=generator), torch.randint(0, 5, (rows,), generator=generator)


def train(ddp: nn.Module, rank: int, steps: range, optimiser: torch.optim.Optimizer) -> list[list[float]]:
    """The parameters after every step, as a flat list."""
    history = []
    for step in steps:
        inputs, labels = batch(rank, step)
        optimiser.zero_grad()
        nn.functional.cross_entropy(ddp(inputs), labels).backward()
        optimiser.step()
        history.append(flat(ddp))
    return history


def flat(module: nn.Module) -> list[float]:
    return torch.cat([p.detach().reshape(-1).float() for p in module.parameters()]).tolist()
