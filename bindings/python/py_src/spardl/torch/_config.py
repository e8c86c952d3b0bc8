"""What a user chooses, checked once and compared between ranks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from numbers import Integral, Real
from typing import Any

import torch

from .._native import ConfigError, cost

Density = float | Sequence[float] | Callable[[int], float]
"""A number from 0 to 1, one per step (the last one stays), or a function of the step; equal on all ranks."""


@dataclass(frozen=True)
class Config:
    """How gradients are reduced; every field is a keyword of ``register`` and its relatives."""

    method: str = "spardl"
    """A name of ``spardl.methods()``, also with a value type: ``spardl-bf16``, ``spardl-q4``; or ``auto``, the fastest one here."""
    density: Density = 0.01
    """The part of the entries that an update should have."""
    value_type: str | None = None
    """How values travel: ``f32``, ``bf16``, ``q8``, ``q4``, ``q2`` or ``q1``."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the method, as ``spardl.explain`` lists them."""
    op: str = "mean"
    """``mean`` or ``sum``."""
    dense_steps: int = 10
    """The first steps are dense; they also tell how fast dense is."""
    dense_below: int = 2
    """Tensors with fewer dimensions (biases, norms) are reduced densely; 0 for none."""
    momentum_correction: float = 0.0
    """Momentum on each rank before the reduction (Deep Gradient Compression); the optimiser then has none."""
    factor_masking: bool = False
    """With momentum correction: the momentum of an element stops where its mass was delivered."""
    conservation: bool = False
    """Keeps accounts, so that ``conservation_error()`` can tell whether anything was lost; 32 bytes per element."""
    on_non_finite: str = "propagate"
    """NaN or infinity on any rank: ``propagate`` NaN as dense DDP does, ``skip`` the bucket (zeros), or ``raise``."""
    bucket_mb: float = 25.0
    """Tensors are reduced in groups of about this size, whatever DDP's buckets are."""
    in_flight: int = 4
    """How many groups may be under way at once."""
    retune: float = 3.0
    """``auto`` chooses again when steps take so many times longer, or shorter, than expected; 0: never."""
    threads: int = 1
    """Threads of a rank for the pass over large gradients; the bits are the same for any number."""
    timeout: float = 300.0
    """Seconds to wait for a peer."""
    staging: str = "auto"
    """``auto``: device tensors go through pinned host memory; ``always``: CPU tensors too."""
    scaler: torch.amp.GradScaler | None = None
    """The scaler of the losses: residuals are then kept unscaled."""
    on_step: Callable[[dict[str, float]], None] | None = None
    """Called after every step with the numbers of ``report()``, for TensorBoard or W&B."""
    banner: bool = True
    """One line on rank 0 that says what runs."""

    def __post_init__(self) -> None:
        self._one_of("op", ("mean", "sum"))
        self._one_of("on_non_finite", ("propagate", "skip", "raise"))
        self._one_of("staging", ("auto", "always"))
        for name, least in (("dense_steps", 0), ("dense_below", 0), ("in_flight", 1), ("threads", 1)):
            self._number(name, Integral, "a whole number", least)
        self._number("retune", Real, "0 or a number from 1 on", 0.0 if self.retune == 0 else 1.0)
        for name in ("bucket_mb", "timeout"):
            self._number(name, Real, "a number above 0", math.ulp(0.0))
        if not isinstance(self.options, Mapping):
            raise ConfigError(f"options = {self.options!r} is not accepted: expected a dict, as in {{'teams': 2}}")
        for name in ("scale", "get_scale"):
            if self.scaler is not None and not hasattr(self.scaler, name):
                raise ConfigError(f"scaler = {self.scaler!r} is not accepted: expected a torch.amp.GradScaler")
        if self.on_step is not None and not callable(self.on_step):
            raise ConfigError(f"on_step = {self.on_step!r} is not accepted: expected a function of a dict of numbers")
        if not 0.0 <= self.momentum_correction < 1.0:
            raise ConfigError(f"momentum_correction = {self.momentum_correction} is not accepted: expected at least 0 and below 1")
        if isinstance(self.density, str) or (isinstance(self.density, Sequence) and not self.density):
            raise ConfigError(f"density = {self.density!r} is not accepted: a number, one per step, or a function of the step")
        if self.factor_masking and not self.momentum_correction:
            raise ConfigError("factor_masking needs a momentum_correction above 0")
        if self.method == "auto" and self.options:
            raise ConfigError("method 'auto' chooses the options of a method itself: name the method to set them")
        method = "spardl" if self.method == "auto" else self.method
        cost(method, 1, 1, density=self.density_at(0), value_type=self.value_type, options=self.texts)

    def _number(self, name: str, kind: type, words: str, least: float) -> None:
        value = getattr(self, name)
        if not isinstance(value, kind) or not math.isfinite(value) or not value >= least:  # type: ignore[arg-type, operator]
            least_words = f", at least {least}" if kind is Integral else ""
            raise ConfigError(f"{name} = {value!r} is not accepted: expected {words}{least_words}")

    def _one_of(self, name: str, accepted: tuple[str, ...]) -> None:
        value = getattr(self, name)
        if value not in accepted:
            raise ConfigError(f"{name} = '{value}' is not accepted: use {' or '.join(accepted)}")

    @property
    def name(self) -> str:
        """The method with its value type."""
        return self.method if self.value_type is None else f"{self.method}-{self.value_type}"

    @property
    def chosen(self) -> dict[str, Any]:
        """What ``auto`` chooses, in plain values."""
        return {"method": self.method, "value_type": self.value_type, "options": self.texts}

    @property
    def texts(self) -> dict[str, str]:
        """The options as the registry reads them."""
        return {name.replace("_", "-"): str(value) for name, value in self.options.items()}

    @property
    def wait(self) -> timedelta:
        """The deadline of every wait."""
        return timedelta(seconds=self.timeout)

    def density_at(self, step: int) -> float:
        """The density of a step; the dense ones are not counted."""
        if callable(self.density):
            return float(self.density(step))
        if isinstance(self.density, (int, float)):
            return float(self.density)
        return float(self.density[min(step, len(self.density) - 1)])

    def describe(self) -> str:
        """What must be equal on all ranks, in one line."""
        density = "a function" if callable(self.density) else self.density
        shared: list[tuple[str, Any]] = [("method", self.method), ("density", density), ("value_type", self.value_type)]
        shared += [("options", sorted(self.texts.items())), ("op", self.op)]
        shared += [("dense_steps", self.dense_steps), ("dense_below", self.dense_below)]
        shared += [("momentum_correction", self.momentum_correction), ("factor_masking", self.factor_masking)]
        shared += [("conservation", self.conservation), ("on_non_finite", self.on_non_finite), ("bucket_mb", self.bucket_mb)]
        shared += [("retune", self.retune)] if self.method == "auto" else []
        return " ".join(f"{name}={value}" for name, value in shared)
