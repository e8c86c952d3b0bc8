"""What an interrupted run goes on from: a file per rank, replaced after every epoch."""

import pathlib
from typing import Any

import torch
import torch.distributed as dist


class Progress:
    """The newest state of one run on this rank."""

    def __init__(self, directory: pathlib.Path, run: str) -> None:
        self._directory = directory
        self._stem = f"{''.join(sign if sign.isalnum() else '-' for sign in run)}.rank{dist.get_rank()}"

    def _found(self) -> dict[int, pathlib.Path]:
        files = self._directory.glob(f"{self._stem}.epoch*.pt")
        return {int(file.suffixes[-2].removeprefix(".epoch")): file for file in files}

    def load(self) -> dict[str, Any] | None:
        """The newest state that all ranks have."""
        found = self._found()
        epoch = torch.tensor(max(found, default=0))
        dist.all_reduce(epoch, dist.ReduceOp.MIN)
        if not epoch:
            return None
        # Our own file: the state of torch's powerSGD hook has generators in it, which are no plain values.
        state: dict[str, Any] = torch.load(found[int(epoch)], weights_only=False)
        return state

    def save(self, epoch: int, state: dict[str, Any]) -> None:
        """An older state goes when all ranks have the new one."""
        older = self._found()
        self._write(epoch, state)
        dist.barrier()
        for file in older.values():
            file.unlink()

    def _write(self, epoch: int, state: dict[str, Any]) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        half = self._directory / f"{self._stem}.half"
        torch.save(state, half)
        half.rename(self._directory / f"{self._stem}.epoch{epoch}.pt")

    def clear(self) -> None:
        """The run is over."""
        for file in self._found().values():
            file.unlink()
