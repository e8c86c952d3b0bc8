"""Momentum is handed over to the residual where mass is held back, and nowhere else."""

import io
from typing import Any

import pytest
import torch
from models import batch, flat, network
from ranks import run
from torch import nn

import spardl.torch

pytestmark = pytest.mark.modern


class Held:
    """Stands for a hook: mass of the tensors in ``names`` is held back."""

    def __init__(self, dense_steps: int = 3) -> None:
        self.config = spardl.torch.Config(dense_steps=dense_steps)
        self.tensors: list[torch.Tensor] = []

    def holds_back(self, tensor: torch.Tensor) -> bool:
        return any(tensor is one for one in self.tensors)


def weights(count: int = 2) -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(7)
    return [nn.Parameter(torch.randn(5, 3, generator=generator)) for _ in range(count)]


def gradient(parameters: list[nn.Parameter], step: int) -> None:
    generator = torch.Generator().manual_seed(100 + step)
    for parameter in parameters:
        parameter.grad = torch.randn(parameter.shape, generator=generator)


def steps(optimiser: torch.optim.Optimizer, parameters: list[nn.Parameter], numbers: range) -> None:
    for number in numbers:
        gradient(parameters, number)
        optimiser.step()


SGD = {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}


@pytest.mark.parametrize("nesterov", [False, True])
def test_sgd_steps_at_the_raised_rate_without_momentum_and_drops_its_velocity(nesterov: bool) -> None:
    mine, other, state = weights(), weights(), Held()
    optimiser = torch.optim.SGD(mine, nesterov=nesterov, **SGD)
    spardl.torch.hand_over(optimiser, state, momentum=0.0)
    plain = torch.optim.SGD(other, nesterov=nesterov, **SGD)
    steps(optimiser, mine, range(3))
    steps(plain, other, range(3))
    assert all(torch.equal(a, b) for a, b in zip(mine, other)), "dense steps are those of plain SGD"
    state.tensors = list(mine)
    for number in range(3, 6):
        gradient(mine, number)
        expected = [p.detach() - 0.1 / (1 - 0.9) * (p.grad + 0.01 * p.detach()) for p in mine]
        optimiser.step()
        assert all(torch.allclose(p, e, rtol=1e-6, atol=1e-7) for p, e in zip(mine, expected))
    assert all("momentum_buffer" not in optimiser.state[p] for p in mine)
    without = torch.optim.SGD(other, lr=0.1 * ((1.0 - 0.0) * (1.0 / (1.0 - 0.9))), weight_decay=0.01)
    steps(without, other, range(3, 6))
    assert all(torch.equal(a, b) for a, b in zip(mine, other)), "sparse steps are those of SGD without momentum"


@pytest.mark.parametrize("nesterov", [False, True])
def test_elements_that_never_wait_have_all_their_momentum(nesterov: bool) -> None:
    mine, other, state = weights(), weights(), Held()
    optimiser = torch.optim.SGD(mine, nesterov=nesterov, **SGD)
    spardl.torch.hand_over(optimiser, state)
    plain = torch.optim.SGD(other, nesterov=nesterov, **SGD)
    for held, numbers in ((False, range(3)), (True, range(3, 8)), (False, range(8, 10))):
        state.tensors = list(mine) if held else []
        steps(optimiser, mine, numbers)
        steps(plain, other, numbers)
        assert all(torch.allclose(a, b, rtol=1e-5, atol=1e-6) for a, b in zip(mine, other)), numbers


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("wait", [2, 7, 60])
def test_after_a_delivery_an_element_stands_where_momentum_would_have_brought_it(nesterov: bool, wait: int) -> None:
    mine, other, state = weights(1), weights(1), Held()
    optimiser = torch.optim.SGD(mine, lr=0.01, momentum=0.9, nesterov=nesterov)
    spardl.torch.hand_over(optimiser, state)
    plain = torch.optim.SGD(other, lr=0.01, momentum=0.9, nesterov=nesterov)
    state.tensors = list(mine)
    for number in range(1, 5 * wait + 1):
        other[0].grad = torch.ones(5, 3)
        mine[0].grad = torch.full((5, 3), float(wait) if number % wait == 0 else 0.0)
        optimiser.step()
        plain.step()
    assert torch.allclose(mine[0], other[0], rtol=1e-4)


@pytest.mark.parametrize("nesterov", [False, True])
def test_the_first_whole_step_delivers_what_waited(nesterov: bool) -> None:
    mine, other, state = weights(1), weights(1), Held()
    optimiser = torch.optim.SGD(mine, lr=0.01, momentum=0.9, nesterov=nesterov)
    spardl.torch.hand_over(optimiser, state)
    plain = torch.optim.SGD(other, lr=0.01, momentum=0.9, nesterov=nesterov)
    for number in range(1, 12):
        # Nothing comes for six steps, then the sum of seven at once, then all is dense.
        state.tensors = list(mine) if number < 7 else []
        other[0].grad = torch.ones(5, 3)
        mine[0].grad = torch.full((5, 3), 0.0 if number < 7 else 7.0 if number == 7 else 1.0)
        optimiser.step()
        plain.step()
        if number >= 7:
            assert torch.allclose(mine[0], other[0], rtol=1e-4), number


