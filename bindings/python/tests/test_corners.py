"""The corners of DDP where hooks tend to fail."""

import os
import subprocess
import sys
import textwrap
import warnings
from typing import Any

import pytest
import torch
import torch.distributed as dist
from models import Sometimes, batch, flat, network, train
from ranks import run
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

import spardl.torch


def loss(module: nn.Module, rank: int, step: int) -> torch.Tensor:
    inputs, labels = batch(rank, step)
    return nn.functional.cross_entropy(module(inputs).float(), labels)


def gradients(module: nn.Module) -> torch.Tensor:
    return torch.cat([p.grad.detach().reshape(-1).float() for p in module.parameters()])


def scaled(rank: int, size: int) -> dict[str, Any]:
    """A loss scale that overflows at first: steps are skipped until it is low enough."""
    ddp = DDP(network())
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127, growth_interval=1000)
    state = spardl.torch.register(ddp, density=0.05, dense_steps=0, scaler=scaler, banner=False)
    optimiser = torch.optim.SGD(ddp.parameters(), lr=1e-3)
    skipped, untouched, scales = 0, True, []
    for step in range(20):
        before, kept, scale = flat(ddp), state.report()["residual_norm"], scaler.get_scale()
        optimiser.zero_grad()
        scaler.scale(100 * loss(ddp, rank, step)).backward()
        scaler.step(optimiser)
        scaler.update()
        scales.append(scaler.get_scale())
        if scaler.get_scale() < scale:
            state.settle()
            skipped += 1
            untouched &= flat(ddp) == before and state.report()["residual_norm"] == kept
    return {"skipped": skipped, "untouched": untouched, "steps": state.step, "flat": flat(ddp), "scales": scales}


def test_a_step_that_the_scaler_skips_leaves_parameters_and_residuals_and_lowers_the_scale() -> None:
    first, second = run(2, scaled)
    assert first == second
    assert first["skipped"] > 0 and first["untouched"] and first["steps"] + first["skipped"] in (20, 19)


def scale_changes(rank: int, size: int, scales: list[float]) -> list[float]:
    """Residuals are kept unscaled: the sequence of scales must not matter."""
    ddp = DDP(network())
    scaler = torch.amp.GradScaler("cpu", init_scale=1.0)
    spardl.torch.register(ddp, density=0.05, dense_steps=0, scaler=scaler, banner=False)
    optimiser = torch.optim.SGD(ddp.parameters(), lr=0.1)
    for step, scale in enumerate(scales):
        optimiser.zero_grad()
        scaler.scale(loss(ddp, rank, step)).backward()
        scaler.step(optimiser)
        scaler.update(scale)
    return flat(ddp)


def test_a_changing_loss_scale_changes_nothing() -> None:
    one = run(2, scale_changes, [1.0] * 5)
    other = run(2, scale_changes, [1.0, 4.0, 0.5, 1024.0, 2.0])
    assert one == other


def half(rank: int, size: int, dtype: torch.dtype) -> list[float]:
    ddp = DDP(network().to(dtype))
    spardl.torch.register(ddp, density=1.0, dense_steps=0, banner=False)
    inputs, labels = batch(rank, 0)
    nn.functional.cross_entropy(ddp(inputs.to(dtype)).float(), labels).backward()
    assert all(p.grad.dtype == dtype for p in ddp.parameters())
    return gradients(ddp).tolist()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_gradients_in_half_precision_become_their_mean(dtype: torch.dtype) -> None:
    first, second = run(2, half, dtype)
    model, parts = network().to(dtype), []
    for rank in range(2):
        model.zero_grad()
        inputs, labels = batch(rank, 0)
        nn.functional.cross_entropy(model(inputs.to(dtype)).float(), labels).backward()
        parts.append(gradients(model))
    assert first == second
    assert torch.allclose(torch.tensor(first), (parts[0] + parts[1]) / 2, atol=1e-2)


def joined(rank: int, size: int) -> list[float]:
    """Ranks with unequal numbers of batches."""
    ddp = DDP(network())
    spardl.torch.register(ddp, density=0.1, dense_steps=1, banner=False)
    optimiser = torch.optim.SGD(ddp.parameters(), lr=0.1)
    with ddp.join():
        for step in range(3 + rank):
            optimiser.zero_grad()
            loss(ddp, rank, step).backward()
            optimiser.step()
    return flat(ddp)


def test_ranks_with_fewer_batches_join() -> None:
    first, second = run(2, joined)
    assert first == second


