"""``method="auto"``: measured over the group, the same on all ranks, kept with the state."""

import contextlib
import io
import math
import pathlib
from typing import Any, NamedTuple

import pytest
import torch
from models import batch, network, train
from ranks import run
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

import spardl.torch

pytestmark = pytest.mark.light


def chosen(rank: int, size: int, config: dict[str, Any]) -> tuple[dict[str, Any], list[float], str]:
    """What was chosen, the parameters after some steps, and what was said."""
    words, ddp = io.StringIO(), DDP(network())
    with contextlib.redirect_stderr(words):
        state = spardl.torch.register(ddp, **{"method": "auto", "density": 0.05, "dense_steps": 1, **config})
    parameters = train(ddp, rank, range(4), torch.optim.SGD(ddp.parameters(), lr=0.1))[-1]
    return state.config.chosen, parameters, words.getvalue()


@pytest.mark.parametrize("size", [2, 4])
def test_all_ranks_choose_the_same_and_the_first_says_why(size: int) -> None:
    results = run(size, chosen, {})
    assert all(result[:2] == results[0][:2] for result in results[1:])
    choice, _, words = results[0]
    assert choice["method"].removesuffix("-bf16") in spardl.methods()
    because, banner = words.splitlines()
    assert because.startswith(f"spardl: auto: {choice['method']}") and " is used: " in because
    assert banner.startswith(f"spardl: {choice['method']}, ")
    assert all(result[2] == "" for result in results[1:])


def test_a_value_type_narrows_the_choice() -> None:
    choice = run(2, chosen, {"value_type": "q4"})[0][0]
    assert choice["method"].endswith("-q4") and choice["value_type"] is None


def test_one_rank_and_a_model_of_small_tensors_have_nothing_to_choose() -> None:
    assert "nothing to choose" in run(1, chosen, {})[0][2]
    assert run(2, chosen, {"dense_below": 3})[0][0]["method"] == "dense"


def resumed(rank: int, size: int, directory: str) -> list[Any]:
    """A named method's state, loaded by one that would choose for itself."""
    ddp = DDP(network())
    named = {"method": "topk-a-bf16", "density": 0.05, "dense_steps": 0, "banner": False}
    state = spardl.torch.register(ddp, **named)
    train(ddp, rank, range(2), torch.optim.SGD(ddp.parameters(), lr=0.1))
    state.save(directory)
    kept = state.residual("3.weight").tolist()
    again = DDP(network())
    auto = spardl.torch.register(again, **{**named, "method": "auto"})
    auto.load(directory)
    same = [auto.config.chosen == state.config.chosen, auto.residual("3.weight").tolist() == kept]
    after = []
    for model, one in ((ddp, state), (again, auto)):
        inputs, labels = batch(rank, 2)
        model.load_state_dict(ddp.state_dict())
        model.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        after.append(torch.cat([p.grad.reshape(-1) for p in model.parameters()]))
        one.settle()
    return [*same, torch.equal(*after)]


def test_a_run_that_goes_on_keeps_its_method_and_its_bits(tmp_path: pathlib.Path) -> None:
    assert run(2, resumed, str(tmp_path)) == [[True, True, True]] * 2


def lost(rank: int, size: int) -> str:
    if rank == 1:
        spardl.torch._tune.measure = broken
    try:
        spardl.torch.register(DDP(network()), method="auto", timeout=20, banner=False)
    except Exception as error:  # noqa: BLE001
        return f"{type(error).__name__}: {error}"
    return "no error"


def broken(*_: Any) -> Any:
    raise RuntimeError("no more paper")


def test_a_rank_that_fails_while_the_others_measure_ends_them_in_its_words() -> None:
    first, second = run(2, lost, limit=60)
    assert second == "RuntimeError: no more paper"
    assert first.startswith("PeerError: rank 1: no more paper (choosing a method: ")


class Expects(NamedTuple):
    """A choice of which an exchange is expected to take so long."""

    method: str
    seconds: float
    options: dict[str, str] = {}
    reason: str = "it is the fastest"

    def seconds_at(self, density: float) -> float:
        return self.seconds