def test_a_momentum_that_is_kept_has_its_own_velocity_and_rate() -> None:
    mine, state = weights(1), Held()
    optimiser = torch.optim.SGD(mine, lr=0.1, momentum=0.9)
    spardl.torch.hand_over(optimiser, state, momentum=0.5)
    steps(optimiser, mine, range(3))
    state.tensors = list(mine)
    velocity, expected = torch.zeros(5, 3), mine[0].detach().clone()
    for number in range(3, 7):
        gradient(mine, number)
        velocity = 0.5 * velocity + mine[0].grad
        expected = expected - 0.1 * (1 - 0.5) / (1 - 0.9) * velocity
        optimiser.step()
        assert torch.allclose(mine[0], expected, rtol=1e-6, atol=1e-6)


def test_dense_steps_in_between_begin_with_no_velocity() -> None:
    mine, other, state = weights(), weights(), Held()
    optimiser = torch.optim.SGD(mine, **SGD)
    spardl.torch.hand_over(optimiser, state, momentum=0.5)
    state.tensors = list(mine)
    steps(optimiser, mine, range(2))
    state.tensors = []
    with torch.no_grad():
        for a, b in zip(mine, other):
            b.copy_(a)
    plain = torch.optim.SGD(other, **SGD)
    steps(optimiser, mine, range(2, 5))
    steps(plain, other, range(2, 5))
    assert all(torch.equal(a, b) for a, b in zip(mine, other))


def test_tensors_that_are_reduced_densely_keep_their_momentum_in_the_same_group() -> None:
    mine, other, state = weights(), weights(), Held()
    optimiser = torch.optim.SGD(mine, **SGD)
    spardl.torch.hand_over(optimiser, state)
    state.tensors = [mine[0]]
    plain = torch.optim.SGD(other, **SGD)
    steps(optimiser, mine, range(5))
    steps(plain, other, range(5))
    assert torch.equal(mine[1], other[1]) and not torch.equal(mine[0], other[0])
    assert len(optimiser.param_groups) == 1 and optimiser.param_groups[0]["params"][0] is mine[0]


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW])
@pytest.mark.parametrize("amsgrad", [False, True])
def test_adam_keeps_its_second_moment_and_forgets_its_first(kind: Any, amsgrad: bool) -> None:
    options = {"lr": 0.01, "weight_decay": 0.1, "amsgrad": amsgrad}
    mine, other, state = weights(1), weights(1), Held()
    optimiser, plain = kind(mine, **options), kind(other, **options)
    spardl.torch.hand_over(optimiser, state)
    steps(optimiser, mine, range(4))
    steps(plain, other, range(4))
    assert torch.equal(mine[0], other[0]), "dense steps are those of plain Adam"
    state.tensors = list(mine)
    frozen = optimiser.state[mine[0]]["max_exp_avg_sq" if amsgrad else "exp_avg_sq"].clone()
    for number in range(4, 7):
        gradient(mine, number)
        before, update = mine[0].detach().clone(), mine[0].grad.clone()
        if kind is torch.optim.AdamW:
            before *= 1 - 0.01 * 0.1
        else:
            update += 0.1 * before
        expected = before - 0.01 * update / ((frozen / (1 - 0.999**4)).sqrt() + 1e-8)
        optimiser.step()
        assert torch.allclose(mine[0], expected, rtol=1e-5, atol=1e-7)
    kept = optimiser.state[mine[0]]
    assert torch.equal(kept["max_exp_avg_sq" if amsgrad else "exp_avg_sq"], frozen)
    assert float(kept["step"]) == 4 and not kept["exp_avg"].any()


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW])
@pytest.mark.parametrize("momentum", [None, 0.0, 0.5])
def test_a_saved_optimiser_goes_on_bit_for_bit(kind: Any, momentum: float | None) -> None:
    def make(parameters: list[nn.Parameter], state: Held) -> tuple[Any, Any]:
        optimiser = kind(parameters, **(SGD if kind is torch.optim.SGD else {"lr": 0.01}))
        schedule = torch.optim.lr_scheduler.StepLR(optimiser, 2, 0.5)
        spardl.torch.hand_over(optimiser, state, momentum)
        return optimiser, schedule

    mine, state = weights(), Held()
    optimiser, schedule = make(mine, state)
    again, later = weights(), Held()
    for number in range(9):
        state.tensors = mine[:1] if number >= 3 else []
        if number == 5:
            file = io.BytesIO()
            torch.save([optimiser.state_dict(), schedule.state_dict(), [p.detach() for p in mine]], file)
            file.seek(0)
            saved = torch.load(file, weights_only=True)
            resumed, reschedule = make(again, later)
            resumed.load_state_dict(saved[0])
            reschedule.load_state_dict(saved[1])
            with torch.no_grad():
                for parameter, values in zip(again, saved[2]):
                    parameter.copy_(values)
            later.tensors = again[:1]
        if number >= 5:
            steps(resumed, again, range(number, number + 1))
            reschedule.step()
        steps(optimiser, mine, range(number, number + 1))
        schedule.step()
    assert all(torch.equal(a, b) for a, b in zip(mine, again))