def twice(rank: int, size: int) -> tuple[int, list[float]]:
    """Two backward passes for one forward pass."""
    ddp = DDP(network())
    state = spardl.torch.register(ddp, density=0.1, dense_steps=0, banner=False)
    value = loss(ddp, rank, 0)
    value.backward(retain_graph=True)
    ddp.zero_grad()
    loss(ddp, rank, 1).backward()
    state.settle()
    return state.step, gradients(ddp).tolist()


def test_every_backward_pass_is_a_step() -> None:
    first, second = run(2, twice)
    assert first == second and first[0] == 2


def uneven(rank: int, size: int, options: dict[str, Any]) -> list[float]:
    """A part that rank 0 never uses, and that nobody uses in some steps."""
    ddp = DDP(Sometimes(), find_unused_parameters=True, bucket_cap_mb=0.001, **options)
    spardl.torch.register(ddp, density=0.1, dense_steps=0, bucket_mb=100, banner=False)
    optimiser = torch.optim.SGD(ddp.parameters(), lr=0.1)
    for step in range(6):
        inputs, labels = batch(rank, step)
        optimiser.zero_grad()
        nn.functional.cross_entropy(ddp(inputs, rank == 1 and step % 2 == 0), labels).backward()
        optimiser.step()
    return flat(ddp)


@pytest.mark.parametrize("options", [{}, {"skip_all_reduce_unused_params": True}, {"gradient_as_bucket_view": True}])
def test_parameters_that_only_some_ranks_use_and_buckets_that_are_left_out(options: dict[str, Any]) -> None:
    first, second = run(2, uneven, options, limit=60)
    assert first == second


class Checkpointed(nn.Module):
    """Backward runs its layers in backward passes of their own, one inside another."""

    def __init__(self, reentrant: bool | None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Linear(20, 20) for _ in range(4))
        self.head = nn.Linear(20, 5)
        self.reentrant = reentrant

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        from torch.utils.checkpoint import checkpoint

        hidden = inputs.requires_grad_()
        for layer in self.layers:
            if self.reentrant is None:
                hidden = layer(hidden).tanh()
            else:
                hidden = checkpoint(lambda x, layer=layer: layer(x).tanh(), hidden, use_reentrant=self.reentrant)
        return self.head(hidden)


def checkpointed(rank: int, size: int, reentrant: bool | None, options: dict[str, Any]) -> tuple[list[float], int, int]:
    ddp, noted = DDP(Checkpointed(reentrant), bucket_cap_mb=0.001, **options), []
    state = spardl.torch.register(ddp, density=0.1, dense_steps=1, bucket_mb=0.004, banner=False, on_step=noted.append)
    history = train(ddp, rank, range(4), torch.optim.SGD(ddp.parameters(), lr=0.1))
    state.settle()
    return history[-1], state.step, len(noted)


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("options", [{}, {"static_graph": True}, {"gradient_as_bucket_view": True}])
def test_layers_that_are_computed_again_in_backward_are_one_step(reentrant: bool, options: dict[str, Any]) -> None:
    first, second = run(2, checkpointed, reentrant, options)
    assert first == second == run(2, checkpointed, None, {})[0]
    assert first[1:] == (4, 4)


def tied(rank: int, size: int) -> list[float]:
    """Two layers with one weight."""
    model = network()
    model[3].weight = nn.Parameter(torch.eye(64))
    model.append(nn.Linear(5, 64))
    model.append(nn.Linear(64, 64))
    model[-1].weight = model[3].weight
    ddp = DDP(model)
    spardl.torch.register(ddp, density=0.1, dense_steps=1, banner=False)
    return train(ddp, rank, range(4), torch.optim.SGD(ddp.parameters(), lr=0.1))[-1]


def test_weights_that_two_layers_share_have_the_same_bits_on_all_ranks() -> None:
    first, second = run(2, tied)
    assert first == second


def two_models(rank: int, size: int) -> tuple[list[float], list[float]]:
    """Each has its own state; their backward passes take turns."""
    first, second = DDP(network(1)), DDP(network(2))
    for ddp in (first, second):
        spardl.torch.register(ddp, density=0.1, dense_steps=1, banner=False)
    optimisers = [torch.optim.SGD(ddp.parameters(), lr=0.1) for ddp in (first, second)]
    for step in range(4):
        for ddp, optimiser in zip((first, second), optimisers):
            train(ddp, rank, range(step, step + 1), optimiser)
    return flat(first), flat(second)


def one_model(rank: int, size: int, seed: int) -> list[float]:
    ddp = DDP(network(seed))
    spardl.torch.register(ddp, density=0.1, dense_steps=1, banner=False)
    return train(ddp, rank, range(4), torch.optim.SGD(ddp.parameters(), lr=0.1))[-1]