def changing(rank: int, size: int, retune: float) -> tuple[str, list[Any], float, list[float], list[str]]:
    """Steps that take longer than expected, three times, and then as long as the same choice took before."""
    never, tune = 1e-9, spardl.torch._tune
    choices = [Expects("spardl", never), Expects("dense", never), Expects("topk-a-q4", never), Expects("topk-a-q4", never)]
    left, asked = iter(choices), []

    def measure(config: Any, link: Any, lengths: Any, density: float, current: Any) -> Expects:
        asked.append(current and current.method)
        return next(left)

    tune.measure, tune.EVERY = measure, 4
    words, given = io.StringIO(), torch.Generator().manual_seed(rank)
    tensors = {"a": torch.zeros(40, 50), "b": torch.zeros(300, 2), "small": torch.zeros(7)}
    with contextlib.redirect_stderr(words):
        config = {"density": 0.05, "dense_steps": 2, "conservation": True, "retune": retune}
        sync = spardl.torch.Sync(tensors.items(), method="auto", **config)
        for step in range(24):
            for tensor in tensors.values():
                tensor.copy_(torch.randn(tensor.shape, generator=given))
            if step == 6 and rank == 1:
                # The first step of the new method is skipped: what waits goes out with the one after it.
                tensors["a"][0, 0] = math.nan
            sync.start()
            sync.wait()
    error = sync.report(conservation=True)["conservation_error"]
    bits = [tensor.sum().item() for tensor in tensors.values()]
    return sync.config.name, asked, error, bits, words.getvalue().splitlines()


def test_another_method_is_chosen_when_steps_leave_what_was_expected_and_nothing_is_lost() -> None:
    results = run(2, changing, 3.0)
    name, asked, error, _, words = results[0]
    # What is in use is said to whoever chooses.
    assert name == "topk-a-q4" and asked == [None, "spardl", "dense", "topk-a-q4"] and error < 1e-6
    assert [one[:4] for one in results[1:]] == [results[0][:4]] and results[1][4] == []
    changes = [line for line in words if "times what was expected: it is the fastest" in line]
    assert [line.split(",")[0] for line in changes] == [f"spardl: auto: from step {step} on" for step in (6, 10)]


def test_the_choice_stays_where_nobody_wants_another_one() -> None:
    name, asked, _, _, words = run(2, changing, 0.0)[0]
    assert (name, asked) == ("spardl", [None]) and not any("expected" in line for line in words)


def test_what_auto_cannot_do_is_refused_in_one_line() -> None:
    with pytest.raises(spardl.ConfigError, match="name the method to set them"):
        spardl.torch.Config(method="auto", options={"teams": 2})
    with pytest.raises(spardl.ConfigError, match="retune = 0.5 is not accepted: expected 0 or a number from 1 on"):
        spardl.torch.Config(method="auto", retune=0.5)
    with pytest.raises(spardl.ConfigError, match="make them with what spardl.tune says"):
        spardl.Worker("auto", 10)
    with pytest.raises(spardl.ConfigError, match="make them with what spardl.tune says"):
        spardl.allreduce([torch.ones(4)], "auto")
    unused: Any = None
    with pytest.raises(spardl.ConfigError, match="q3"):
        spardl.tune([100], 0, 2, unused, unused, value_types=["q3"])
    with pytest.raises(spardl.ConfigError, match="nonsense"):
        spardl.tune([100], 0, 2, unused, unused, current=("nonsense", {}))


def alone() -> spardl.Tuning:
    unused: Any = None
    return spardl.tune([1000, 20], 0, 1, unused, unused)


def test_a_tuning_prints_a_table_and_its_reason() -> None:
    tuning = alone()
    assert tuning.method in str(tuning) and tuning.reason in str(tuning) and tuning.seconds >= 0
    assert spardl.Worker(tuning.method, 10, options=tuning.options).n == 10


def test_an_exception_of_the_functions_reaches_the_caller() -> None:
    def isend(peer: int, message: spardl.Message) -> Any:
        raise OSError("the cable is cut")

    with pytest.raises(OSError, match="the cable is cut"):
        spardl.tune([1000], 0, 2, isend, lambda peer, most: None)  # type: ignore[arg-type, return-value]
