"""Which tensors are reduced together: fixed by the model, never by DDP's buckets, which change."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

SUPPORTED = (torch.float32, torch.bfloat16, torch.float16)


@dataclass(frozen=True)
class Slot:
    """One tensor: its place in the flat order of its unit, and how that order maps to its logical shape."""

    name: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    numel: int
    start: int = 0

    @staticmethod
    def of(name: str, tensor: torch.Tensor) -> Slot:
        """The slot of a tensor. DDP lays dense tensors out in storage order, all others in logical order."""
        shape = tuple(tensor.shape)
        dense = _is_dense(shape, tensor.stride())
        stride = tuple(tensor.stride()) if dense else _contiguous(shape)
        return Slot(name, shape, stride, tensor.dtype, tensor.numel())

    def logical(self, flat: torch.Tensor) -> torch.Tensor:
        """A flat array of this slot in the shape of the tensor."""
        return flat.as_strided(self.shape, self.stride, flat.storage_offset())

    def flat(self, logical: torch.Tensor) -> torch.Tensor:
        """The inverse of :meth:`logical`, as float32."""
        flat = torch.empty(self.numel, dtype=torch.float32)
        self.logical(flat).copy_(logical)
        return flat


@dataclass(frozen=True)
class Unit:
    """Tensors that are reduced in one collective."""

    index: int
    slots: tuple[Slot, ...]
    dense: bool

    @property
    def numel(self) -> int:
        """The number of elements."""
        return sum(slot.numel for slot in self.slots)

    @property
    def names(self) -> list[str]:
        """The names of the tensors."""
        return [slot.name for slot in self.slots]

    @property
    def layout(self) -> list[tuple[str, Sequence[int]]]:
        """Names and shapes."""
        return [(slot.name, slot.shape) for slot in self.slots]

    @property
    def key(self) -> str:
        """What identifies the unit in a saved state: its tensors."""
        return "|".join(f"{slot.name}:{slot.numel}" for slot in self.slots)


def plan(slots: Iterable[Slot], bucket_bytes: float, dense_below: int) -> list[Unit]:
    """Units of about ``bucket_bytes``, in the order in which backward tends to deliver: last tensor first.

    Small tensors (fewer than ``dense_below`` dimensions) have units of their own, which are reduced densely.
    """
    open_units: dict[tuple[torch.dtype, bool], list[Slot]] = {}
    closed: list[tuple[bool, list[Slot]]] = []
    for slot in reversed(list(slots)):
        kind = (slot.dtype, len(slot.shape) < dense_below)
        members = open_units.setdefault(kind, [])
        members.append(slot)
        if sum(member.numel for member in members) * torch.finfo(slot.dtype).bits / 8 >= bucket_bytes:
            closed.append((kind[1], open_units.pop(kind)))
    closed += [(dense, members) for (_, dense), members in open_units.items()]
    return [Unit(index, _placed(members), dense) for index, (dense, members) in enumerate(closed)]


def _placed(members: Sequence[Slot]) -> tuple[Slot, ...]:
    placed, start = [], 0
    for slot in members:
        placed.append(Slot(slot.name, slot.shape, slot.stride, slot.dtype, slot.numel, start))
        start += slot.numel
    return tuple(placed)


def _contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    strides, step = [], 1
    for side in reversed(shape):
        strides.append(step)
        step *= max(side, 1)
    return tuple(reversed(strides))


def _is_dense(shape: Sequence[int], stride: Sequence[int]) -> bool:
    """Do the elements fill their memory without gaps or overlaps?"""
    expected = 1
    for step, side in sorted((step, side) for step, side in zip(stride, shape) if side != 1):
        if step != expected:
            return False
        expected *= side
    return True
