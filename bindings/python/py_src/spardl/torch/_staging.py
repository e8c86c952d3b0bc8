"""How the memory of a bucket reaches the kernels: in place on the CPU, through host memory from a device."""

from __future__ import annotations

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
    """A copy in host memory, pinned for devices; copies run on a stream of their own and are ordered by events."""

    def __init__(self, buffer: torch.Tensor) -> None:
        super().__init__(buffer)
        self._stream: Any = None
        self._event: Any = None
        if buffer.device.type == "cpu":
            self.host = buffer.clone()
            return
        self.future = torch.futures.Future(devices=[buffer.device])
        self._stream = torch.Stream(device=buffer.device)
        self._stream.wait_stream(torch.accelerator.current_stream(buffer.device))
        with self._stream:
            self.host = torch.empty(buffer.shape, dtype=buffer.dtype, pin_memory=True)
            self.host.copy_(buffer, non_blocking=True)
            self._event = self._stream.record_event()
        buffer.record_stream(self._stream)

    def arrive(self) -> None:
        if self._event is not None:
            self._event.synchronize()

    def complete(self) -> None:
        if self._stream is None:
            self._buffer.copy_(self.host)
            self.future.set_result(self._buffer)
            return
        # The future takes its events from the current streams: the copy back is then waited for by whoever reads the result.
        with self._stream:
            self._buffer.copy_(self.host, non_blocking=True)
            self.future.set_result(self._buffer)


def stage(buffer: torch.Tensor, policy: str) -> Direct:
    """The way of a buffer: ``auto`` or ``always`` through host memory."""
    through_host = policy == "always" or buffer.device.type != "cpu"
    return Staged(buffer) if through_host else Direct(buffer)
