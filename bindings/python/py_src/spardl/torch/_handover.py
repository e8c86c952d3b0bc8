"""Momentum hand-over: mass that waits in the residual already acts as momentum, so steps that hold mass back need none on top."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import torch

from .._native import ConfigError
from ._config import Config

_HANDED = "handed_over"
_WAITS = "spardl_waits"


class HoldsBack(Protocol):
    """Something that reduces parameters and knows of which of them the last step kept a part back."""

    config: Config

    def holds_back(self, tensor: torch.Tensor) -> bool:
        """Does the last step keep a part of this tensor for later?"""


class HandOver(ABC):
    """What :func:`hand_over` returns; ``remove()`` gives the optimiser back as it was."""

    def __init__(self, optimizer: torch.optim.Optimizer, state: HoldsBack, momentum: float = 0.0) -> None:
        self._optimizer = optimizer
        self._state = state
        self._momentum = momentum
        self._whole: list[dict[str, Any]] | None = None
        self._hooks = [optimizer.register_step_pre_hook(self._before), optimizer.register_step_post_hook(self._after)]

    def remove(self) -> None:
        """From now on the optimiser treats all steps alike."""
        self._restore()
        for hook in self._hooks:
            hook.remove()

    def _before(self, _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        self._restore()
        args, kwargs = _evaluated(args, kwargs)
        split = [part for group in self._optimizer.param_groups for part in self._split(group)]
        # The same list with other groups while the step runs: schedulers and saved states never see them.
        self._whole = list(self._optimizer.param_groups)
        self._optimizer.param_groups[:] = split
        return args, kwargs

    def _after(self, *_: Any) -> None:
        self._restore()

    def _restore(self) -> None:
        """Also after a step that raised."""
        if self._whole is not None:
            self._optimizer.param_groups[:], self._whole = self._whole, None

    def _split(self, group: dict[str, Any]) -> Iterable[dict[str, Any]]:
        """The parameters of a group that are stepped as always, and those of which mass is held back."""
        held: list[torch.Tensor] = []
        plain: list[torch.Tensor] = []
        for parameter in group["params"]:
            if parameter.grad is None:
                continue
            holds = not parameter.grad.is_sparse and self._takes(parameter)
            self._change(parameter, holds)
            (held if holds else plain).append(parameter)
        if plain:
            yield {**group, "params": plain}
        if held:
            yield from self._step_held({**group, "params": held})

    def _takes(self, parameter: torch.Tensor) -> bool:
        """Is this step of a parameter one to be made here?"""
        return self._state.holds_back(parameter)

    def _change(self, parameter: torch.Tensor, holds: bool) -> None:
        """The velocity is dropped where a parameter's steps begin or cease to hold mass back."""
        state = self._optimizer.state.get(parameter, {})
        if bool(state.get(_HANDED, False)) == holds:
            return
        self._drop_velocity(state)
        self._optimizer.state[parameter] = state
        state[_HANDED] = holds

    @abstractmethod
    def _drop_velocity(self, state: dict[str, Any]) -> None:
        """Forgets what the optimiser keeps of earlier steps of a parameter."""

    @abstractmethod
    def _step_held(self, group: dict[str, Any]) -> Iterable[dict[str, Any]]:
        """Steps parameters of which mass is held back: the groups for the optimiser to step, none when it is done here."""


