"""Hugging Face Accelerate: register the hook after ``prepare``.

    accelerate launch --cpu --num_processes 2 examples/python/accelerate_loop.py
"""

import argparse

import torch
from accelerate import Accelerator
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

import spardl.torch

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=100)
arguments = parser.parse_args()

accelerator = Accelerator(cpu=True)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(100, 300), nn.ReLU(), nn.Linear(300, 10))
model, optimiser = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-3))
assert isinstance(model, DDP), "start it with more than one process"
state = spardl.torch.register(model, density=0.01)

batches = torch.Generator().manual_seed(accelerator.process_index)
for step in range(arguments.steps):
    inputs = torch.randn(32, 100, generator=batches)
    loss = nn.functional.cross_entropy(model(inputs), inputs[:, :10].argmax(1))
    optimiser.zero_grad()
    accelerator.backward(loss)
    accelerator.clip_grad_norm_(model.parameters(), 1.0)
    optimiser.step()
accelerator.print(f"loss {loss.item():.3f}, {state.report()['bytes_sent']:.0f} bytes sent in the last step")
state.close()
accelerator.end_training()
