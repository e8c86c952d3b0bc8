"""States as safetensors files, one per rank, without any further package."""

from __future__ import annotations

import json
import os
import re
import struct
from typing import Any

import torch

from .._native import ConfigError

_NAME = re.compile(r"spardl-rank(\d{5})-of-(\d{5})\.safetensors")

_VELOCITY = "velocity:"


def save(directory: str, state: dict[str, Any]) -> None:
    """Writes a state; a file is there whole or not at all."""
    os.makedirs(directory, exist_ok=True)
    table: dict[str, Any] = {}
    meta = {name: value for name, value in state.items() if name not in ("residual", "velocity")}
    table["__metadata__"] = {"spardl": json.dumps(meta)}
    tensors = {**state["residual"], **{_VELOCITY + name: tensor for name, tensor in state["velocity"].items()}}
    at = 0
    for name, tensor in tensors.items():
        end = at + 4 * tensor.numel()
        table[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [at, end]}
        at = end
    header = json.dumps(table).encode()
    header += b" " * (-len(header) % 8)
    path = os.path.join(directory, f"spardl-rank{state['rank']:05d}-of-{state['size']:05d}.safetensors")
    with open(f"{path}.part", "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        for tensor in tensors.values():
            file.write(_bytes(tensor))
        file.flush()
        os.fsync(file.fileno())
    os.replace(f"{path}.part", path)


def load(directory: str, rank: int, size: int) -> dict[str, Any] | list[dict[str, Any]]:
    """This rank's state, or all of them when they are of another number of ranks."""
    found = [match for match in map(_NAME.fullmatch, sorted(os.listdir(directory))) if match]
    sizes = sorted({int(match[2]) for match in found})
    if size in sizes:
        return _read(os.path.join(directory, f"spardl-rank{rank:05d}-of-{size:05d}.safetensors"))
    if len(sizes) != 1 or len(found) != sizes[0]:
        held = f"{len(found)} files of runs with {sizes} ranks"
        raise ConfigError(f"'{directory}' holds {held}, expected every rank of one run")
    return [_read(os.path.join(directory, match[0])) for match in found]


def _read(path: str) -> dict[str, Any]:
    with open(path, "rb") as file:
        data = bytearray(file.read())
    try:
        (length,) = struct.unpack_from("<Q", data)
        table = json.loads(data[8 : 8 + length])
        state: dict[str, Any] = json.loads(table.pop("__metadata__")["spardl"])
        state |= {"residual": {}, "velocity": {}}
        for name, entry in table.items():
            start, end = (8 + length + offset for offset in entry["data_offsets"])
            flat = torch.empty(0)
            if end > start:
                flat = torch.frombuffer(data, dtype=torch.float32, count=(end - start) // 4, offset=start)
            kind = "velocity" if name.startswith(_VELOCITY) else "residual"
            state[kind][name.removeprefix(_VELOCITY)] = flat.reshape(entry["shape"])
    except (struct.error, ValueError, KeyError, TypeError, RuntimeError) as error:
        raise ConfigError(f"'{path}' is damaged: {error}") from error
    return state


def _bytes(tensor: torch.Tensor) -> bytearray:
    data = bytearray(4 * tensor.numel())
    if data:
        torch.frombuffer(data, dtype=torch.float32).copy_(tensor.reshape(-1))
    return data
