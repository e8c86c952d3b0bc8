"""The group that carries our messages, the handshake on it, and the words of an error that go to all ranks."""

from __future__ import annotations

import itertools
from datetime import timedelta
from typing import Any, cast

import torch.distributed as dist

from .._native import ConfigError
from ._engine import PeerError

_numbers = itertools.count()


class Link:
    """A gloo group of our own beside the user's, with the same ranks. All of them must make it, in the same order."""

    def __init__(self, user_group: Any, timeout: timedelta) -> None:
        world = list(range(dist.get_world_size()))
        ranks = world if user_group is None else ranks_of(user_group)
        arguments: dict[str, Any] = {"ranks": ranks, "timeout": timeout, "backend": "gloo"}
        if ranks != world:
            # Only the members are here; without this new_group would wait for everybody.
            arguments["use_local_synchronization"] = True
        self.group = cast(Any, dist.new_group(**arguments))
        self.ranks = ranks
        self.rank: int = self.group.rank()
        self.size: int = self.group.size()
        number = next(_numbers)
        store = dist.distributed_c10d._get_default_store()
        self._store: Any = dist.distributed_c10d.PrefixStore(f"spardl/{number}/{ranks[0]}", store)

    def compare(self, what: str, mine: str) -> None:
        """Refuses on all ranks when one differs. Also opens all connections while only this thread uses the store."""
        lines: list[Any] = [None] * self.size
        dist.all_gather_object(lines, mine, group=self.group)
        for rank, line in enumerate(lines):
            if line != lines[0]:
                raise ConfigError(f"{what} differs between ranks: rank {rank} has {line}, rank 0 has {lines[0]}")

    def share(self, error: BaseException) -> BaseException:
        """Tells an error of this rank to the others, or finds out what went wrong there; then closes the group, so that nobody waits."""
        told = error
        try:
            if isinstance(error, PeerError):
                self._store.wait(["error"], timedelta(seconds=2))
                told = PeerError(f"{self._store.get('error').decode()} ({error})")
            else:
                self._store.set("error", f"rank {self.rank}: {error}")
        except Exception:  # noqa: BLE001: without the store the local words must do
            pass
        self.close()
        return told

    def close(self) -> None:
        """Closes the connections; peers that wait for us fail at once."""
        group, self.group = self.group, None
        if group is None or not dist.is_initialized():
            return
        try:
            dist.destroy_process_group(group)
        except Exception:  # noqa: BLE001: it is gone either way
            pass


def ranks_of(group: Any) -> list[int]:
    """The members of a group, by their numbers in the world."""
    if hasattr(dist, "get_process_group_ranks"):
        return list(dist.get_process_group_ranks(group))
    return sorted(dist.distributed_c10d._pg_group_ranks[group])
