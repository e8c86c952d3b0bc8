"""Tensors reduced without DDP: plain loops, outer steps, files."""

import os
from typing import Any

import pytest
import torch
import torch.distributed as dist
from models import batch, flat, network
from ranks import run, scratch
from torch import nn

import spardl.torch

pytestmark = pytest.mark.light


def tensors(rank: int, size: int, dtype: torch.dtype, staging: str) -> list[list[float]]:
    generator = torch.Generator().manual_seed(rank)
    named = [("a", torch.randn(30, 40, generator=generator).to(dtype)), ("b", torch.randn(7, generator=generator).to(dtype))]
    sync = spardl.torch.Sync(named, density=1.0, dense_steps=0, banner=False, staging=staging)
    before = [tensor.tolist() for _, tensor in named]
    sync.start()
    assert sync.wait() == "updated"
    return [before[0], [tensor.tolist() for _, tensor in named][0], named[1][1].tolist()]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("staging", ["auto", "always"])
def test_tensors_of_any_type_become_their_mean_also_through_host_memory(dtype: torch.dtype, staging: str) -> None:
    results = run(3, tensors, dtype, staging)
    mean = sum(torch.tensor(result[0]) for result in results) / 3
    tolerance = 1e-6 if dtype == torch.float32 else 2e-2
    assert all(result[1:] == results[0][1:] for result in results)
    assert torch.allclose(torch.tensor(results[0][1]), mean, atol=tolerance)


def plain(rank: int, size: int) -> tuple[list[float], float]:
    model = network()
    sync = spardl.torch.Sync(model.named_parameters(), density=0.05, dense_steps=1, banner=False)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step in range(5):
        inputs, labels = batch(rank, step)
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        sync.start()
        sync.wait()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
    return flat(model), sync.report()["bytes_sent"]


def test_a_plain_loop_with_clipping_agrees_on_all_ranks() -> None:
    results = run(2, plain)
    assert results[0][0] == results[1][0] and results[0][1] > 0


def outer(rank: int, size: int, density: float) -> tuple[list[float], list[bool], bool]:
    model = network()
    steps = spardl.torch.OuterStep(model.named_parameters(), every=3, density=density, banner=False)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3)
    exchanged = []
    saved: dict[str, Any] = {}
    for step in range(9):
        inputs, labels = batch(rank, step)
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimiser.step()
        exchanged.append(steps.step())
        if step == 5:
            saved = steps.state_dict()
    other = spardl.torch.OuterStep(network().named_parameters(), every=3, density=density, banner=False)
    other.load_state_dict(saved)
    same = all(torch.equal(a, b) for a, b in zip(saved["anchor"].values(), other._anchor.values()))
    return flat(model), exchanged, same


def test_outer_steps_bring_ranks_together_again() -> None:
    results = run(2, outer, 0.1)
    assert results[0][0] == results[1][0] and results[0][2]
    assert results[0][1] == [False, False, True] * 3


def test_an_outer_step_at_density_one_and_rate_one_is_the_mean_of_the_parameters() -> None:
    results = run(2, averaged)
    mean = (torch.tensor(results[0][0]) + torch.tensor(results[1][0])) / 2
    assert torch.allclose(torch.tensor(results[0][1]), mean, atol=1e-6) and results[0][1] == results[1][1]


def averaged(rank: int, size: int) -> tuple[list[float], list[float]]:
    model = network()
    steps = spardl.torch.OuterStep(model.named_parameters(), lr=1.0, momentum=0.0, density=1.0, banner=False)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += torch.randn(parameter.shape, generator=torch.Generator().manual_seed(rank))
    before = flat(model)
    steps.exchange()
    return before, flat(model)


def outer_restarted(rank: int, size: int) -> bool:
    """Saved between two exchanges: what follows must have the same bits."""
    import copy

    def start(model: nn.Module) -> tuple[Any, torch.optim.Optimizer]:
        steps = spardl.torch.OuterStep(model.named_parameters(), every=3, density=0.1, banner=False)
        return steps, torch.optim.AdamW(model.parameters(), lr=1e-3)

    def train(model: nn.Module, steps: Any, optimiser: torch.optim.Optimizer, numbers: range) -> list[float]:
        for step in numbers:
            inputs, labels = batch(rank, step)
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(inputs), labels).backward()
            optimiser.step()
            steps.step()
        return flat(model)

    model, again = network(), network(seed=5)
    steps, optimiser = start(model)
    train(model, steps, optimiser, range(7))
    saved = copy.deepcopy([model.state_dict(), optimiser.state_dict(), steps.state_dict()])
    other, optimiser_again = start(again)
    again.load_state_dict(saved[0])
    optimiser_again.load_state_dict(saved[1])
    other.load_state_dict(saved[2])
    return train(model, steps, optimiser, range(7, 13)) == train(again, other, optimiser_again, range(7, 13))


def test_outer_steps_go_on_bit_for_bit() -> None:
    assert run(2, outer_restarted) == [True, True]


