"""What goes wrong elsewhere ends here, soon and in words."""

import os
import pathlib
import signal
import time
import warnings
from typing import Any

import pytest
import torch
import torch.distributed as dist
from models import batch, network, train
from ranks import run, wait_until_all_failed
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

import spardl.torch

pytestmark = pytest.mark.light


def killed(rank: int, size: int) -> tuple[float, str]:
    ddp = DDP(network())
    spardl.torch.register(ddp, density=0.05, dense_steps=0, timeout=20, banner=False)
    optimiser = torch.optim.SGD(ddp.parameters(), lr=0.1)
    train(ddp, rank, range(2), optimiser)
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    began = time.monotonic()
    try:
        train(ddp, rank, range(2, 4), optimiser)
    except Exception as error:  # noqa: BLE001
        return time.monotonic() - began, str(error)
    return 0.0, "no error"


def test_a_killed_rank_ends_the_others_within_the_timeout() -> None:
    results = run(3, killed, lost=(1,))
    for rank in (0, 2):
        seconds, words = results[rank]
        assert seconds < 60 and "waiting for rank" in words, words


def injected(rank: int, size: int, dtype: torch.dtype) -> list[str]:
    """An error on rank 1 in the third step. That rank lives on until the others have failed too."""
    ddp = DDP(network().to(dtype))
    state = spardl.torch.register(ddp, density=0.05, dense_steps=0, timeout=300, banner=False)
    errors = []
    for step in range(4):
        if rank == 1 and step == 2:
            state._names.clear()
        inputs, labels = batch(rank, step)
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "spardl reduces")
                nn.functional.cross_entropy(ddp(inputs.to(dtype)), labels).backward()
        except Exception as error:  # noqa: BLE001
            errors.append(str(error))
    wait_until_all_failed(rank, size)
    return errors


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_error_on_one_rank_reaches_every_rank_in_its_own_words_and_stays(dtype: torch.dtype) -> None:
    """Also those that wait in a dense sum."""
    for errors in run(3, injected, dtype, limit=60):
        assert len(errors) == 2
        assert all("was not there when the state was bound" in error for error in errors), errors


def test_ranks_that_differ_are_refused_on_every_rank() -> None:
    words = run(2, differing)
    assert words[0] == words[1] and "rank 1 has method=spardl density=0.02" in words[0]


def differing(rank: int, size: int) -> str:
    try:
        spardl.torch.register(DDP(network()), density=0.01 * (rank + 1), banner=False)
    except spardl.ConfigError as error:
        return str(error)
    return "accepted"


def refusals(rank: int, size: int) -> list[str]:
    words = []

    def refused(ddp: Any, **config: Any) -> None:
        try:
            spardl.torch.register(ddp, banner=False, **config)
        except spardl.ConfigError as error:
            words.append(str(error))

    refused(network())
    refused(DDP(network()), density=1.5)
    refused(DDP(network()), density="auto")
    refused(DDP(network()), density=[])
    refused(DDP(network()), method="spardle")
    refused(DDP(network()), op="max")
    refused(DDP(network()), options={"tau": 3})
    refused(DDP(network()), options="teams=2")
    refused(DDP(network()), options={"teams": 7})
    refused(DDP(network()), method="spardl-bf16", value_type="q4")
    refused(DDP(network()), dense_steps=1.5)
    refused(DDP(network()), dense_below=-1)
    refused(DDP(network()), threads=0)
    refused(DDP(network()), bucket_mb=0)
    refused(DDP(network()), timeout=float("inf"))
    refused(DDP(network()), scaler=3)
    refused(DDP(network()), on_step=3)
    twice = DDP(network())
    spardl.torch.register(twice, banner=False)
    refused(twice)
    state = spardl.torch.State()
    try:
        state.state_dict()
    except spardl.ConfigError as error:
        words.append(str(error))
    return words


@pytest.mark.modern
def test_what_cannot_work_is_refused_with_the_reason() -> None:
    words = run(1, refusals)[0]
    expected = ["expected a DistributedDataParallel", "from 0 to 1", "density = 'auto' is not accepted", "density = [] is not"]
    expected += ["unknown method 'spardle'", "use mean or sum"]
    expected += ["option tau = '3' is not accepted", "options = 'teams=2' is not accepted: expected a dict", "teams"]
    expected += ["another value type than value_type = 'q4'", "dense_steps = 1.5 is not accepted: expected a whole number"]
    expected += ["dense_below = -1 is not", "threads = 0 is not", "bucket_mb = 0 is not accepted: expected a number above 0"]
    expected += ["timeout = inf is not", "expected a torch.amp.GradScaler", "expected a function"]
    expected += ["has a communication hook already", "call bind(module)"]
    assert len(words) == len(expected)
    for word, part in zip(words, expected):
        assert part in word


def late(rank: int, size: int) -> list[float]:
    """The state is made first, as Lightning does, and bound when the model is there."""
    ddp = DDP(network())
    state = spardl.torch.State(density=0.05, dense_steps=0, banner=False)
    ddp.register_comm_hook(state, spardl.torch.hook)
    try:
        inputs, labels = batch(rank, 0)
        nn.functional.cross_entropy(ddp(inputs), labels).backward()
    except Exception as error:  # noqa: BLE001
        assert "call bind(module)" in str(error), error
    again = DDP(network())
    state = spardl.torch.State(density=0.05, dense_steps=0, banner=False)
    again.register_comm_hook(state, spardl.torch.hook)
    state.bind(again.module)
    return train(again, rank, range(3), torch.optim.SGD(again.parameters(), lr=0.1))[-1]


