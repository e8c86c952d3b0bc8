"""Further corners: device memory, other process groups, lazy buckets, manual finalisation, other hooks."""

import inspect
import sys
import warnings
from typing import Any

import pytest
import torch
import torch.distributed as dist
from models import batch, flat, network, train
from ranks import run
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

import spardl.torch
from spardl.torch import _staging

pytestmark = pytest.mark.modern


class Log(_staging.Host):
    """A device that writes down what it is told, and whose copies arrive only when they are waited for."""

    def __init__(self) -> None:
        self.words: list[str] = []

    def future(self) -> torch.futures.Future[torch.Tensor]:
        made: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        made.add_done_callback(lambda _: self.words.append("complete"))
        return made

    def stream(self) -> Any:
        self.words.append("stream")
        return LoggedStream(self)

    def room_for(self, buffer: torch.Tensor) -> torch.Tensor:
        self.words.append("room")
        return torch.empty_like(buffer)

    def hold(self, buffer: torch.Tensor, stream: Any) -> None:
        self.words.append("hold")


class LoggedStream:
    def __init__(self, device: Log) -> None:
        self.device = device

    def __enter__(self) -> None:
        self.device.words.append("enter")

    def __exit__(self, *_: object) -> None:
        self.device.words.append("exit")

    def record_event(self) -> "LoggedStream":
        self.device.words.append("event")
        return self

    def synchronize(self) -> None:
        self.device.words.append("wait")


def test_memory_of_a_device_is_copied_held_and_given_back_in_order() -> None:
    device, buffer = Log(), torch.arange(4.0)
    staged = _staging.Staged(buffer, device)
    assert staged.host is not buffer
    staged.arrive()
    staged.host.mul_(2)
    assert buffer.tolist() == [0, 1, 2, 3]
    staged.complete()
    assert buffer.tolist() == [0, 2, 4, 6] and staged.future.value() is buffer
    copied_in = ["stream", "enter", "room", "event", "exit", "hold"]
    assert device.words == [*copied_in, "wait", "enter", "complete", "exit"], "completed on the stream that wrote"


def through_device(rank: int, size: int) -> tuple[list[float], bool]:
    devices: list[Log] = []

    def stage(buffer: torch.Tensor, policy: str) -> _staging.Direct:
        devices.append(Log())
        return _staging.Staged(buffer, devices[-1])

    spardl.torch._ddp.stage = stage  # type: ignore[attr-defined]
    ddp = DDP(network())
    spardl.torch.register(ddp, density=0.1, dense_steps=1, banner=False)
    history = train(ddp, rank, range(3), torch.optim.SGD(ddp.parameters(), lr=0.1))
    # Written back after a wait. The step may go on before the completion is logged and the stream left.
    return history[-1], all(device.words[device.words.index("enter", 2) - 1] == "wait" for device in devices)


def plain(rank: int, size: int, ddp_options: dict[str, Any] | None = None) -> list[float]:
    ddp = DDP(network(), **(ddp_options or {}))
    spardl.torch.register(ddp, density=0.1, dense_steps=1, banner=False)
    return train(ddp, rank, range(3), torch.optim.SGD(ddp.parameters(), lr=0.1))[-1]


def test_the_path_of_a_device_gives_the_bits_of_the_cpu() -> None:
    expected = run(2, plain)
    for bits, in_order in run(2, through_device):
        assert bits == expected[0] and in_order


def test_buckets_that_are_allocated_anew_in_every_step_give_the_same_bits() -> None:
    assert run(2, plain, {"lazy_bucket_allocation": True}) == run(2, plain)


def regrouped(rank: int, size: int, smaller: bool) -> list[float] | str:
    ddp = DDP(network())
    spardl.torch.register(ddp, density=0.1, dense_steps=1, banner=False)
    optimiser = torch.optim.SGD(ddp.parameters(), lr=0.1)
    train(ddp, rank, range(1), optimiser)
    group = dist.new_group([0] if smaller else None)
    if smaller and rank != 0:
        return ""
    ddp._update_process_group(group)
    try:
        return train(ddp, rank, range(1, 3), optimiser)[-1]
    except Exception as error:  # noqa: BLE001
        return str(error)


def test_buckets_that_are_rebuilt_for_another_group_of_the_same_ranks_give_the_same_bits() -> None:
    assert run(2, regrouped, False) == run(2, plain)


def test_a_group_of_other_ranks_is_refused() -> None:
    assert "another process group now" in run(2, regrouped, True)[0]


def finalised_by_hand(rank: int, size: int) -> tuple[list[float], float]:
    ddp = DDP(network())
    ddp.require_manual_backward_finalization = True
    state = spardl.torch.register(ddp, density=0.1, dense_steps=1, conservation=True, banner=False)
    optimiser = torch.optim.SGD(ddp.parameters(), lr=0.1)
    for step in range(3):
        inputs, labels = batch(rank, step)
        optimiser.zero_grad()
        nn.functional.cross_entropy(ddp(inputs), labels).backward()
        ddp.finalize_backward()
        optimiser.step()
    return flat(ddp), state.report(conservation=True)["conservation_error"]


