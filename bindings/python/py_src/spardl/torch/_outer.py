"""Outer steps in the manner of DiLoCo and SparseLoCo: many local steps, then a sparse exchange of what they changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from ._sync import Sync


class OuterStep:
    """Every ``every`` calls of ``step()`` ranks exchange how far their parameters moved, sparsely and with error feedback.

    Use any optimiser between, on every rank by itself and without DDP::

        outer = spardl.torch.OuterStep(model.named_parameters(), every=30, density=0.02)
        for inputs, labels in batches:
            ...
            optimiser.step()
            outer.step()

    The mean difference is the gradient of an outer SGD with Nesterov momentum. Further keywords are those of
    :class:`spardl.torch.Config`; there are no dense steps unless asked for.
    """

    def __init__(
        self,
        named_parameters: Iterable[tuple[str, torch.Tensor]],
        *,
        every: int = 30,
        lr: float = 0.7,
        momentum: float = 0.9,
        nesterov: bool = True,
        group: Any = None,
        **config: Any,
    ) -> None:
        self._parameters = {name: p for name, p in named_parameters if p.requires_grad}
        self.every, self.lr, self.momentum, self.nesterov = every, lr, momentum, nesterov
        self._anchor = {name: p.detach().clone() for name, p in self._parameters.items()}
        self._moved = {name: torch.zeros_like(p) for name, p in self._anchor.items()}
        self._velocity = {name: torch.zeros_like(p) for name, p in self._anchor.items()}
        self._local = 0
        self.sync = Sync(self._moved.items(), group, **{"dense_steps": 0, **config})

    def step(self) -> bool:
        """After every local step; returns whether ranks exchanged and now have equal parameters."""
        self._local += 1
        if self._local % self.every:
            return False
        self.exchange()
        return True

    @torch.no_grad()
    def exchange(self) -> None:
        """Exchanges now. A step that was skipped (NaN on some rank) takes all ranks back to where they last agreed."""
        for name, parameter in self._parameters.items():
            torch.sub(self._anchor[name], parameter, out=self._moved[name])
        self.sync.start()
        updated = self.sync.wait() == "updated"
        for name, parameter in self._parameters.items():
            if updated:
                moved, velocity = self._moved[name], self._velocity[name]
                velocity.mul_(self.momentum).add_(moved)
                direction = moved.add(velocity, alpha=self.momentum) if self.nesterov else velocity
                self._anchor[name].add_(direction, alpha=-self.lr)
            parameter.copy_(self._anchor[name])

    def state_dict(self) -> dict[str, Any]:
        """What this rank needs to go on, beside the model and the optimiser."""
        return {
            "local": self._local,
            "anchor": {name: tensor.clone() for name, tensor in self._anchor.items()},
            "velocity": {name: tensor.clone() for name, tensor in self._velocity.items()},
            "sync": self.sync.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from what :meth:`state_dict` gave."""
        self._local = int(state["local"])
        for mine, saved in ((self._anchor, state["anchor"]), (self._velocity, state["velocity"])):
            for name, tensor in mine.items():
                tensor.copy_(saved[name])
        self.sync.load_state_dict(state["sync"])
