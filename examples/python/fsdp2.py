"""FSDP2 on the CPU: two ranks share the shards of a replica, replicas exchange sparse gradients.

    torchrun --nproc-per-node 4 examples/python/fsdp2.py
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import spardl.torch

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=100)
arguments = parser.parse_args()

dist.init_process_group("gloo")
rank = dist.get_rank()
both = init_device_mesh("cpu", (dist.get_world_size() // 2, 2), mesh_dim_names=("replica", "shard"))
mesh = both["shard"]  # one dimension: FSDP itself must not reduce between replicas

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(100, 300), nn.ReLU(), nn.Linear(300, 10))
for layer in (model[0], model[2]):
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
state = spardl.torch.fsdp_hook(model, both.get_group("replica"), density=0.02, dense_steps=5)
optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3)

teacher = torch.randn(100, 10)
batches = torch.Generator().manual_seed(1 + rank)
for step in range(arguments.steps):
    inputs = torch.randn(32, 100, generator=batches)
    optimiser.zero_grad()
    loss = nn.functional.cross_entropy(model(inputs), (inputs @ teacher).argmax(1))
    loss.backward()
    optimiser.step()
if rank == 0:
    print(f"loss {loss.item():.3f}")
state.close()
dist.destroy_process_group()