def without_sync(rank: int, size: int) -> tuple[list[float], list[float]]:
    """DDP accumulates on each rank, Sync reduces."""
    from torch.nn.parallel import DistributedDataParallel as DDP

    ddp, plain = DDP(network()), network()
    sync = spardl.torch.Sync(ddp.module.named_parameters(), density=1.0, dense_steps=0, op="sum", banner=False)
    for step in range(3):
        inputs, labels = batch(rank, step)
        with ddp.no_sync():
            nn.functional.cross_entropy(ddp(inputs), labels).backward()
        for other in range(size):
            inputs, labels = batch(other, step)
            nn.functional.cross_entropy(plain(inputs), labels).backward()
    sync.start()
    sync.wait()
    return gradients(ddp), gradients(plain)


def gradients(module: nn.Module) -> list[float]:
    return torch.cat([p.grad.reshape(-1) for p in module.parameters()]).tolist()


def test_gradients_that_ddp_accumulates_are_reduced_at_once() -> None:
    results = run(2, without_sync)
    assert results[0][0] == results[1][0]
    assert torch.allclose(torch.tensor(results[0][0]), torch.tensor(results[0][1]), atol=1e-5)


def forgotten(rank: int, size: int) -> tuple[int, int]:
    import gc
    import threading
    import time

    def threads() -> int:
        return sum(thread.name == "spardl" for thread in threading.enumerate())

    sync = spardl.torch.Sync([("w", torch.ones(30, 30))], density=0.1, dense_steps=0, banner=False)
    sync.start()
    sync.wait()
    before, started = threads(), time.monotonic()
    del sync
    # The thread itself may be the last to hold the session.
    while threads() and time.monotonic() < started + 30:
        gc.collect()
        time.sleep(0.01)
    return before, threads()


def test_a_session_that_is_forgotten_ends_its_thread() -> None:
    assert run(2, forgotten) == [(1, 0)] * 2


def small(rank: int, size: int) -> float:
    value = torch.zeros(7, 7)
    sync = spardl.torch.Sync([("w", value)], method="topk-a", density=0.01, dense_steps=0, banner=False)
    value.copy_(torch.arange(49.0).reshape(7, 7))
    sync.start()
    sync.wait()
    return float(value.max())


def test_a_tensor_of_few_elements_is_delivered_too() -> None:
    assert run(2, small) == [48.0, 48.0]


def saving(rank: int, size: int, directory: str) -> dict[str, list[float]]:
    sync = spardl.torch.Sync(made(rank).items(), density=0.05, dense_steps=0, dense_below=0, banner=False)
    for _ in range(2):
        sync.start(made(rank))
        sync.wait()
    sync.save(directory)
    return {name: sync.residual(name).reshape(-1).tolist() for name in made(rank)}