def test_two_models_of_one_process_do_not_disturb_each_other() -> None:
    alone = tuple(run(2, one_model, seed)[0] for seed in (1, 2))
    assert run(2, two_models) == [alone, alone]


def compiled(rank: int, size: int, backend: str) -> list[float]:
    ddp = DDP(network())
    spardl.torch.register(ddp, density=0.1, dense_steps=1, banner=False)
    fast = torch.compile(ddp, backend=backend)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return train(fast, rank, range(3), torch.optim.SGD(ddp.parameters(), lr=0.1))[-1]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_compiled_model_trains(backend: str) -> None:
    first, second = run(2, compiled, backend)
    assert first == second


def images(rank: int, size: int, last: bool) -> list[float]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.Flatten(), nn.Linear(8 * 16, 5))
    if last:
        model = model.to(memory_format=torch.channels_last)
    ddp = DDP(model)
    state = spardl.torch.register(ddp, density=0.2, dense_steps=0, op="sum", banner=False)
    inputs = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(rank))
    ddp(inputs).square().sum().backward()
    total = ddp.module[0].weight.grad + state.residual("0.weight")
    return total.reshape(-1).tolist()


def test_channels_last_models_keep_their_residuals_in_logical_order() -> None:
    (plain,), (striped,) = run(1, images, False), run(1, images, True)
    assert torch.allclose(torch.tensor(plain), torch.tensor(striped), atol=1e-3)


def detailed(rank: int, size: int) -> list[float]:
    ddp = DDP(network())
    spardl.torch.register(ddp, density=0.1, dense_steps=1, banner=False, staging="always")
    return train(ddp, rank, range(3), torch.optim.SGD(ddp.parameters(), lr=0.1))[-1]


def test_the_debug_wrapper_and_staging_through_host_memory_give_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = run(2, detailed)
    monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", "DETAIL")
    assert run(2, detailed_debug) == plain


def detailed_debug(rank: int, size: int) -> list[float]:
    os.environ["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL"
    dist.set_debug_level_from_env()
    return detailed(rank, size)


def refused(rank: int, size: int) -> list[str]:
    words = []

    def attempt(ddp: DDP) -> None:
        try:
            spardl.torch.register(ddp, banner=False)
        except spardl.ConfigError as error:
            words.append(str(error))

    from torch.distributed.optim import _apply_optimizer_in_backward

    mixed = DDP(network())
    mixed.mixed_precision = object()  # making one needs a device
    attempt(mixed)
    model = network()
    _apply_optimizer_in_backward(torch.optim.SGD, model.parameters(), {"lr": 0.1})
    attempt(DDP(model))
    with torch._dynamo.config.patch(optimize_ddp="python_reducer"):
        attempt(DDP(network()))
    return words


def test_what_bypasses_hooks_is_refused_with_the_reason() -> None:
    words = run(1, refused)[0]
    assert len(words) == 3
    for word, part in zip(words, ["takes DDP's only hook", "runs inside backward", "python_reducer"]):
        assert part in word


def forked(rank: int, size: int) -> int:
    from torch.utils.data import DataLoader, TensorDataset

    ddp = DDP(network())
    spardl.torch.register(ddp, density=0.1, dense_steps=0, banner=False)
    data = TensorDataset(torch.randn(16, 20), torch.randint(0, 5, (16,)))
    seen = 0
    for _ in range(2):
        for inputs, labels in DataLoader(data, batch_size=8, num_workers=2):
            nn.functional.cross_entropy(ddp(inputs), labels).backward()
            seen += len(inputs)
    return seen


def test_loaders_that_fork_do_no_harm() -> None:
    assert run(2, forked) == [32, 32]


def test_importing_needs_neither_torch_nor_numpy_and_starts_no_thread() -> None:
    code = """
        import sys, threading
        sys.modules["torch"] = sys.modules["numpy"] = None
        import spardl
        assert threading.active_count() == 1 and len(spardl.methods()) > 10
    """
    subprocess.run([sys.executable, "-W", "error", "-c", textwrap.dedent(code)], check=True, timeout=60)


def test_a_script_ends_by_itself_with_a_group_that_nobody_closed() -> None:
    code = """
        import os, torch, torch.distributed as dist, spardl.torch
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
        dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
        ddp = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 3))
        state = spardl.torch.register(ddp)
        ddp(torch.ones(2, 3)).sum().backward()
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], timeout=60, capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr.count("spardl: ") == 1, done.stderr
