"""Plain DistributedDataParallel with one more line.

    torchrun --nproc-per-node 2 examples/python/ddp.py
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

import spardl.torch

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--checkpoint", help="a directory to save the state of the hook to")
arguments = parser.parse_args()

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = DDP(nn.Sequential(nn.Linear(100, 300), nn.ReLU(), nn.Linear(300, 10)))
state = spardl.torch.register(model, density=0.01)  # the one line
optimiser = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

teacher = torch.randn(100, 10)
batches = torch.Generator().manual_seed(1 + rank)
for step in range(arguments.steps):
    inputs = torch.randn(32, 100, generator=batches)
    optimiser.zero_grad()
    loss = nn.functional.cross_entropy(model(inputs), (inputs @ teacher).argmax(1))
    loss.backward()
    optimiser.step()
    if rank == 0 and step % 50 == 0:
        print(f"step {step}: loss {loss.item():.3f}")

if arguments.checkpoint:
    state.save(arguments.checkpoint)
report = state.report()
if rank == 0:
    print(f"loss {loss.item():.3f}; {report['bytes_sent']:.0f} bytes sent in the last step, dense {report['dense_bytes']:.0f}")
state.close()
dist.destroy_process_group()
