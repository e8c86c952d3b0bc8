"""The hook for DistributedDataParallel.

Annotations are real here, not strings: torch compares those of the hook by identity.
"""

import time
import warnings
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.distributed import GradBucket  # type: ignore[attr-defined]

from .._native import ConfigError
from ._config import Config
from ._engine import Job, Whole
from ._link import ranks_of
from ._plan import SUPPORTED, Unit
from ._session import Session
from ._staging import Direct, stage


@dataclass(eq=False)
class _Bucket:
    """One of DDP's buckets on its way: its future completes when all units that it has a part in are done."""

    staging: Direct
    units: set[int]
    failed: bool = False


@dataclass
class _Piece:
    bucket: _Bucket
    start: int
    numel: int


@dataclass
class _Arrivals:
    """What DDP has handed over in the current backward pass."""

    pieces: dict[str, _Piece] = field(default_factory=dict)
    whole: set[str] = field(default_factory=set)
    """Parameters whose gradients are not of a kind that spardl takes."""
    started: set[int] = field(default_factory=set)
    watched: bool = False
    over: bool = False

    def __contains__(self, name: str) -> bool:
        return name in self.pieces or name in self.whole

    def __len__(self) -> int:
        return len(self.pieces) + len(self.whole)


class State(Session):
    """The state of the hook: pass it to ``register_comm_hook`` with :func:`hook`, or let :func:`register` do so.

    It may be made before any process group; ``bind`` it to the model on all ranks before the first backward pass.
    """

    def __init__(self, group: Any = None, **config: Any) -> None:
        super().__init__(Config(**config), group)
        self._parameters: dict[str, torch.Tensor] = {}
        self._arrivals = _Arrivals()
        self._said: set[str] = set()
        self._model: weakref.ref[Any] | None = None
        self._unnoted = False

    def bind(self, module: torch.nn.Module, ignore: Iterable[str] = ()) -> None:
        """Learns the names of the parameters, and makes the connections. All ranks must call it, once."""
        if self._link is not None:
            raise ConfigError("the state is bound already: make one state per model")
        ignored = set(ignore)
        named = [(n, p) for n, p in module.named_parameters() if p.requires_grad and n not in ignored]
        self._parameters = dict(named)
        self._bind(named)

    def _receive(self, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        """Takes a bucket. Never raises: DDP would stay in the middle of its backward pass; the future carries errors."""
        started = time.thread_time()
        buffer = bucket.buffer()
        staging = Direct(buffer)
        try:
            names = self._arrive(bucket.parameters())
            # Complex gradients come as pairs of real numbers.
            if buffer.is_sparse or buffer.dtype not in SUPPORTED or any(name not in self._unit_of for name in names):
                staging = Direct(buffer.coalesce() if buffer.is_sparse else buffer)
                self._arrivals.whole.update(names)
                self._whole(staging, self._parameters[names[0]].dtype)
            else:
                staging = stage(buffer, self.config.staging)
                self._accept(staging, names)
            self._start_units(lambda unit: all(slot.name in self._arrivals for slot in unit.slots))
        except Exception as error:  # noqa: BLE001
            staging.fail(self.fail(error))
        self._hook_seconds += time.thread_time() - started
        # An exception set on the future itself is lost on its way through DDP; one raised by a callback is not.
        return staging.future.then(lambda done: done.value())

    def _say(self, warning: str) -> None:
        if warning not in self._said:
            self._said.add(warning)
            warnings.warn(warning, stacklevel=3)

    def _look_at_model(self) -> None:
        """What may have changed since the state was bound; at the first bucket of a step."""
        ddp = self._model() if self._model is not None else None
        if ddp is None:
            return
        if ddp.process_group is not self._user_group:
            if ranks_of(ddp.process_group) != self._linked().ranks:
                raise ConfigError("the model has another process group now: make a new DDP model and state for its ranks")
            self._user_group = ddp.process_group
        if not getattr(ddp, "_divide_by_initial_world_size", True):
            self._say("divide_by_initial_world_size=False cannot be honoured: spardl's means are over all ranks")
        self._manual = bool(getattr(ddp, "require_manual_backward_finalization", False))

    def _whole(self, staging: Direct, dtype: torch.dtype) -> None:
        buffer = staging.host
        self._say(f"spardl reduces {dtype} {buffer.layout} gradients densely")

        def done(whole: Whole) -> None:
            if whole.error is not None:
                staging.fail(whole.error)
            else:
                staging.complete()

        self._submit_whole(buffer, done)

    def _arrive(self, parameters: list[torch.Tensor]) -> list[str]:
        """The names of the parameters of a bucket, which may be the first of a backward pass."""
        self._linked()
        names = [self._names.get(id(parameter)) for parameter in parameters]
        known = [name for name in names if name is not None]
        if len(known) != len(names):
            raise ConfigError("a bucket holds a parameter that was not there when the state was bound")
        if self._arrivals.over or any(name in self._arrivals for name in known):
            self._flush()
            self.settle()
            self._look_at_times()
            self._arrivals = _Arrivals()
        if not len(self._arrivals):
            self._look_at_model()
        self._watch_backward()
        return known

    def _accept(self, staging: Direct, names: list[str]) -> None:
        if any(self._unit_of[name][1].dtype != staging.host.dtype for name in names):
            self._say(
                f"gradients come as {staging.host.dtype} from another hook, rounded before the residual sees them: "
                f"what is rounded off is lost; use method='{self.config.method}-bf16' without it"
            )
        bucket = _Bucket(staging, {self._unit_of[name][0].index for name in names})
        start = 0
        for name in names:
            numel = self._unit_of[name][1].numel
            self._arrivals.pieces[name] = _Piece(bucket, start, numel)
            start += numel
        if start != staging.host.numel():
            raise ConfigError(f"a bucket has {staging.host.numel()} elements, its parameters have {start}")

    def _start_units(self, ready: Callable[[Unit], bool]) -> None:
        """Starts the units that are ready, of which something arrived."""
        for unit in self._units:
            waiting = unit.index not in self._arrivals.started
            if waiting and ready(unit) and any(slot.name in self._arrivals.pieces for slot in unit.slots):
                self._start(unit)

    def _start(self, unit: Unit) -> None:
        """Starts a unit; parameters that DDP left out take part with zeros, and what is delivered for them is given back."""
        self._arrivals.started.add(unit.index)
        arrays: list[torch.Tensor] = []
        buckets: list[_Bucket] = []
        last: _Piece | None = None
        arrived = next(p.bucket.staging.host.dtype for p in map(self._arrivals.pieces.get, unit.names) if p is not None)
        for slot in unit.slots:
            piece = self._arrivals.pieces.get(slot.name)
            if piece is None:
                arrays.append(torch.zeros(slot.numel, dtype=arrived))
                self._unclaimed.add(slot.name)
            elif last is not None and last.bucket is piece.bucket and last.start + last.numel == piece.start:
                last = _Piece(piece.bucket, last.start, last.numel + piece.numel)
                arrays[-1] = piece.bucket.staging.host[last.start : last.start + last.numel]
                continue
            else:
                arrays.append(piece.bucket.staging.host[piece.start : piece.start + piece.numel])
                if piece.bucket not in buckets:
                    buckets.append(piece.bucket)
            last = piece

        def prepare() -> None:
            for bucket in buckets:
                bucket.staging.arrive()

        def done(job: Job) -> None:
            for bucket in buckets:
                self._leave(bucket, unit, job.error)

        self._submit(unit, arrays, done, prepare)

    def _leave(self, bucket: _Bucket, unit: Unit, error: BaseException | None) -> None:
        """On the engine's thread: a unit is done with a bucket."""
        bucket.units.discard(unit.index)
        if bucket.failed:
            return
        if error is not None:
            bucket.failed = True
            bucket.staging.fail(error)
        elif not bucket.units:
            bucket.staging.complete()

    def _flush(self) -> None:
        """Starts the units of which some parameters arrived and others will not."""
        self._start_units(lambda unit: True)

    def _watch_backward(self) -> None:
        """Has the autograd engine tell when backward is over: once before DDP collects the results, once after."""
        if self._arrivals.watched:
            return
        arrivals = self._arrivals
        engine: Any = torch.autograd.Variable._execution_engine

        def before() -> None:
            arrivals.watched = False
            if self._all_arrive and len(arrivals) < len(self._parameters):
                # A backward pass inside another, as of reentrant checkpoints, is over: the rest comes later.
                return
            self._flush()
            engine.queue_callback(after)

        def after() -> None:
            arrivals.over = True
            if self._manual:
                # Gradients come later, by finalize_backward, which has every parameter used.
                self._unnoted = True
                return
            self._find_unclaimed()
            self._note_step()

        try:
            engine.queue_callback(before)
            arrivals.watched = True
        except RuntimeError:
            # Outside of backward (a rank that has joined): a repeated parameter will tell.
            pass

    def _settle(self, keep: bool) -> None:
        if self._unnoted:
            self._unnoted = False
            self._wait()
            self._note_step()
        super()._settle(keep)

    def _find_unclaimed(self) -> None:
        """Parameters that no rank used keep their old gradient: what was delivered for them would vanish."""
        for name, piece in self._arrivals.pieces.items():
            gradient = self._parameters[name].grad
            slot = self._unit_of[name][1]
            flat = piece.bucket.staging.host[piece.start : piece.start + piece.numel]
            if gradient is None:
                self._unclaimed.add(name)
            elif self._may_be_unused and not _same(gradient, slot.logical(flat)):
                self._unclaimed.add(name)

    _may_be_unused = False
    _all_arrive = False
    """Does every backward pass bring every parameter?"""
    _manual = False


def _same(gradient: torch.Tensor, delivered: torch.Tensor) -> bool:
    return gradient.dtype != delivered.dtype or torch.equal(gradient.detach().to(delivered.device), delivered)


def hook(state: State, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    """The communication hook: ``ddp.register_comm_hook(state, hook)``."""
    return state._receive(bucket)


def register(ddp: torch.nn.parallel.DistributedDataParallel, **config: Any) -> State:
    """Makes a DDP model reduce its gradients sparsely; all ranks must call it, before the first backward pass.

    Keywords are the fields of :class:`spardl.torch.Config`. Returns the state: save it with the model.
    """
    _refuse(ddp)
    state = State(ddp.process_group, **config)
    ignored = set(getattr(ddp, "parameters_to_ignore", ()))
    state._may_be_unused = bool(ddp.find_unused_parameters) and not getattr(ddp, "static_graph", False)
    state._model = weakref.ref(ddp)
    state.bind(ddp.module, ignored)
    torchs: Any = ddp
    reduced = torchs._get_ddp_logging_data()["num_parameter_tensors"]
    state._all_arrive = reduced == len(state._parameters) and not getattr(ddp, "skip_all_reduce_unused_params", False)
    ddp.register_comm_hook(state, hook)
    return state


def _refuse(ddp: torch.nn.parallel.DistributedDataParallel) -> None:
    """What cannot work is refused with the reason."""
    if not isinstance(ddp, torch.nn.parallel.DistributedDataParallel):
        raise ConfigError(f"expected a DistributedDataParallel model, got {type(ddp).__name__}")
    if getattr(ddp, "mixed_precision", None) is not None:
        raise ConfigError("mixed_precision= takes DDP's only hook: use autocast, or gradients in bfloat16, instead")
    if getattr(ddp, "_use_python_reducer", False):
        raise ConfigError('optimize_ddp="python_reducer" does not call hooks: use the default')
    parameters = [p for p in ddp.module.parameters() if p.requires_grad]
    if any(hasattr(p, "_in_backward_optimizers") for p in parameters):
        raise ConfigError("an optimiser runs inside backward, before gradients are reduced: step after backward instead")
    if getattr(ddp, "_comm_hooks", None):
        raise ConfigError("this model has a communication hook already: DDP takes one")
    delayed = getattr(ddp, "_delay_all_reduce_params", None) or []
    if delayed:
        if len(delayed) >= len(parameters):
            raise ConfigError("all parameters are in delay_all_reduce_named_params, which bypass hooks: leave some out")
        warnings.warn(f"{len(delayed)} parameters in delay_all_reduce_named_params bypass spardl", stacklevel=3)
