"""FSDP2 on the CPU: shards inside a replica, sparse exchange between replicas."""

from typing import Any

import pytest
import torch
from models import batch, network
from ranks import run
from torch import nn

import spardl.torch


def shard(model: nn.Module, parts: list[nn.Module], **config: Any) -> spardl.torch.FsdpState:
    """Two replicas of two shards each."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    both = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replica", "shard"))
    for part in (*parts, model):
        fully_shard(part, mesh=both["shard"])
    return spardl.torch.fsdp_hook(model, both.get_group("replica"), dense_steps=0, **config)


def sharded(rank: int, size: int, density: float) -> tuple[list[list[float]], bool]:
    """The gradients of the whole model and whether the residual is there."""
    model = network()
    state = shard(model, [model[0], model[3]], density=density)
    for step in range(3):
        model.zero_grad()
        inputs, labels = batch(rank, step)
        nn.functional.cross_entropy(model(inputs), labels).backward()
    assert all(state.holds_back(p) == (density < 1) for p in model.parameters())
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


def restarted(rank: int, size: int) -> tuple[bool, bool, str]:
    """The gradients after a checkpoint, in the first run and in one that loads it before its first step."""
    import copy

    def train(model: nn.Module, steps: range) -> list[list[float]]:
        for step in steps:
            model.zero_grad()
            inputs, labels = batch(rank, step)
            nn.functional.cross_entropy(model(inputs), labels).backward()
        return [p.grad.full_tensor().reshape(-1).tolist() for p in model.parameters()]

    model, again = network(), network()
    state = shard(model, [model[0], model[3]], density=0.05)
    train(model, range(3))
    saved = copy.deepcopy(state.state_dict())
    other = shard(again, [again[0], again[3]], density=0.05)
    other.load_state_dict(saved)
    kept = other.state_dict().keys() == saved.keys()
    same = train(model, range(3, 6)) == train(again, range(3, 6))
    assert set(other.report()) == set(saved) and other.report()["0"]["step"] == 5
    try:
        other.load_state_dict({})
    except spardl.ConfigError as error:
        return kept, same, str(error)
    return kept, same, "accepted"


def test_a_restart_goes_on_bit_for_bit_and_forgets_nothing_before_its_first_step() -> None:
    for kept, same, words in run(4, restarted):
        assert kept and same and "has nothing of the FSDP module '" in words


def test_a_model_without_shards_is_refused() -> None:
    with pytest.raises(spardl.ConfigError, match="call fully_shard first"):
        spardl.torch.fsdp_hook(network(), None)


def test_a_method_that_every_module_would_choose_for_itself_is_refused() -> None:
    with pytest.raises(spardl.ConfigError, match="anew for every FSDP module"):
        spardl.torch.fsdp_hook(network(), None, method="auto")


def accumulated(rank: int, size: int) -> tuple[list[int], list[list[float]]]:
    model = network()
    state = shard(model, [model[0]], density=1.0)
    for step in range(3):
        model.set_requires_gradient_sync(step == 2)
        inputs, labels = batch(rank, step)
        nn.functional.cross_entropy(model(inputs), labels).backward()
    state.settle()
    return [sync.step for sync in state.syncs.values()], [p.grad.full_tensor().reshape(-1).tolist() for p in model.parameters()]


def test_accumulated_gradients_are_exchanged_once() -> None:
    results = run(4, accumulated)
    assert all(result == results[0] for result in results) and results[0][0] == [1, 1]
    model = network()
    for rank in range(4):
        for step in range(3):
            inputs, labels = batch(rank, step)
            (nn.functional.cross_entropy(model(inputs), labels) / 4).backward()
    for got, parameter in zip(results[0][1], model.parameters()):
        assert torch.allclose(torch.tensor(got), parameter.grad.reshape(-1), atol=1e-5)


class Branches(nn.Module):
    """The second branch is used in the first step only."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(20, 5), nn.Linear(20, 5)

    def forward(self, inputs: torch.Tensor, both: bool) -> torch.Tensor:
        return self.first(inputs) + (self.second(inputs) if both else 0)


def shortened(rank: int, size: int) -> str:
    model = Branches()
    shard(model, [], density=0.1, timeout=20.0)
    inputs, labels = batch(rank, 0)
    for both in (True, False):
        try:
            nn.functional.cross_entropy(model(inputs, both), labels).backward()
        except Exception as error:
            return str(error)
        model.zero_grad(set_to_none=True)
    return "no error"


def test_a_shard_that_changes_its_length_is_refused_with_the_reason() -> None:
    for text in run(4, shortened):
        assert "all its parameters must have gradients in every step" in text
