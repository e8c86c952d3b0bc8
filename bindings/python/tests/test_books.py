"""Momentum before the reduction, and accounts of what came in and went out."""

import io
from typing import Any

import pytest
import torch
from models import Sometimes, batch, flat, network, train
from ranks import run, scratch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

import spardl.torch


def trained(rank: int, size: int, options: dict[str, Any], momentum: float = 0.0, steps: int = 6) -> list[float]:
    ddp = DDP(network())
    state = spardl.torch.register(ddp, banner=False, **options)
    optimiser = torch.optim.SGD(ddp.parameters(), lr=0.05, momentum=momentum)
    train(ddp, rank, range(steps), optimiser)
    state.close()
    return flat(ddp)


def test_at_density_one_momentum_before_the_reduction_is_momentum_after_it() -> None:
    before = run(2, trained, {"density": 1.0, "dense_steps": 2, "momentum_correction": 0.9})
    after = run(2, trained, {"density": 1.0, "dense_steps": 2}, 0.9)
    assert before[0] == before[1]
    assert torch.allclose(torch.tensor(before[0]), torch.tensor(after[0]), atol=1e-5)


def by_hand(rank: int, size: int, masking: bool) -> bool:
    """One tensor, followed step by step beside what Sync does."""
    value = torch.zeros(40, 5)
    config = {"density": 0.1, "dense_steps": 1, "momentum_correction": 0.5, "factor_masking": masking}
    sync = spardl.torch.Sync([("w", value)], op="sum", banner=False, **config)
    velocity, residual = torch.zeros(40, 5), torch.zeros(40, 5)
    for step in range(6):
        gradient = torch.randn(40, 5, generator=torch.Generator().manual_seed(10 * step + rank))
        value.copy_(gradient)
        velocity = 0.5 * velocity + gradient
        before = residual + velocity
        sync.start()
        sync.wait()
        residual = sync.residual("w")
        delivered = value != 0
        # What was not delivered is kept: nothing of the velocity is lost.
        assert torch.equal(residual[~delivered & (residual == before)], before[~delivered & (residual == before)])
        if masking and step > 0:
            velocity[delivered & (residual.abs() <= before.abs() / 64)] = 0
        assert torch.allclose(sync.state_dict()["velocity"]["w"], velocity, atol=1e-6), step
    return True


@pytest.mark.parametrize("masking", [False, True])
def test_the_velocity_enters_the_residual_and_stops_where_it_was_delivered(masking: bool) -> None:
    assert run(2, by_hand, masking) == [True, True]


def resumed(rank: int, size: int, directory: str) -> bool:
    config = {"density": 0.05, "dense_steps": 2, "momentum_correction": 0.9, "factor_masking": True, "banner": False}

    def start() -> tuple[DDP, spardl.torch.State, torch.optim.Optimizer]:
        ddp = DDP(network())
        return ddp, spardl.torch.register(ddp, **config), torch.optim.SGD(ddp.parameters(), lr=0.05)

    ddp, state, optimiser = start()
    train(ddp, rank, range(4), optimiser)
    file = io.BytesIO()
    torch.save([ddp.state_dict(), state.state_dict()], file)
    state.save(directory)
    file.seek(0)
    model, saved = torch.load(file, weights_only=True)
    train(ddp, rank, range(4, 8), optimiser)
    for way in ("dict", "file"):
        other, later, again = start()
        other.load_state_dict(model)
        later.load_state_dict(saved) if way == "dict" else later.load(directory)
        train(other, rank, range(4, 8), again)
        if flat(other) != flat(ddp):
            return False
    return True


def test_velocities_are_saved_and_go_on_bit_for_bit() -> None:
    assert run(2, resumed, scratch()) == [True, True]


def dropped(rank: int, size: int) -> bool:
    value = torch.zeros(30, 2)
    sync = spardl.torch.Sync([("w", value)], density=0.2, dense_steps=0, momentum_correction=0.9, banner=False)
    for step in range(3):
        value.copy_(torch.randn(30, 2, generator=torch.Generator().manual_seed(step)))
        sync.start()
        sync.wait()
    sync.settle()
    before = sync.state_dict()["velocity"]["w"]
    value.fill_(float("nan") if rank == 0 else 1.0)
    sync.start()
    assert sync.wait().startswith("skipped")
    value.fill_(1.0)
    sync.start()
    sync.wait()
    sync.discard_step()
    return torch.equal(sync.state_dict()["velocity"]["w"], before)


def test_a_step_that_is_skipped_or_taken_back_leaves_the_velocity() -> None:
    assert run(2, dropped) == [True, True]


def accounts(rank: int, size: int, method: str, options: dict[str, Any]) -> float:
    """Some steps use a layer on no rank, some on one."""
    ddp = DDP(Sometimes(), find_unused_parameters=True)
    state = spardl.torch.register(ddp, method=method, density=0.05, dense_steps=2, conservation=True, banner=False, **options)
    optimiser = torch.optim.SGD(ddp.parameters(), lr=0.05)
    for step in range(8):
        inputs, labels = batch(rank, step)
        optimiser.zero_grad()
        second = step % 3 == 0 or (step % 3 == 1 and rank == 0)
        nn.functional.cross_entropy(ddp(inputs, second), labels).backward()
        optimiser.step()
    return state.report(conservation=True)["conservation_error"]


@pytest.mark.parametrize("method", ["spardl", "spardl-bf16", "spardl-q4", "ok-topk"])
def test_nothing_is_lost_says_the_report(method: str) -> None:
    first, second, third = run(3, accounts, method, {})
    assert first == second == third and first < 1e-5


def test_a_rule_that_loses_mass_is_found_out() -> None:
    assert run(2, accounts, "spardl", {"options": {"residual": "local"}})[0] > 1e-3


def test_momentum_before_the_reduction_conserves_as_well() -> None:
    assert run(2, accounts, "spardl", {"momentum_correction": 0.9, "factor_masking": True})[0] < 1e-5


def refusals(rank: int, size: int) -> list[str]:
    words = []
    sync = spardl.torch.Sync([("w", torch.zeros(3, 3))], banner=False, momentum_correction=0.9)
    sgd = torch.optim.SGD([torch.zeros(3, requires_grad=True)], lr=0.1)
    for call in (
        lambda: sync.report(conservation=True),
        lambda: spardl.torch.Config(factor_masking=True),
        lambda: spardl.torch.Config(momentum_correction=1.0),
        lambda: spardl.torch.hand_over(sgd, sync),
    ):
        try:
            call()
        except spardl.ConfigError as error:
            words.append(str(error))
    return words


def test_what_does_not_go_together_is_refused_with_the_reason() -> None:
    words = run(1, refusals)[0]
    parts = ["pass conservation=True", "needs a momentum_correction", "at least 0 and below 1", "use one of the two"]
    assert len(words) == len(parts) and all(part in word for word, part in zip(words, parts))
