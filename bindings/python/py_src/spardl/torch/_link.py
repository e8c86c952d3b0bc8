"""The group that carries our messages, the handshake on it, and the words of an error that go to all ranks."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from .._native import ConfigError
from ._engine import PeerError

_NEVER = (1 << 21) + 1
"""A tag that no message has."""


class Link:
    """Connections of our own beside the user's group, between the same ranks. All of them must make it, in the same order.

    They are no group of torch: one that only some ranks make would count there, and ranks that count differently can make no
    further group together.
    """

    def __init__(self, user_group: Any, timeout: timedelta) -> None:
        inside: Any = dist.distributed_c10d
        group = inside._get_default_group() if user_group is None else user_group
        self.ranks = ranks_of(group)
        self.rank: int = group.rank()
        self.size: int = group.size()
        store = inside._get_default_store()
        place = f"spardl/{_name_of(group)}"
        # The ranks of a group make their links in the same order, whatever else each of them does.
        number = store.add(f"{place}/{self.rank}", 1)
        self._store: Any = inside.PrefixStore(f"{place}/{number}", store)
        self.group: Any = inside.ProcessGroupGloo(inside.PrefixStore("gloo", self._store), self.rank, self.size, timeout)

    def compare(self, what: str, mine: str) -> None:
        """Refuses on all ranks when one differs. Also opens all connections while only this thread uses the store."""
        lines = self._gather(mine)
        for rank, line in enumerate(lines):
            if line != lines[0]:
                raise ConfigError(f"{what} differs between ranks: rank {rank} has {line}, rank 0 has {lines[0]}")

    def _gather(self, mine: str) -> list[str]:
        """What every rank says."""
        text = mine.encode()
        lengths = self._gathered(torch.tensor([len(text)]))
        room = torch.zeros(max(1, *(int(length) for length in lengths)), dtype=torch.uint8)
        room[: len(text)] = torch.tensor(list(text), dtype=torch.uint8)
        texts = self._gathered(room)
        return [bytes(one[: int(length)].tolist()).decode() for one, length in zip(texts, lengths)]

    def _gathered(self, mine: torch.Tensor) -> list[torch.Tensor]:
        all_ranks = [torch.empty_like(mine) for _ in range(self.size)]
        self.group.allgather([all_ranks], [mine]).wait()
        return all_ranks

    def hear(self, mine: float) -> list[float]:
        """A number of every rank."""
        return [float(one) for one in self._gathered(torch.tensor([mine], dtype=torch.float64))]

    def sum(self, tensor: torch.Tensor) -> None:
        """Replaces a tensor by its sum over ranks."""
        self.group.allreduce([tensor]).wait()

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
        self._hang_up()
        self.close()
        return told

    def _hang_up(self) -> None:
        """Breaks all connections, so that peers that wait for us fail at once: gloo does so when a wait of ours is too long."""
        group = self.group
        if group is None or self.size == 1:
            return
        try:
            nothing = torch.empty(1, dtype=torch.uint8)
            group.recv([nothing], (self.rank + 1) % self.size, _NEVER).wait(timedelta(milliseconds=1))
        except RuntimeError:
            pass

    def close(self) -> None:
        """Lets go of the connections."""
        self.group = None


def _name_of(group: Any) -> str:
    """What the ranks of a group call it alike."""
    inside: Any = dist.distributed_c10d
    names = inside._world.pg_names if hasattr(inside, "_world") else inside._pg_names
    return str(names[group])


def ranks_of(group: Any) -> list[int]:
    """The members of a group, by their numbers in the world."""
    if hasattr(dist, "get_process_group_ranks"):
        return list(dist.get_process_group_ranks(group))
    return sorted(dist.distributed_c10d._pg_group_ranks[group])
