"""The hook for DistributedDataParallel, with processes."""

from typing import Any

import pytest
import torch
from models import batch, flat, network, train
from ranks import run
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

import spardl.torch

pytestmark = pytest.mark.light


def sgd(ddp: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(ddp.parameters(), lr=0.1, momentum=0.9)


def trained(rank: int, size: int, steps: int, config: dict[str, Any], ddp_options: dict[str, Any]) -> list[list[float]]:
    ddp = DDP(network(), **ddp_options)
    spardl.torch.register(ddp, banner=False, **config)
    return train(ddp, rank, range(steps), sgd(ddp))


def dense(rank: int, size: int, steps: int) -> list[list[float]]:
    ddp = DDP(network())
    return train(ddp, rank, range(steps), sgd(ddp))


@pytest.mark.parametrize("method", ["spardl", "ok-topk", "exdyna", "spardl-bf16", "spardl-q4", "topk-a"])
def test_four_processes_have_the_same_bits_after_every_step(method: str) -> None:
    config = {"method": method, "density": 0.05, "dense_steps": 2, "bucket_mb": 0.005}
    histories = run(4, trained, 8, config, {})
    assert all(history == histories[0] for history in histories[1:])


def test_density_one_is_the_dense_result() -> None:
    sparse = run(2, trained, 6, {"density": 1.0, "dense_steps": 0}, {})[0]
    expected = run(2, dense, 6)[0]
    assert torch.allclose(torch.tensor(sparse), torch.tensor(expected), rtol=1e-4, atol=1e-6)


@pytest.mark.modern
def test_a_restart_from_a_checkpoint_goes_on_bit_for_bit() -> None:
    for histories in run(3, restarted):
        assert histories[0] == histories[1]


def restarted(rank: int, size: int) -> list[list[list[float]]]:
    """The steps after a checkpoint, in the first run and in one that starts from it."""
    import io

    config: dict[str, Any] = {"density": 0.05, "dense_steps": 1, "bucket_mb": 0.005, "banner": False}
    ddp = DDP(network(), bucket_cap_mb=1)
    state = spardl.torch.register(ddp, **config)
    optimiser = sgd(ddp)
    train(ddp, rank, range(4), optimiser)
    file = io.BytesIO()
    torch.save([ddp.state_dict(), optimiser.state_dict(), state.state_dict()], file)
    first = train(ddp, rank, range(4, 8), optimiser)

    file.seek(0)
    model, optimiser_state, saved = torch.load(file, weights_only=True)
    again = DDP(network(seed=9), bucket_cap_mb=1)
    again.load_state_dict(model)
    optimiser = sgd(again)
    optimiser.load_state_dict(optimiser_state)
    state = spardl.torch.register(again, **config)
    state.load_state_dict(saved)
    return [first, train(again, rank, range(4, 8), optimiser)]


def test_the_result_does_not_depend_on_the_buckets_of_ddp() -> None:
    config = {"density": 0.05, "dense_steps": 0, "bucket_mb": 0.01}
    one = run(2, trained, 5, config, {"bucket_cap_mb": 100})
    many = run(2, trained, 5, config, {"bucket_cap_mb": 0.001})
    static = run(2, trained, 5, config, {"static_graph": True, "bucket_cap_mb": 0.001})
    views = run(2, trained, 5, config, {"gradient_as_bucket_view": True})
    assert one == many == static == views


def test_nothing_is_lost_over_many_steps() -> None:
    received, sent, left = zip(*run(3, masses, {"density": 0.02, "dense_steps": 0, "op": "sum"}))
    assert all(torch.equal(torch.tensor(one), torch.tensor(received[0])) for one in received)
    given = sum(torch.tensor(one) for one in sent)
    assert torch.allclose(torch.tensor(received[0]) + sum(torch.tensor(one) for one in left), given, atol=1e-3)


def masses(rank: int, size: int, config: dict[str, Any]) -> tuple[list[float], list[float], list[float]]:
    """What came in, went out and is left over some steps, by element."""
    ddp = DDP(network())
    state = spardl.torch.register(ddp, banner=False, **config)
    plain = network()
    sent = torch.zeros(len(flat(ddp)))
    received = torch.zeros_like(sent)
    for step in range(6):
        inputs, labels = batch(rank, step)
        for module, total in ((plain, sent), (ddp, received)):
            module.zero_grad()
            nn.functional.cross_entropy(module(inputs), labels).backward()
            total += torch.cat([p.grad.reshape(-1) for p in module.parameters()])
    names = [name for name, _ in ddp.module.named_parameters()]
    left = torch.cat([state.residual(name).reshape(-1) for name in names])
    return received.tolist(), sent.tolist(), left.tolist()


class Branches(nn.Module):
    """A part that only some steps, or no step, use."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.used = nn.Linear(20, 5)
        self.sometimes = nn.Linear(20, 5)

    def forward(self, inputs: torch.Tensor, both: bool) -> torch.Tensor:
        out = self.used(inputs)
        return out + self.sometimes(inputs) if both else out


def unused(rank: int, size: int, to_none: bool, ddp_options: dict[str, Any]) -> tuple[float, float, list[float]]:
    ddp = DDP(Branches(), find_unused_parameters=True, **ddp_options)
    state = spardl.torch.register(ddp, density=0.05, dense_steps=0, op="sum", banner=False)
    plain = Branches()
    sent = received = 0.0
    for step in range(6):
        inputs, labels = batch(rank, step)
        both = step % 3 == 0
        plain.zero_grad(set_to_none=True)
        ddp.zero_grad(set_to_none=to_none)
        nn.functional.cross_entropy(plain(inputs, both), labels).backward()
        nn.functional.cross_entropy(ddp(inputs, both), labels).backward()
        mine, theirs = plain.sometimes.weight.grad, ddp.module.sometimes.weight.grad
        sent += float(mine.double().sum()) if mine is not None else 0.0
        received += float(theirs.double().sum()) if theirs is not None else 0.0
    return sent, received, state.residual("sometimes.weight").reshape(-1).tolist()


@pytest.mark.parametrize("to_none", [True, False])
def test_globally_unused_parameters_lose_nothing(to_none: bool) -> None:
    sent, received, left = zip(*run(3, unused, to_none, {}))
    assert received[0] == received[1] == received[2]
    total = sum(sum(one) for one in left)
    assert sum(sent) == pytest.approx(received[0] + total, abs=1e-4)


def accumulated(rank: int, size: int) -> tuple[list[float], int]:
    ddp = DDP(network())
    state = spardl.torch.register(ddp, density=1.0, dense_steps=0, banner=False)
    for step in range(3):
        inputs, labels = batch(rank, step)
        if step < 2:
            with ddp.no_sync():
                nn.functional.cross_entropy(ddp(inputs), labels).backward()
        else:
            nn.functional.cross_entropy(ddp(inputs), labels).backward()
    state.settle()
    return torch.cat([p.grad.reshape(-1) for p in ddp.parameters()]).tolist(), state.step


def test_no_sync_accumulates_and_reduces_once() -> None:
    results = run(2, accumulated)
    model, total = network(), []
    for rank in range(2):
        for step in range(3):
            inputs, labels = batch(rank, step)
            (nn.functional.cross_entropy(model(inputs), labels) / 2).backward()
    total = torch.cat([p.grad.reshape(-1) for p in model.parameters()])
    assert results[0] == results[1] and results[0][1] == 1
    assert torch.allclose(torch.tensor(results[0][0]), total, atol=1e-5)


def not_finite(rank: int, size: int, policy: str) -> dict[str, Any]:
    ddp = DDP(network(), bucket_cap_mb=0.001)
    state = spardl.torch.register(ddp, density=0.05, dense_steps=0, bucket_mb=0.005, on_non_finite=policy, banner=False)
    optimiser = sgd(ddp)
    train(ddp, rank, range(2), optimiser)
    state.settle()
    before = {name: state.residual(name).tolist() for name, _ in ddp.module.named_parameters()}
    inputs, labels = batch(rank, 2)
    weight = ddp.module[0].weight
    if rank == 1:
        weight.register_hook(lambda gradient: gradient.index_fill(0, torch.tensor([0]), float("nan")))
    optimiser.zero_grad()
    error = ""
    try:
        nn.functional.cross_entropy(ddp(inputs), labels).backward()
    except Exception as raised:  # noqa: BLE001
        error = str(raised)
    grads = None if error else torch.cat([p.grad.reshape(-1) for p in ddp.parameters()])
    steps = state.step
    after = {name: state.residual(name).tolist() for name, _ in ddp.module.named_parameters()}
    return {"same": before == after, "nan": error or bool(grads.isnan().any()), "weight": error or bool(weight.grad.isnan().all()), "steps": (steps, state.step)}


@pytest.mark.parametrize("policy", ["propagate", "skip", "raise"])
def test_nan_on_one_rank_never_enters_a_residual(policy: str) -> None:
    for result in run(2, not_finite, policy):
        if policy == "raise":
            assert "a gradient held NaN" in result["nan"]
        else:
            assert result["nan"] == (policy == "propagate") and result["weight"] == (policy == "propagate")
        if policy == "propagate":
            assert result["same"] and result["steps"] == (2, 2)


def discarded(rank: int, size: int) -> tuple[bool, int]:
    ddp = DDP(network())
    state = spardl.torch.register(ddp, density=0.05, dense_steps=0, banner=False)
    train(ddp, rank, range(2), sgd(ddp))
    saved = state.state_dict()
    inputs, labels = batch(rank, 2)
    nn.functional.cross_entropy(ddp(inputs), labels).backward()
    state.discard_step()
    now = state.state_dict()
    same = all(torch.equal(saved["residual"][name], now["residual"][name]) for name in saved["residual"])
    return same and saved["method"] == now["method"], state.step


def test_a_discarded_step_leaves_no_trace() -> None:
    assert run(2, discarded) == [(True, 2)] * 2


def small_tensors(rank: int, size: int) -> list[str]:
    ddp = DDP(network())
    state = spardl.torch.register(ddp, density=0.01, dense_steps=0, banner=False)
    train(ddp, rank, range(2), sgd(ddp))
    return sorted(state.state_dict()["residual"])


def test_biases_and_norms_are_reduced_densely() -> None:
    assert run(2, small_tensors)[0] == ["0.weight", "3.weight", "5.weight"]


def dense_bytes(rank: int, size: int, config: dict[str, Any]) -> tuple[list[float], list[float], str]:
    """Bytes of a warm-up step and of one after it, the parameters, the banner."""
    import contextlib
    import io

    sent: list[float] = []
    ddp, words = DDP(network()), io.StringIO()
    config = {"dense_steps": 1, "dense_below": 0, "on_step": lambda numbers: sent.append(numbers["bytes_sent"]), **config}
    with contextlib.redirect_stderr(words):
        spardl.torch.register(ddp, **config)
    return sent, train(ddp, rank, range(2), sgd(ddp))[-1], words.getvalue() if rank == 0 else ""


@pytest.mark.parametrize(("value_type", "share"), [("bf16", 0.5), ("q8", 0.25), ("q4", 0.125)])
def test_a_dense_sum_honours_the_value_type(value_type: str, share: float) -> None:
    results = run(2, dense_bytes, {"method": "dense", "value_type": value_type})
    (warm, short), parameters, words = results[0]
    assert short == pytest.approx(share * warm, rel=0.3) and results[1][1] == parameters
    assert words.startswith(f"spardl: dense-{value_type}, ")
    named = run(2, dense_bytes, {"method": f"dense-{value_type}"})[0]
    assert named == results[0], "as part of the name it is the same"


def test_a_schedule_of_densities_is_followed() -> None:
    numbers = run(2, scheduled)[0]
    assert numbers[0] == numbers[1] == 1.0
    assert numbers[2] == pytest.approx(0.5, abs=0.02) and numbers[3] == numbers[4] == pytest.approx(0.1, abs=0.02)


def scheduled(rank: int, size: int) -> list[float]:
    seen: list[float] = []
    ddp = DDP(network())
    spardl.torch.register(
        ddp, density=[0.5, 0.1], dense_steps=2, dense_below=0, banner=False, on_step=lambda numbers: seen.append(numbers["density"])
    )
    train(ddp, rank, range(5), sgd(ddp))
    return seen


def reported(rank: int, size: int) -> tuple[dict[str, float], str]:
    import contextlib
    import io

    words = io.StringIO()
    ddp = DDP(network())
    with contextlib.redirect_stderr(words):
        state = spardl.torch.register(ddp, density=0.01, dense_steps=3)
    train(ddp, rank, range(6), sgd(ddp))
    return state.report(), words.getvalue()


def test_the_banner_and_the_report_say_what_runs() -> None:
    (numbers, words), (_, silence) = run(2, reported)
    assert words.startswith("spardl: spardl, density 0.01, 2 ranks over gloo, at most ") and words.count("\n") == 1
    assert silence == ""
    assert 0 < numbers["bytes_sent"] < numbers["dense_bytes"] and numbers["rounds"] > 0
    assert numbers["residual_norm"] > 0 and numbers["speedup_over_dense"] > 0 and numbers["step"] == 5


class Timed:
    """A worker that cost nothing."""

    def stats(self) -> dict[str, int]:
        return {"bytes_sent": 1, "rounds": 1, "nnz": 1, "rescans": 0}


@pytest.mark.parametrize(("sparse", "said"), [(0.020, 1), (0.005, 0)])
def test_dense_that_would_be_faster_is_said_once_with_the_numbers(sparse: float, said: int) -> None:
    from spardl.torch._engine import Job
    from spardl.torch._report import Report

    report, words = Report(), []
    for step in range(60):
        worker: Any = Timed()
        job = Job("bucket 0", worker, [], step, 0.01, 1.0, 1.0, done=lambda job: None)
        job.ended = 0.010 if step < 10 else sparse
        words.append(report.note([job], elements=100, dense=step < 10, size=2, hook_seconds=0.0))
    heard = [word for word in words if word is not None]
    assert len(heard) == said and all("10.0 ms a step against 20.0 ms" in word for word in heard)
    assert report.numbers()["speedup_over_dense"] == pytest.approx(0.010 / sparse)