def test_schedules_see_the_rates_that_the_user_set() -> None:
    mine, state = weights(), Held()
    optimiser = torch.optim.SGD(mine, lr=0.4, momentum=0.9)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 0.4, total_steps=8)
    plain = torch.optim.SGD(weights(), lr=0.4, momentum=0.9)
    other = torch.optim.lr_scheduler.OneCycleLR(plain, 0.4, total_steps=8)
    spardl.torch.hand_over(optimiser, state, momentum=0.0)
    state.tensors = [mine[0]]
    for number in range(7):
        gradient(mine, number)
        expected = mine[0].detach() - optimiser.param_groups[0]["lr"] / (1 - optimiser.param_groups[0]["momentum"]) * mine[0].grad
        optimiser.step()
        assert torch.allclose(mine[0], expected, rtol=1e-5, atol=1e-6), "the rate and the momentum of this step count"
        schedule.step()
        plain.step()
        other.step()
        for one, two in zip(optimiser.param_groups, plain.param_groups):
            assert (one["lr"], one["momentum"]) == (two["lr"], two["momentum"])


def test_a_closure_runs_once_and_before_it_is_asked_what_is_held_back() -> None:
    mine, state = weights(1), Held()
    optimiser = torch.optim.SGD(mine, lr=0.1, momentum=0.9)
    spardl.torch.hand_over(optimiser, state, momentum=0.0)

    def closure() -> torch.Tensor:
        optimiser.zero_grad()
        loss = mine[0].pow(2).sum()
        loss.backward()
        state.tensors = list(mine)
        return loss

    before = mine[0].detach().clone()
    assert optimiser.step(closure).item() == pytest.approx(float(before.pow(2).sum()))
    assert torch.allclose(mine[0], before - 1.0 * 2 * before, rtol=1e-5, atol=1e-6)


def test_a_step_that_raises_leaves_the_groups_whole_at_the_next() -> None:
    mine, state = weights(), Held()
    optimiser = torch.optim.SGD(mine, lr=0.1, momentum=0.9)
    handed = spardl.torch.hand_over(optimiser, state)
    state.tensors = [mine[0]]
    gradient(mine, 0)
    optimiser.param_groups[0]["lr"] = -1j
    with pytest.raises(Exception, match="complex|omplex|alpha|type"):
        optimiser.step()
    handed.remove()
    assert len(optimiser.param_groups) == 1 and len(optimiser.param_groups[0]["params"]) == 2
    optimiser.param_groups[0]["lr"] = 0.1
    steps(optimiser, mine, range(1))


def test_what_cannot_be_handed_over_is_refused_with_the_reason() -> None:
    mine, state = weights(), Held(dense_steps=0)
    with pytest.raises(spardl.ConfigError, match="RMSprop has no hand-over: use SGD, Adam or AdamW"):
        spardl.torch.hand_over(torch.optim.RMSprop(mine), state)
    with pytest.raises(spardl.ConfigError, match="dense_steps must be at least 1"):
        spardl.torch.hand_over(torch.optim.AdamW(mine), state)
    with pytest.raises(spardl.ConfigError, match="expected at least 0 and below 1"):
        spardl.torch.hand_over(torch.optim.SGD(mine, lr=0.1), state, momentum=1.0)
    with pytest.raises(spardl.ConfigError, match="momentum = 1.5 is not accepted"):
        spardl.torch.hand_over(torch.optim.SGD(mine, lr=0.1, momentum=1.5), state)
    with pytest.raises(spardl.ConfigError, match="give what register, Sync or fsdp_hook returned"):
        spardl.torch.hand_over(torch.optim.SGD(mine, lr=0.1), None)  # type: ignore[arg-type]


def handed_over(rank: int, size: int) -> tuple[list[float], list[list[str]]]:
    ddp = nn.parallel.DistributedDataParallel(network())
    state = spardl.torch.register(ddp, density=0.05, dense_steps=3, banner=False)
    optimiser = torch.optim.SGD(ddp.parameters(), lr=0.05, momentum=0.9)
    spardl.torch.hand_over(optimiser, state, momentum=0.0)
    held = []
    for step in range(6):
        inputs, labels = batch(rank, step)
        optimiser.zero_grad()
        nn.functional.cross_entropy(ddp(inputs), labels).backward()
        names = [name for name, parameter in ddp.module.named_parameters() if state.holds_back(parameter)]
        before = {name: p.detach().clone() for name, p in ddp.module.named_parameters()}
        optimiser.step()
        for name, parameter in ddp.module.named_parameters():
            if name in names:
                untouched = parameter.grad == 0
                assert torch.equal(parameter[untouched], before[name][untouched]), "what is not delivered does not move"
        held.append(names)
    state.close()
    return flat(ddp), held


def test_with_ddp_the_dense_steps_and_the_small_tensors_keep_their_momentum() -> None:
    results = run(2, handed_over)
    assert results[0] == results[1]
    matrices = [name for name, parameter in network().named_parameters() if parameter.dim() > 1]
    assert results[0][1] == [[]] * 3 + [matrices] * 3