def test_a_backward_pass_that_is_finalised_by_hand_gives_the_same_bits_and_loses_nothing() -> None:
    expected = run(2, plain)
    for bits, error in run(2, finalised_by_hand):
        assert bits == expected[0] and error < 1e-5


def joined(rank: int, size: int) -> list[str]:
    ddp = DDP(network())
    spardl.torch.register(ddp, density=0.1, dense_steps=1, banner=False)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with ddp.join(divide_by_initial_world_size=False):
            for step in range(2 + rank):
                inputs, labels = batch(rank, step)
                nn.functional.cross_entropy(ddp(inputs), labels).backward()
    return [str(one.message) for one in said if "cannot be honoured" in str(one.message)]


def test_a_mean_over_fewer_ranks_is_said_to_be_impossible_once() -> None:
    assert [len(words) for words in run(2, joined)] == [1, 1]


def wrapped(rank: int, size: int) -> tuple[list[str], list[float]]:
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_wrapper

    ddp = DDP(network())
    state = spardl.torch.State(density=0.1, dense_steps=0, banner=False)
    state.bind(ddp.module)
    ddp.register_comm_hook(state, bf16_compress_wrapper(spardl.torch.hook))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        history = train(ddp, rank, range(3), torch.optim.SGD(ddp.parameters(), lr=0.1))
    return [str(one.message) for one in said if "from another hook" in str(one.message)], history[-1]


def test_gradients_that_another_hook_has_rounded_are_pointed_out_once() -> None:
    first, second = run(2, wrapped)
    assert first == second and len(first[0]) == 1 and "use method='spardl-bf16'" in first[0][0]


def refused(rank: int, size: int) -> tuple[list[str], list[str]]:
    words, said = [], []

    def attempt(ddp: DDP) -> None:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            try:
                spardl.torch.register(ddp, banner=False)
            except spardl.ConfigError as error:
                words.append(str(error))
        said.extend(str(one.message) for one in warned if "bypass" in str(one.message))

    def delayed(count: int) -> DDP:
        model = network()
        named = list(model.named_parameters())[:count]
        return DDP(model, delay_all_reduce_named_params=named, param_to_hook_all_reduce=named[0][1])

    attempt(delayed(2))
    everything = delayed(2)
    everything._delay_all_reduce_params = list(everything.parameters())
    attempt(everything)
    fused = DDP(network())
    fused._register_fused_optim(torch.optim.SGD, lr=0.1)
    attempt(fused)
    return words, said


def test_parameters_and_optimisers_that_bypass_the_hook_are_pointed_out_or_refused() -> None:
    words, said = run(1, refused)[0]
    assert said == ["2 parameters in delay_all_reduce_named_params bypass spardl"]
    assert len(words) == 2 and "which bypass hooks" in words[0] and "has a communication hook already" in words[1]


def test_the_hook_is_what_torch_accepts() -> None:
    """torch reads its name, looks for a parameter called bucket, and compares annotations by identity."""
    assert inspect.isfunction(spardl.torch.hook) and spardl.torch.hook.__qualname__ == "hook"
    signature = inspect.signature(spardl.torch.hook)
    assert signature.parameters["bucket"].annotation is dist.GradBucket
    assert signature.return_annotation == torch.futures.Future[torch.Tensor]


class Watched:
    """A reducer that writes down what code of this package asks it."""

    def __init__(self, reducer: Any) -> None:
        self.__dict__.update(reducer=reducer, asked=[])

    def __getattr__(self, name: str) -> Any:
        frame: Any = sys._getframe(1)
        while frame is not None:
            if frame.f_globals.get("__name__", "").startswith("spardl"):
                self.asked.append(name)
            frame = frame.f_back
        return getattr(self.reducer, name)


def watched(rank: int, size: int, options: dict[str, Any], asks: bool) -> list[str]:
    ddp = DDP(network(), bucket_cap_mb=0.001, **options)
    state = spardl.torch.register(ddp, density=0.1, dense_steps=1, banner=False)
    reducer = Watched(ddp.reducer)
    ddp.reducer = reducer
    if asks:
        state._look_at_model = lambda: ddp.reducer._rebuild_buckets  # type: ignore[method-assign]
    train(ddp, rank, range(4), torch.optim.SGD(ddp.parameters(), lr=0.1))
    state.close()
    return reducer.asked


@pytest.mark.parametrize("options", [{}, {"find_unused_parameters": True}, {"static_graph": True}])
def test_the_reducer_is_never_asked_anything(options: dict[str, Any]) -> None:
    """The hook runs under its lock, which a question would wait for."""
    assert run(2, watched, options, False) == [[], []]
    assert "_rebuild_buckets" in run(2, watched, options, True)[0], "the watch sees who asks"
