"""FSDP2 on the CPU: shards inside a replica, sparse exchange between replicas."""

import torch
from models import batch, network
from ranks import run
from torch import nn

import spardl.torch


def sharded(rank: int, size: int, density: float) -> tuple[list[list[float]], bool]:
    """Two replicas of two shards each; the gradients of the whole model and whether the residual is there."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    both = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replica", "shard"))
    mesh = both["shard"]
    model = network()
    for layer in (model[0], model[3]):
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    state = spardl.torch.fsdp_hook(model, both.get_group("replica"), density=density, dense_steps=0)
    for step in range(3):
        model.zero_grad()
        inputs, labels = batch(rank, step)
        nn.functional.cross_entropy(model(inputs), labels).backward()
    saved = state.state_dict()
    state.settle()
    return [p.grad.full_tensor().reshape(-1).tolist() for p in model.parameters()], any(
        bool(r.any()) for one in saved.values() for r in one["residual"].values()
    )


def test_replicas_agree_and_density_one_is_the_mean_over_all_ranks() -> None:
    results = run(4, sharded, 1.0)
    assert all(result[0] == results[0][0] for result in results)
    model = network()
    for rank in range(4):
        inputs, labels = batch(rank, 2)
        (nn.functional.cross_entropy(model(inputs), labels) / 4).backward()
    for got, parameter in zip(results[0][0], model.parameters()):
        assert torch.allclose(torch.tensor(got), parameter.grad.reshape(-1), atol=1e-5)


def test_sparse_replicas_agree_and_keep_what_is_left() -> None:
    results = run(4, sharded, 0.05)
    assert all(result[0] == results[0][0] for result in results) and all(result[1] for result in results)


def test_a_model_without_shards_is_refused() -> None:
    import pytest

    with pytest.raises(spardl.ConfigError, match="call fully_shard first"):
        spardl.torch.fsdp_hook(network(), None)
