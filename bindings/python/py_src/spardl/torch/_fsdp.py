"""FSDP2: shards are reduced between replicas by a hook on every FSDP module."""

from __future__ import annotations

from typing import Any

import torch

from .._native import ConfigError
from ._config import Config
from ._sync import Sync


class FsdpState:
    """The states of the hooks, one per FSDP module, by its name."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.syncs: dict[str, Sync] = {}
        self._saved: dict[str, Any] = {}

    def holds_back(self, tensor: torch.Tensor) -> bool:
        """Does the last step keep a part of this parameter for later? Shards of a module are reduced alike, and modules are too."""
        return any(sync.holds_back(name) for name, sync in self.syncs.items())

    def state_dict(self) -> dict[str, Any]:
        """What this rank needs to go on; modules that have not run since it was loaded have it as it was."""
        return {**self._saved, **{name: sync.state_dict() for name, sync in self.syncs.items()}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from what :meth:`state_dict` gave; modules that have not run yet load when they do."""
        self._saved = dict(state)
        for name, sync in self.syncs.items():
            if name not in self._saved:
                raise ConfigError(f"the saved state has nothing of the FSDP module '{name}'")
            sync.load_state_dict(self._saved.pop(name))

    def settle(self) -> None:
        """Makes the last step final."""
        for sync in self.syncs.values():
            sync.settle()

    def discard_step(self) -> None:
        """Takes the last step back: every rank must."""
        for sync in self.syncs.values():
            sync.discard_step()

    def report(self) -> dict[str, dict[str, float]]:
        """The numbers of :meth:`Sync.report`, by module."""
        return {name: sync.report() for name, sync in self.syncs.items()}

    def close(self) -> None:
        """Ends the threads and their groups."""
        for sync in self.syncs.values():
            sync.close()


def fsdp_hook(module: torch.nn.Module, group: Any, **config: Any) -> FsdpState:
    """Reduces the gradient shards of an FSDP2 model between replicas sparsely, right after FSDP's own reduce-scatter.

    ``module`` was sharded with ``fully_shard`` over a 1-D mesh of the ranks of one replica; ``group`` holds the ranks that have
    the same shard in all replicas. The result is the mean over replicas. The hook runs on every backward pass: with
    gradient accumulation call ``module.set_requires_gradient_sync(False)`` until the last one. Keywords are the fields of
    :class:`spardl.torch.Config`.
    """
    from torch.distributed.fsdp import FSDPModule

    state = FsdpState(Config(**{**config, "dense_below": 0}))
    if state.config.method == "auto":
        raise ConfigError("method 'auto' would be chosen anew for every FSDP module, inside backward: name a method")
    found = [(name, part) for name, part in module.named_modules() if isinstance(part, FSDPModule)]
    if not found:
        raise ConfigError("no part of the model is an FSDP module: call fully_shard first")
    for name, part in found:
        part.set_all_reduce_hook(_hook(state, name or "(root)", group, config))
    return state


def _hook(state: FsdpState, name: str, group: Any, config: dict[str, Any]) -> Any:
    def reduce(shards: torch.Tensor) -> None:
        # The length depends on which parameters had gradients: the first step fixes it.
        if name not in state.syncs:
            options = {"banner": False, **config, "dense_below": 0}
            state.syncs[name] = Sync([(name, shards)], group, **options)
            if name in state._saved:
                state.syncs[name].load_state_dict(state._saved.pop(name))
        sync = state.syncs[name]
        if shards.numel() != sync.numel:
            words = f"the shard of '{name}' has {shards.numel()} elements, it had {sync.numel} in the first step"
            raise sync.fail(ConfigError(f"{words}: all its parameters must have gradients in every step"))
        sync.start({name: shards})
        sync.wait()

    return reduce
