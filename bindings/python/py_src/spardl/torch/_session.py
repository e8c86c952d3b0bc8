"""What all entries share: units and their workers, steps that settle late, state by name."""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from .._native import ConfigError, Worker, cost
from . import _files
from ._books import Correction, Ledger
from ._config import Config
from ._engine import Engine, Job, Whole
from ._link import Link
from ._plan import SUPPORTED, Slot, Unit, plan
from ._report import Report
from ._tune import Chooser

FORMAT = 1


class Session:
    """Reduces named tensors and keeps what is not delivered.

    A finished step stays open until the next one begins, or its state is asked for: ``discard_step`` takes it back.
    """

    def __init__(self, config: Config, group: Any = None) -> None:
        self.config = config
        self._auto = config.method == "auto"
        self._chooser: Chooser | None = None
        self._user_group = group
        self._names: dict[int, str] = {}
        self._units: list[Unit] = []
        self._unit_of: dict[str, tuple[Unit, Slot]] = {}
        self._workers: dict[int, Worker] = {}
        self._dense: dict[int, Worker] = {}
        self._waiting: dict[int, torch.Tensor] = {}
        """By unit, what another method held back and this one has no residual for: it goes out with the next step."""
        self._pending: list[tuple[Unit, Job]] = []
        self._unclaimed: set[str] = set()
        self._step = 0
        self._holding: set[str] = set()
        self._link: Link | None = None
        self._engine: Engine | None = None
        self._closer: weakref.finalize[..., Session] | None = None
        self._finished = threading.Condition()
        self._open_jobs = 0
        self._correction: Correction | None = None
        self._ledger: Ledger | None = None
        self._restart_books()
        self._report = Report()
        self._hook_seconds = 0.0

    def _restart_books(self) -> None:
        momentum = self.config.momentum_correction
        self._correction = Correction(momentum, self.config.factor_masking) if momentum else None
        self._ledger = Ledger() if self.config.conservation else None

    # -- set-up ------------------------------------------------------------------------------------------------------

    def _bind(self, named: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Fixes which tensors there are, makes the group and compares ranks. Every rank must call it."""
        tensors = list(named)
        self._names = {id(tensor): name for name, tensor in tensors}
        slots = [Slot.of(name, tensor) for name, tensor in tensors if tensor.dtype in SUPPORTED]
        config = self.config
        self._units = plan(slots, config.bucket_mb * 1e6, config.dense_below)
        self._unit_of = {slot.name: (unit, slot) for unit in self._units for slot in unit.slots}
        if len(self._unit_of) != len(slots):
            raise ConfigError("two tensors have the same name: expected different names")
        link = self._link = Link(self._user_group, config.wait)
        link.compare("the configuration", config.describe())
        link.compare("the list of tensors", ", ".join(unit.key for unit in self._units))
        if config.method != "auto":
            # What a method asks of the number of ranks is said here, not in the first sparse step.
            Worker(config.method, 0, link.rank, link.size, value_type=config.value_type, options=config.texts)
        else:
            lengths = [unit.numel for unit in self._units if not unit.dense]
            self._chooser = Chooser(config, link, lengths)
            self.config, reason = self._chooser.choose(config.density_at(0))
            self._tell(f"spardl: auto: {reason}")
        self._engine = Engine(link.group, config.in_flight, config.wait, link.share)
        self._closer = weakref.finalize(self, _shut, self._engine, link)
        self._tell(self._banner())

    def _tell(self, line: str) -> None:
        """To the user, once for all ranks."""
        if self.config.banner and self._linked().rank == 0:
            print(line, file=sys.stderr)

    def _banner(self) -> str:
        assert self._link is not None
        size, step = self._link.size, self.config.dense_steps
        sent = dense = small = total = 0
        for unit in self._units:
            bill = cost(self._method(unit, step), unit.numel, size, **self._options(unit, step))
            sent, dense = sent + bill["bytes_max"], dense + bill["dense_bytes"]
            total += unit.numel
            small += unit.numel if unit.dense else 0
        saving = f"at most {_bytes(sent)} sent per step and rank (dense {_bytes(dense)})"
        return (
            f"spardl: {self.config.name}, density {self.config.density_at(0):g}, {size} ranks over gloo, {saving}; "
            f"{total} elements in {len(self._units)} buckets, {small} in small tensors reduced densely, "
            f"{self.config.dense_steps} dense steps first"
        )

    def _plain(self, unit: Unit, step: int) -> bool:
        """Is it a dense sum of f32 whatever the method: a small tensor, or a step of the warm-up?"""
        return unit.dense or step < self.config.dense_steps

    def _method(self, unit: Unit, step: int) -> str:
        return "dense" if self._plain(unit, step) else self.config.method

    def _options(self, unit: Unit, step: int) -> dict[str, Any]:
        if self._plain(unit, step):
            return {"layout": unit.layout}
        config = self.config
        density = config.density_at(max(0, step - config.dense_steps))
        return {"layout": unit.layout, "value_type": config.value_type, "options": config.texts, "density": density}

    def _worker(self, unit: Unit, step: int) -> Worker:
        link = self._linked()
        warm = not unit.dense and step < self.config.dense_steps
        if not warm:
            self._dense.clear()
        workers = self._dense if warm else self._workers
        if unit.index not in workers:
            options = self._options(unit, step)
            options |= {"bucket": unit.index, "threads": self.config.threads}
            workers[unit.index] = Worker(self._method(unit, step), unit.numel, link.rank, link.size, **options)
        return workers[unit.index]

    def _linked(self) -> Link:
        if self._link is None:
            raise ConfigError("the state is not bound to a model yet: call bind(module) on every rank")
        return self._link

    @property
    def numel(self) -> int:
        """How many elements are reduced in a step."""
        return sum(unit.numel for unit in self._units)

    def fail(self, error: Exception) -> Exception:
        """Ends the session on all ranks, with the words of an error of this one; returns the error, to be raised."""
        if self._engine is not None:
            self._engine.fail(error)
        return error

    # -- a step ------------------------------------------------------------------------------------------------------

    def _submit(
        self,
        unit: Unit,
        arrays: Sequence[torch.Tensor],
        done: Callable[[Job], None],
        prepare: Callable[[], None] = lambda: None,
    ) -> None:
        """Starts to reduce a unit in place; ``done`` is called on the engine's thread."""
        link, step = self._linked(), self._step
        scale = self._loss_scale()
        job = Job(
            label=f"bucket {unit.index} ({unit.slots[0].name} ..)",
            worker=self._worker(unit, step),
            arrays=arrays,
            step=step,
            density=float(self._options(unit, step).get("density", 1.0)),
            scale_in=1.0 / scale,
            scale_out=scale if self.config.op == "sum" else scale / link.size,
            done=lambda job: self._end(unit, job, done),
            prepare=lambda job: self._prepare(unit, job, prepare),
            waiting=self._waiting.get(unit.index),
        )
        with self._finished:
            self._open_jobs += 1
        (self._holding.update if self._holds(unit, job) else self._holding.difference_update)(unit.names)
        self._pending.append((unit, job))
        assert self._engine is not None
        self._engine.submit(job)

    def _holds(self, unit: Unit, job: Job) -> bool:
        # A dense sum of few bits keeps their errors, and yet every element has its turn in every step.
        return not self._method(unit, job.step).startswith("dense") and job.density < 1.0 and job.worker.keeps_residual

    def _submit_whole(self, tensor: torch.Tensor, done: Callable[[Whole], None]) -> None:
        scale = 1.0 if self.config.op == "sum" else 1.0 / self._linked().size

        def ended(whole: Whole) -> None:
            done(whole)
            self._close_job()

        with self._finished:
            self._open_jobs += 1
        assert self._engine is not None
        self._engine.submit(Whole(tensor, scale, ended))

    def _close_job(self) -> None:
        with self._finished:
            self._open_jobs -= 1
            self._finished.notify_all()

    def _look_at_times(self) -> None:
        """Between steps, with ``auto``: another method, when another one is faster by now. Ranks look at the same step."""
        chooser, engine = self._chooser, self._engine
        if chooser is None or engine is None or engine.error is not None or not chooser.is_due(self._step):
            return
        self._wait()
        density = self.config.density_at(max(0, self._step - self.config.dense_steps))
        chosen = chooser.look(self.config, self._step, density)
        if chosen is not None:
            config, reason = chosen
            self._tell(f"spardl: auto: {reason}")
            self._change_method(config)

    def _change_method(self, config: Config) -> None:
        """What the old method holds back goes on under the new one."""
        sparse = [unit for unit in self._units if not unit.dense]
        held = [self._held(unit, 0, unit.numel) for unit in sparse]
        for unit in sparse:
            self._workers.pop(unit.index, None)
            self._waiting.pop(unit.index, None)
        self.config = config
        for unit, values in zip(sparse, held):
            self._hold(unit, values, 0)

    def _loss_scale(self) -> float:
        scaler = self.config.scaler
        return float(scaler.get_scale()) if scaler is not None and scaler.is_enabled() else 1.0

    @property
    def _books(self) -> list[Correction | Ledger]:
        return [book for book in (self._correction, self._ledger) if book is not None]

    def _prepare(self, unit: Unit, job: Job, prepare: Callable[[], None]) -> None:
        """On the engine's thread, before a unit is reduced."""
        prepare()
        for book in self._books:
            book.taken(unit, job)
        if job.waiting is not None:
            whole = torch.cat([array.to(torch.float32) for array in job.inputs]).mul_(job.scale_in)
            job.inputs, job.scale_in = [whole.add_(job.waiting)], 1.0

    def _end(self, unit: Unit, job: Job, done: Callable[[Job], None]) -> None:
        """On the engine's thread: what a skipped bucket holds, then word to the caller."""
        if job.error is None and not job.skipped:
            for book in self._books:
                book.given(unit, job)
        if job.error is None and job.skipped:
            if self.config.on_non_finite == "raise":
                job.error = FloatingPointError(f"step {job.step}: {job.label}: {job.outcome}")
            for array in job.arrays:
                array.fill_(0.0 if self.config.on_non_finite == "skip" else float("nan"))
        done(job)
        self._close_job()

    def _wait(self) -> None:
        with self._finished:
            self._finished.wait_for(lambda: self._open_jobs == 0)

    def settle(self) -> None:
        """Makes the last step final; happens by itself before the next one and whenever the state is read."""
        self._settle(keep=True)

    def discard_step(self) -> None:
        """Takes the last step back on this rank: every rank must, when the optimiser did not use its gradients."""
        self._settle(keep=False)

    def _settle(self, keep: bool) -> None:
        if not self._pending:
            return
        self._wait()
        pending, self._pending = self._pending, []
        unclaimed, self._unclaimed = self._unclaimed, set()
        failed = any(job.error is not None for _, job in pending)
        skipped = any(job.skipped for _, job in pending)
        if failed or not keep or (skipped and self.config.on_non_finite != "skip"):
            for _, job in pending:
                job.worker.abort()
            return
        for unit, job in pending:
            if job.skipped:
                job.worker.abort()
            else:
                job.worker.commit()
                self._waiting.pop(unit.index, None)
                for book in self._books:
                    book.kept(unit, job, unclaimed)
                self._give_back(unit, job, unclaimed)
        self._step += 1

    def _give_back(self, unit: Unit, job: Job, unclaimed: set[str]) -> None:
        """What was delivered for tensors that nobody reads goes to one rank's residual, another one each step."""
        link = self._linked()
        if job.step % link.size != link.rank or not job.worker.keeps_residual:
            return
        for slot in unit.slots:
            if slot.name in unclaimed:
                job.worker.return_update(slot.start, slot.start + slot.numel)

    # -- state -------------------------------------------------------------------------------------------------------

    @property
    def step(self) -> int:
        """How many steps are final."""
        return self._step

    def holds_back(self, tensor: str | torch.Tensor) -> bool:
        """Does the last step keep a part of this tensor for later? False for dense steps and small tensors."""
        name = tensor if isinstance(tensor, str) else self._names.get(id(tensor))
        return name in self._holding

    def residual(self, name: str) -> torch.Tensor:
        """What this rank keeps of a tensor, in its logical shape, as float32."""
        self.settle()
        if name not in self._unit_of:
            raise ConfigError(f"no tensor is called '{name}'")
        unit, slot = self._unit_of[name]
        return slot.logical(self._held(unit, slot.start, slot.numel)).contiguous()

    def _held(self, unit: Unit, start: int, numel: int) -> torch.Tensor:
        """What this rank keeps of a part of a unit, flat."""
        flat = torch.zeros(numel)
        worker = self._workers.get(unit.index)
        if worker is not None and worker.keeps_residual:
            worker.read_residual(flat, start)
        if unit.index in self._waiting:
            flat += self._waiting[unit.index][start : start + numel]
        return flat

    def _hold(self, unit: Unit, values: torch.Tensor, start: int) -> None:
        """Adds to what this rank keeps of a unit."""
        worker = self._worker(unit, max(self._step, self.config.dense_steps))
        if worker.keeps_residual:
            worker.write_residual(values, start, add=True)
        elif bool(values.any()):
            waiting = self._waiting.setdefault(unit.index, torch.zeros(unit.numel))
            waiting[start : start + values.numel()] += values

    def state_dict(self) -> dict[str, Any]:
        """What this rank needs to go on; every rank saves its own. Safe for ``torch.load(weights_only=True)``."""
        self.settle()
        link = self._linked()
        kept = [name for name, (unit, _) in self._unit_of.items() if self._keeps(unit)]
        return {
            "format": FORMAT,
            "config": self.config.describe(),
            "chosen": self.config.chosen,
            "step": self._step,
            "rank": link.rank,
            "size": link.size,
            "residual": {name: self.residual(name) for name in kept},
            "velocity": {name: self._velocity(name) for name in self._unit_of if self._correction is not None},
            "method": {
                unit.key: self._workers[unit.index].method_state()
                for unit in self._units
                if unit.index in self._workers
            },
        }

    def _velocity(self, name: str) -> torch.Tensor:
        unit, slot = self._unit_of[name]
        assert self._correction is not None
        flat = self._correction.velocity(unit)[slot.start : slot.start + slot.numel]
        return slot.logical(flat).clone(memory_format=torch.contiguous_format)

    def _keeps(self, unit: Unit) -> bool:
        keeps = unit.index in self._workers and self._workers[unit.index].keeps_residual
        return keeps or unit.index in self._waiting

    def load_state_dict(self, state: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> None:
        """Goes on from a saved state: bit for bit with this rank's own.

        With another number of ranks pass the states of all old ranks: old rank i is added to new rank i mod size.
        """
        states = [state] if isinstance(state, Mapping) else sorted(state, key=lambda one: int(one["rank"]))
        link = self._linked()
        mine = self._fitting(states)
        self._settle(keep=False)
        self._workers.clear()
        self._waiting.clear()
        self._restart_books()
        chosen = states[0].get("chosen", self.config.chosen)
        if self._auto:
            # The residual and the bits belong to the method that they were made with.
            if chosen != self.config.chosen:
                # Nothing is expected of it.
                self._chooser = None
            self.config = replace(self.config, **chosen)
            self._tell(f"spardl: auto: goes on with {self.config.name}, as the saved state")
        alike = _named(chosen) == _named(self.config.chosen)
        if not alike:
            self._tell(f"spardl: the saved state is of {_named(chosen)}: its residuals go on, its thresholds and the like begin anew")
        same = alike and int(states[0]["size"]) == link.size
        self._step = int(states[0]["step"])
        for one in mine:
            for name, residual in one["residual"].items():
                self._load_residual(name, residual)
            for name, velocity in one.get("velocity", {}).items():
                self._load_velocity(name, velocity)
            for unit in self._units:
                if same and unit.key in one["method"]:
                    arrays = {name: (kind, values) for name, (kind, values) in one["method"][unit.key].items()}
                    self._worker(unit, max(self._step, self.config.dense_steps)).set_method_state(arrays)

    def _fitting(self, states: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """Those of the states that this rank goes on with; nothing is changed when one is refused."""
        link = self._linked()
        for one in states:
            if one.get("format") != FORMAT:
                raise ConfigError(f"the saved state has format {one.get('format')}, expected {FORMAT}")
        if len(states) != int(states[0]["size"]):
            if int(states[0]["size"]) != link.size or int(states[0]["rank"]) != link.rank:
                raise ConfigError(
                    f"the saved state is rank {states[0]['rank']} of {states[0]['size']}, expected rank {link.rank} "
                    f"of {link.size}; with another number of ranks pass the states of all of them"
                )
        mine = [one for one in states if int(one["rank"]) % link.size == link.rank]
        chosen = self.config if not self._auto else replace(self.config, **states[0].get("chosen", {}))
        # Refused here when it does not fit the number of ranks.
        Worker(chosen.method, 0, link.rank, link.size, value_type=chosen.value_type, options=chosen.texts)
        for one in mine:
            for name, tensor in one.get("velocity", {}).items():
                self._place(name, tensor)
            for name, tensor in one["residual"].items():
                self._place(name, tensor)
                if not bool(tensor.isfinite().all()):
                    raise ConfigError(f"the saved state holds back what is not a number of '{name}'")
            if one.get("velocity") and not self.config.momentum_correction:
                raise ConfigError("the saved state has velocities: pass the momentum_correction it was made with")
        return mine

    def _place(self, name: str, saved: torch.Tensor) -> tuple[Unit, Slot]:
        if name not in self._unit_of:
            raise ConfigError(f"the saved state has a tensor '{name}', the model has not")
        unit, slot = self._unit_of[name]
        if tuple(saved.shape) != slot.shape:
            raise ConfigError(f"'{name}' has shape {tuple(saved.shape)} in the saved state, expected {slot.shape}")
        return unit, slot

    def _load_velocity(self, name: str, velocity: torch.Tensor) -> None:
        unit, slot = self._place(name, velocity)
        assert self._correction is not None
        self._correction.velocity(unit)[slot.start : slot.start + slot.numel].add_(slot.flat(velocity))

    def _load_residual(self, name: str, residual: torch.Tensor) -> None:
        unit, slot = self._place(name, residual)
        self._hold(unit, slot.flat(residual), slot.start)

    def save(self, directory: str) -> None:
        """Writes this rank's state as safetensors into a directory that all ranks share."""
        _files.save(directory, self.state_dict())

    def load(self, directory: str) -> None:
        """Reads what :meth:`save` wrote, with this or another number of ranks."""
        link = self._linked()
        self.load_state_dict(_files.load(directory, link.rank, link.size))

    # -- seeing that it works ----------------------------------------------------------------------------------------

    def _conservation_error(self) -> float:
        """The largest difference, over all elements, between what ranks put in and what they got or still hold."""
        if self._ledger is None:
            raise ConfigError("no accounts were kept: pass conservation=True")
        self.settle()
        worst = largest = 0.0
        for unit in self._units:
            sums = self._ledger.missing(unit, self._held(unit, 0, unit.numel))
            if sums is not None:
                came, went = sums
                self._linked().sum(came)
                worst = max(worst, float((came - went).abs().max()))
                largest = max(largest, float(came.abs().max()))
        return worst / largest if largest else 0.0

    def report(self, *, conservation: bool = False) -> dict[str, float]:
        """Numbers of the last step and of the whole run on this rank: bytes, rounds, times, density, residual.

        With ``conservation`` (all ranks must ask, and the session must have been made with ``conservation=True``) also
        ``conservation_error``: the largest difference, over all elements, between what ranks put in and what they got or still
        hold, in parts of the largest sum. A few 1e-7 are the rounding of sums.
        """
        numbers = self._report.numbers()
        if conservation:
            numbers["conservation_error"] = self._conservation_error()
        norms = [worker.residual_norm for worker in self._workers.values() if worker.keeps_residual]
        norms += [float(waiting.norm()) for waiting in self._waiting.values()]
        numbers["residual_norm"] = float(sum(norm**2 for norm in norms) ** 0.5)
        numbers["step"] = float(self._step)
        return numbers

    def _note_step(self) -> None:
        """After the last bucket of a step: counts, the callback, and the warning when dense is faster."""
        jobs = [job for _, job in self._pending]
        if not jobs or any(job.error is not None for job in jobs):
            return
        elements = sum(unit.numel for unit, _ in self._pending)
        dense = self._step < self.config.dense_steps
        hook_seconds, self._hook_seconds = self._hook_seconds, 0.0
        warning = self._report.note(jobs, elements, dense, self._linked().size, hook_seconds)
        if warning:
            self._tell(warning)
        sparse = [job for unit, job in self._pending if not self._plain(unit, job.step)]
        if self._chooser is not None and sparse:
            took = sum(job.times.local + job.times.waited for job in sparse)
            self._chooser.note(took, sparse[0].density)
        if self.config.on_step is not None:
            self.config.on_step(self.report())

    def close(self) -> None:
        """Ends the thread and its group; happens by itself at exit and when the session is forgotten."""
        if self._closer is not None:
            self._closer()


def _bytes(count: int) -> str:
    """For people."""
    return f"{count / 1e6:.2f} MB" if count >= 1e6 else f"{count / 1e3:.1f} kB"


def _named(chosen: Mapping[str, Any]) -> str:
    """A method with its value type and its options, for people."""
    options = "".join(f" {name}={value}" for name, value in sorted(chosen["options"].items()))
    return Config(method=chosen["method"], value_type=chosen["value_type"]).name + options


def _shut(engine: Engine, link: Link) -> None:
    engine.close()
    link.close()
