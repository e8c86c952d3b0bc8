"""Local steps with AdamW, and a sparse exchange of what they changed every so often (in the manner of DiLoCo and SparseLoCo).

    torchrun --nproc-per-node 2 examples/python/outer_steps.py
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn

import spardl.torch

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=300)
parser.add_argument("--every", type=int, default=30)
arguments = parser.parse_args()

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(100, 300), nn.ReLU(), nn.Linear(300, 10))
outer = spardl.torch.OuterStep(model.named_parameters(), every=arguments.every, density=0.02)
optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3)

teacher = torch.randn(100, 10)
batches = torch.Generator().manual_seed(1 + rank)
for step in range(arguments.steps):
    inputs = torch.randn(32, 100, generator=batches)
    optimiser.zero_grad()
    loss = nn.functional.cross_entropy(model(inputs), (inputs @ teacher).argmax(1))
    loss.backward()
    optimiser.step()
    if outer.step() and rank == 0:
        print(f"step {step + 1}: loss {loss.item():.3f}, {outer.sync.report()['bytes_sent']:.0f} bytes sent")
outer.sync.close()
dist.destroy_process_group()