def made(rank: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(rank)
    return {"a": torch.randn(20, 10, generator=generator), "b": torch.randn(33, generator=generator)}


def loading(rank: int, size: int, directory: str) -> tuple[dict[str, list[float]], int]:
    sync = spardl.torch.Sync(made(rank).items(), density=0.05, dense_steps=0, dense_below=0, banner=False)
    sync.load(directory)
    return {name: sync.residual(name).reshape(-1).tolist() for name in made(rank)}, sync.step


def test_files_are_loaded_by_the_same_and_by_another_number_of_ranks() -> None:
    directory = scratch()
    saved = run(4, saving, directory)
    assert sorted(os.listdir(directory))[0] == "spardl-rank00000-of-00004.safetensors"
    for mine, (loaded, step) in zip(saved, run(4, loading, directory)):
        assert mine == loaded and step == 2
    for rank, (loaded, _) in enumerate(run(2, loading, directory)):
        for name in ("a", "b"):
            expected = torch.tensor(saved[rank][name]) + torch.tensor(saved[rank + 2][name])
            assert torch.equal(torch.tensor(loaded[name]), expected)


def other_method(rank: int, size: int, saved: dict[str, Any], loading: dict[str, Any]) -> tuple[bool, str, int]:
    import contextlib
    import io

    words, config = io.StringIO(), {"density": 0.05, "dense_steps": 0, "dense_below": 0}
    one = spardl.torch.Sync(made(rank).items(), **config, **saved, banner=False)
    for _ in range(2):
        one.start(made(rank))
        one.wait()
    state = one.state_dict()
    with contextlib.redirect_stderr(words):
        other = spardl.torch.Sync(made(rank).items(), **config, **loading)
        other.load_state_dict(state)
    same = all(torch.equal(other.residual(name), residual) for name, residual in state["residual"].items())
    other.start(made(rank))
    assert other.wait() == "updated"
    other.settle()
    return same, words.getvalue().splitlines()[-1] if rank == 0 else "", other.step


@pytest.mark.parametrize(
    ("saved", "words"),
    [
        ({"method": "ok-topk", "value_type": "bf16"}, "is of ok-topk-bf16: its residuals go on"),
        ({"method": "spardl", "options": {"teams": 2}}, "is of spardl teams=2: its residuals go on"),
    ],
)
def test_residuals_go_on_under_another_method_and_it_is_said(saved: dict[str, Any], words: str) -> None:
    results = run(2, other_method, saved, {"method": "exdyna"})
    assert [(same, step) for same, _, step in results] == [(True, 3)] * 2 and words in results[0][1]


def refused_state(rank: int, size: int) -> tuple[list[str], bool]:
    sync = spardl.torch.Sync(made(rank).items(), density=0.05, dense_steps=0, dense_below=0, banner=False)
    sync.start(made(rank))
    sync.wait()
    before = sync.state_dict()
    words = []
    wrong = {**before, "residual": {**before["residual"], "b": torch.zeros(2)}}
    worse = {**before, "residual": {name: kept / 0 for name, kept in before["residual"].items()}}
    for state in (wrong, worse):
        try:
            sync.load_state_dict(state)
        except spardl.ConfigError as error:
            words.append(str(error))
    return words, all(torch.equal(sync.residual(name), kept) for name, kept in before["residual"].items())


def test_a_state_that_does_not_fit_is_refused_and_changes_nothing() -> None:
    for words, unchanged in run(2, refused_state):
        assert unchanged and len(words) == 2 and "the saved state holds back what is not a number of '" in words[1]
        assert "'b' has shape (2,) in the saved state, expected (33,)" in words[0]


def densely(rank: int, size: int) -> tuple[list[bool], bool]:
    """What spardl held back, under a dense method: every element goes out with the first step that is not skipped."""
    sync = spardl.torch.Sync(made(rank).items(), density=0.05, dense_steps=0, dense_below=0, banner=False)
    sync.start(made(rank))
    sync.wait()
    saved = sync.state_dict()
    config = {"method": "dense", "op": "sum", "on_non_finite": "skip", "conservation": True}
    dense = spardl.torch.Sync(made(rank).items(), **config, dense_steps=0, banner=False)
    dense.load_state_dict(saved)
    held = [torch.equal(dense.residual(name), kept) for name, kept in saved["residual"].items()]
    bad = {name: tensor / 0 for name, tensor in made(rank).items()}
    dense.start(bad)
    dense.wait()
    held += [torch.equal(dense.residual(name), kept) for name, kept in dense.state_dict()["residual"].items()]
    nothing = {name: torch.zeros_like(tensor) for name, tensor in made(rank).items()}
    dense.start(nothing)
    dense.wait()
    for name, got in nothing.items():
        # The sum of what all ranks held back.
        dist.all_reduce(saved["residual"][name])
        held.append(torch.allclose(got, saved["residual"][name], rtol=1e-6))
    held.append(dense.report(conservation=True)["conservation_error"] < 1e-6)
    return held, any(bool(dense.residual(name).any()) for name in nothing)


def test_what_was_held_back_goes_out_at_once_under_a_dense_method() -> None:
    for held, left in run(2, densely):
        assert len(held) > 6 and all(held) and not left


def test_a_damaged_file_is_refused_in_words(tmp_path: Any) -> None:
    from spardl.torch import _files

    path = tmp_path / "spardl-rank00000-of-00001.safetensors"
    for content in (b"", b"\xff" * 40, b"\x02\0\0\0\0\0\0\0{}"):
        path.write_bytes(content)
        with pytest.raises(spardl.ConfigError, match="is damaged"):
            _files.load(str(tmp_path), 0, 1)
    (tmp_path / "empty").mkdir()
    with pytest.raises(spardl.ConfigError, match="expected every rank of one run"):
        _files.load(str(tmp_path / "empty"), 0, 2)


def missing(rank: int, size: int) -> tuple[float, float, float]:
    """A gradient that is missing everywhere in some steps."""
    model = nn.Linear(40, 40, bias=False)
    sync = spardl.torch.Sync(model.named_parameters(), density=0.05, dense_steps=0, op="sum", banner=False)
    sent = received = 0.0
    for step in range(5):
        model.weight.grad = None
        if step != 3:
            model.weight.grad = torch.randn(40, 40, generator=torch.Generator().manual_seed(step * 7 + rank))
            sent += float(model.weight.grad.double().sum())
        sync.start()
        sync.wait()
        received += float(model.weight.grad.double().sum()) if step != 3 else 0.0
    return sent, received, float(sync.residual("weight").double().sum())


def test_what_is_delivered_for_a_missing_gradient_is_given_back() -> None:
    sent, received, left = zip(*run(2, missing))
    assert sum(sent) == pytest.approx(received[0] + sum(left), abs=1e-3)


def channels_last(rank: int, size: int) -> tuple[list[float], list[float]]:
    generator = torch.Generator().manual_seed(rank)
    plain = torch.randn(4, 3, 5, 5, generator=generator)
    striped = plain.clone().to(memory_format=torch.channels_last)
    one = spardl.torch.Sync([("x", striped.clone(memory_format=torch.preserve_format))], density=0.1, dense_steps=0, banner=False)
    one.start({"x": striped})
    one.wait()
    residual = one.residual("x")
    total = striped + residual
    return total.reshape(-1).tolist(), plain.reshape(-1).tolist()


def test_channels_last_is_kept_in_its_logical_order() -> None:
    (total, given), = run(1, channels_last)
    assert torch.allclose(torch.tensor(total), torch.tensor(given), atol=1e-6)