def test_a_state_made_before_its_model_is_bound_later() -> None:
    first, second = run(2, late)
    assert first == second


def before_any_group(rank: int, size: int, path: str) -> list[float]:
    dist.destroy_process_group()
    state = spardl.torch.State(density=0.05, dense_steps=0, banner=False)
    dist.init_process_group("gloo", store=dist.FileStore(path, size), rank=rank, world_size=size)
    ddp = DDP(network())
    ddp.register_comm_hook(state, spardl.torch.hook)
    state.bind(ddp.module)
    return train(ddp, rank, range(3), torch.optim.SGD(ddp.parameters(), lr=0.1))[-1]


def test_a_state_may_be_made_before_any_process_group(tmp_path: pathlib.Path) -> None:
    first, second = run(2, before_any_group, str(tmp_path / "store"))
    assert first == second


def only_two(rank: int, size: int) -> list[list[float]]:
    """The third rank has no part in the first state. Afterwards all make a group, and a state in it."""
    histories = []
    group = dist.new_group([0, 1])
    if rank < 2:
        histories.append(in_group(rank, group))
    histories.append(in_group(rank, dist.new_group([0, 1, 2])))
    return histories


def in_group(rank: int, group: Any) -> list[float]:
    ddp = DDP(network(), process_group=group)
    spardl.torch.register(ddp, density=0.05, dense_steps=1, timeout=20, banner=False)
    return train(ddp, rank, range(3), torch.optim.SGD(ddp.parameters(), lr=0.1))[-1]


@pytest.mark.modern
def test_ranks_outside_a_group_are_not_waited_for_and_can_make_groups_later() -> None:
    first, second, third = run(3, only_two, limit=60)
    assert first == second and len(first) == 2 and third == first[1:]


def halves(rank: int, size: int) -> list[float]:
    groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    group = groups[rank // 2]
    ddp = DDP(network(), process_group=group)
    spardl.torch.register(ddp, density=0.05, dense_steps=1, banner=False)
    return train(ddp, rank, range(4), torch.optim.SGD(ddp.parameters(), lr=0.1))[-1]


@pytest.mark.modern
def test_a_part_of_the_ranks_reduces_among_itself() -> None:
    results = run(4, halves)
    assert results[0] == results[1] != results[2] == results[3]


def alone(rank: int, size: int) -> list[float]:
    ddp = DDP(network())
    spardl.torch.register(ddp, density=1.0, dense_steps=0, banner=False)
    return train(ddp, rank, range(3), torch.optim.SGD(ddp.parameters(), lr=0.1))[-1]


def test_one_rank_alone_trains_as_without_it() -> None:
    model = network()
    expected = train(model, 0, range(3), torch.optim.SGD(model.parameters(), lr=0.1))[-1]
    assert torch.allclose(torch.tensor(run(1, alone)[0]), torch.tensor(expected), atol=1e-6)


class Embedded(nn.Module):
    def __init__(self, dtype: torch.dtype, sparse: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Embedding(50, 8, sparse=sparse)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Complex modules")
            self.head = nn.Linear(8, 5).to(dtype)

    def forward(self, indices: torch.Tensor) -> torch.Tensor:
        out = self.head(self.table(indices).to(self.head.weight.dtype))
        return torch.view_as_real(out) if out.is_complex() else out


def fallback(rank: int, size: int, dtype: torch.dtype, sparse: bool) -> tuple[list[float], list[str]]:
    ddp = DDP(Embedded(dtype, sparse))
    spardl.torch.register(ddp, density=1.0, dense_steps=0, banner=False)
    words: list[str] = []
    for step in range(2):
        ddp.zero_grad()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            generator = torch.Generator().manual_seed(10 * step + rank)
            ddp(torch.randint(0, 50, (6,), generator=generator)).square().sum().backward()
        words += [str(one.message) for one in caught if "spardl" in str(one.message)]
    gradients = [p.grad.to_dense() if p.grad.is_sparse else p.grad for p in ddp.parameters()]
    return torch.cat([_real(g).reshape(-1).double() for g in gradients]).tolist(), words


def _real(tensor: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


@pytest.mark.parametrize(("dtype", "sparse"), [(torch.float64, False), (torch.float32, True), pytest.param(torch.complex64, False, marks=pytest.mark.modern)])
def test_gradients_it_does_not_take_are_reduced_densely_with_one_warning(dtype: torch.dtype, sparse: bool) -> None:
    results = run(2, fallback, dtype, sparse)
    assert results[0][0] == results[1][0]
    assert len(results[0][1]) == 1 and "densely" in results[0][1][0]
    model, last = Embedded(dtype, sparse), []
    for rank in range(2):
        generator = torch.Generator().manual_seed(10 + rank)
        (model(torch.randint(0, 50, (6,), generator=generator)).square().sum() / 2).backward()
    gradients = [p.grad.to_dense() if p.grad.is_sparse else p.grad for p in model.parameters()]
    last = torch.cat([_real(g).reshape(-1).double() for g in gradients])
    assert torch.allclose(torch.tensor(results[0][0], dtype=torch.float64), last, atol=1e-6)
