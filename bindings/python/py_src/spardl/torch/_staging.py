"""How the memory of a bucket reaches the kernels: in place on the CPU, through host memory from a device."""

from __future__ import annotations

import contextlib
from typing import Any

import torch


class Direct:
    """CPU memory is reduced where it is."""

    def __init__(self, buffer: torch.Tensor) -> None:
        self.host = buffer
        self._buffer = buffer
        self.future: torch.futures.Future[torch.Tensor] = torch.futures.Future()

    def arrive(self) -> None:
        """Waits until the host memory holds the gradient."""

    def complete(self) -> None:
        """The host memory holds the result: completes the future with the buffer."""
        self.future.set_result(self._buffer)

    def fail(self, error: BaseException) -> None:
        """There is no result."""
        future: Any = self.future
        future.set_exception(error)


class Staged(Direct):
    """A copy in host memory; copies run on a stream of their own and are ordered by events."""

    def __init__(self, buffer: torch.Tensor, device: Host) -> None:
        super().__init__(buffer)
        self.future = device.future()
        self._stream = device.stream()
        with self._stream:
            self.host = device.room_for(buffer)
            self.host.copy_(buffer, non_blocking=True)
            self._event = self._stream.record_event()
        device.hold(buffer, self._stream)

    def arrive(self) -> None:
        self._event.synchronize()

    def complete(self) -> None:
        # The future takes its events from the current streams: the copy back is then waited for by whoever reads the result.
        with self._stream:
            self._buffer.copy_(self.host, non_blocking=True)
            self.future.set_result(self._buffer)


class Host:
    """What staging asks of a device; this one is the CPU, which does everything at once."""

    def future(self) -> torch.futures.Future[torch.Tensor]:
        """One that knows the device of its result."""
        return torch.futures.Future()

    def stream(self) -> Any:
        """A stream for copies, behind everything that the device was told so far."""
        return _AtOnce()

    def room_for(self, buffer: torch.Tensor) -> torch.Tensor:
        """Host memory that the device copies to without a detour."""
        return torch.empty_like(buffer)

    def hold(self, buffer: torch.Tensor, stream: Any) -> None:
        """Keeps the memory of a buffer from being used again before the stream is done with it."""


class Device(Host):
    """An accelerator of torch."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def future(self) -> torch.futures.Future[torch.Tensor]:
        return torch.futures.Future(devices=[self._device])

    def stream(self) -> Any:
        stream = torch.Stream(device=self._device)
        stream.wait_stream(torch.accelerator.current_stream(self._device))
        return stream

    def room_for(self, buffer: torch.Tensor) -> torch.Tensor:
        return torch.empty(buffer.shape, dtype=buffer.dtype, pin_memory=True)

    def hold(self, buffer: torch.Tensor, stream: Any) -> None:
        buffer.record_stream(stream)


class _AtOnce(contextlib.nullcontext[None]):
    """A stream, and an event, of a device that never is behind."""

    def record_event(self) -> _AtOnce:
        return self

    def synchronize(self) -> None:
        pass


def stage(buffer: torch.Tensor, policy: str) -> Direct:
    """The way of a buffer: ``auto`` or ``always`` through host memory."""
    if buffer.device.type != "cpu":
        return Staged(buffer, Device(buffer.device))
    return Staged(buffer, Host()) if policy == "always" else Direct(buffer)