class _ByWait(HandOver):
    """After a delivery an element stands where momentum would have brought it, had nothing waited.

    An update that comes after t steps counts as that many equal gradients. What momentum would have done with them by now moves
    the parameter at once, the rest goes into the velocity. With b = (1 - m^t) / (t (1 - m)) and a = (1 - m b) / (1 - m):
    w -= lr (m v + a u + decay w), v = m v + b u + decay w. Where nothing waits (t = 1) a = b = 1, which is plain momentum.
    """

    def _takes(self, parameter: torch.Tensor) -> bool:
        # The first whole step after others delivers what waited.
        waits = self._optimizer.state.get(parameter, {}).get(_WAITS)
        return super()._takes(parameter) or (waits is not None and bool(waits.any()))

    def _change(self, parameter: torch.Tensor, holds: bool) -> None:
        """Nothing is dropped: the velocity has what is still to come."""

    def _drop_velocity(self, state: dict[str, Any]) -> None:
        """Nothing is dropped: the velocity has what is still to come."""

    @torch.no_grad()
    def _step_held(self, group: dict[str, Any]) -> Iterable[dict[str, Any]]:
        momentum = group["momentum"]
        if not momentum:
            yield group
            return
        powers = _powers(momentum)
        # What the velocity of before, and this step's decay, move by now.
        old, new = (momentum * momentum, 1.0 + momentum) if group["nesterov"] else (momentum, 1.0)
        for parameter in group["params"]:
            velocity, waits = self._kept(parameter)
            update = parameter.grad.mul((-1.0 if group["maximize"] else 1.0) * (1.0 - group["dampening"]))
            slope = parameter.mul(group["weight_decay"] * (1.0 - group["dampening"]))
            delivered = update != 0
            waits += 1.0
            power = powers.to(waits.device)[waits.clamp(max=len(powers) - 1).long()]
            later = (1.0 - power) / (waits * (1.0 - momentum))
            now = (1.0 - old * later) / (1.0 - momentum)
            parameter.sub_(velocity * old + (now * update + slope * new), alpha=group["lr"])
            velocity.mul_(momentum).add_(later * update + slope)
            # A whole step delivers also what is zero.
            waits.masked_fill_(delivered | (not self._state.holds_back(parameter)), 0.0)

    def _kept(self, parameter: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The velocity of a parameter, where torch keeps it too, and the steps since its elements were delivered."""
        state = self._optimizer.state[parameter]
        if state.get("momentum_buffer") is None:
            state["momentum_buffer"] = torch.zeros_like(parameter)
        if _WAITS not in state:
            state[_WAITS] = torch.zeros_like(parameter, dtype=torch.float32)
        return state["momentum_buffer"], state[_WAITS]


def _powers(momentum: float) -> torch.Tensor:
    """momentum^t for t = 0, 1, .. until it is nothing beside 1; from a table, so that all machines have the same bits."""
    powers = [1.0]
    while powers[-1] > 2.0**-25:
        powers.append(powers[-1] * momentum)
    return torch.tensor([*powers, 0.0])


class _Sgd(HandOver):
    """v = s v + u + decay w; w -= lr (1 - s) / (1 - momentum) v."""

    def _drop_velocity(self, state: dict[str, Any]) -> None:
        state.pop("momentum_buffer", None)

    def _step_held(self, group: dict[str, Any]) -> Iterable[dict[str, Any]]:
        gain = (1.0 - group["dampening"]) / (1.0 - group["momentum"]) if group["momentum"] else 1.0
        lr = group["lr"] * ((1.0 - self._momentum) * gain)
        yield {**group, "lr": lr, "momentum": self._momentum, "dampening": 0.0}


class _Adam(HandOver):
    """w -= lr m / (sqrt(v) + eps) with m = s m + (1 - s) u, and v as the dense steps left it."""

    def _drop_velocity(self, state: dict[str, Any]) -> None:
        if "exp_avg" in state:
            state["exp_avg"].zero_()

    @torch.no_grad()
    def _step_held(self, group: dict[str, Any]) -> Iterable[dict[str, Any]]:
        decoupled = group.get("decoupled_weight_decay", isinstance(self._optimizer, torch.optim.AdamW))
        for parameter in group["params"]:
            state = self._optimizer.state[parameter]
            if "exp_avg_sq" not in state:
                raise ConfigError("a parameter has no second moment yet: Adam needs dense steps first (dense_steps)")
            gradient = -parameter.grad if group["maximize"] else parameter.grad
            if group["weight_decay"] and decoupled:
                parameter.mul_(1.0 - group["lr"] * group["weight_decay"])
            elif group["weight_decay"]:
                gradient = gradient.add(parameter, alpha=group["weight_decay"])
            if self._momentum:
                gradient = state["exp_avg"].lerp_(gradient, 1.0 - self._momentum)
            second = state["max_exp_avg_sq" if group["amsgrad"] else "exp_avg_sq"]
            seen = 1.0 - group["betas"][1] ** state["step"]
            parameter.sub_(gradient / ((second / seen).sqrt_().add_(group["eps"])) * group["lr"])
        return ()


def hand_over(optimizer: torch.optim.Optimizer, state: HoldsBack, momentum: float | None = None) -> HandOver:
    """Has an optimiser hand its momentum over to the residual in steps that hold mass back.

    Call it once, after :func:`register` (or with the state of a :class:`Sync` or :func:`fsdp_hook`) and after the optimiser was made::

        state = spardl.torch.register(model, density=0.01)
        optimiser = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9)
        spardl.torch.hand_over(optimiser, state)

    Dense steps and tensors that are reduced densely keep their momentum. Elsewhere every element under SGD has the momentum that
    its wait leaves: all of it where nothing waited, next to none after long waits. With a number for ``momentum`` all elements
    have that much instead, at the rate ``lr (1 - momentum) / (1 - its own momentum)``, the velocity dropped at the hand-over.
    Adam and AdamW step with ``momentum`` for beta1 (0 without) and the second moment as the dense steps left it, so there must
    be some. Learning rates may be scheduled as ever, and what is kept is part of the optimiser's ``state_dict``: call
    ``hand_over`` again after a restart. Other optimisers are refused. Needs torch 2.
    """
    own = [group["momentum"] for group in optimizer.param_groups if "momentum" in group]
    for given in own if momentum is None else [*own, momentum]:
        if not 0.0 <= given < 1.0:
            raise ConfigError(f"momentum = {given} is not accepted: expected at least 0 and below 1")
    if not hasattr(optimizer, "register_step_pre_hook"):
        raise ConfigError("this torch has no hooks around an optimiser's step: torch 2 or newer is needed")
    if not isinstance(getattr(state, "config", None), Config):
        raise ConfigError("state is not accepted: give what register, Sync or fsdp_hook returned")
    if state.config.momentum_correction:
        raise ConfigError("with momentum_correction the optimiser has no momentum to hand over: use one of the two")
    if isinstance(optimizer, torch.optim.SGD):
        return _ByWait(optimizer, state) if momentum is None else _Sgd(optimizer, state, momentum)
    if isinstance(optimizer, (torch.optim.Adam, torch.optim.AdamW)):
        if state.config.dense_steps < 1:
            raise ConfigError("Adam takes its second moment from dense steps: dense_steps must be at least 1")
        return _Adam(optimizer, state, momentum or 0.0)
    raise ConfigError(f"{type(optimizer).__name__} has no hand-over: use SGD, Adam or AdamW")


def _evaluated(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A closure runs backward inside ``step``; here it runs before, since only then is known what the step holds back."""
    closure: Callable[[], Any] | None = kwargs.get("closure")
    if closure is None and len(args) > 1:
        closure = args[1]
    if closure is None:
        return args, kwargs
    with torch.enable_grad():
        loss = closure()
    return args[:1], {"closure": lambda: loss}
