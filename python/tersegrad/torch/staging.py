# SPDX-License-Identifier: Apache-2.0
"""Gradients on a card go through pinned host memory, tensor by tensor: copies, coding and the wire overlap."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch

_log = logging.getLogger("tersegrad")


class Staging:
    """Pinned buffers, kept between steps, and a stream for copies."""

    def __init__(self) -> None:
        self._free: dict[tuple[int, torch.dtype], list[torch.Tensor]] = {}
        self._streams: dict[torch.device, Any] = {}

    def take(self, buffer: torch.Tensor, gradients: Sequence[torch.Tensor]) -> Staged:
        """Starts copying the gradients of a bucket to the host."""
        if buffer.device.type != "cuda":
            raise TypeError(f"gradients are on {buffer.device}: they can be compressed on cpu and cuda")
        if buffer.device not in self._streams:
            self._streams[buffer.device] = torch.cuda.Stream(buffer.device)  # type: ignore[no-untyped-call]
            _log.info("gradients on %s are compressed on the host, through pinned memory", buffer.device)
        return Staged(self, self._host(buffer), buffer, gradients, self._streams[buffer.device])

    def _host(self, buffer: torch.Tensor) -> torch.Tensor:
        free = self._free.setdefault((buffer.numel(), buffer.dtype), [])
        return free.pop() if free else torch.empty(buffer.numel(), dtype=buffer.dtype, pin_memory=True)

    def put_back(self, host: torch.Tensor) -> None:
        """It may be used again."""
        self._free[(host.numel(), host.dtype)].append(host)


class Staged:
    """A bucket's host copy."""

    def __init__(
        self, staging: Staging, host: torch.Tensor, buffer: torch.Tensor, gradients: Sequence[torch.Tensor], stream: Any
    ) -> None:
        self._staging, self._host, self._buffer, self._stream = staging, host, buffer, stream
        self._parts: list[tuple[int, Any]] = []
        self._ranges: list[tuple[int, int]] = []
        flat = buffer.view(-1)
        stream.wait_stream(torch.cuda.current_stream(buffer.device))
        buffer.record_stream(stream)
        with torch.cuda.stream(stream):
            for gradient in gradients:
                start = (gradient.data_ptr() - buffer.data_ptr()) // buffer.element_size()
                end = start + gradient.numel()
                part = host[start:end]
                part.copy_(flat[start:end], non_blocking=True)
                self._ranges.append((start, end))
                event = torch.cuda.Event()  # type: ignore[no-untyped-call]
                event.record(stream)
                self._parts.append((part.data_ptr(), event))

    def part(self, place: int) -> tuple[int, Callable[[], None]]:
        """Where a gradient is on the host, and what waits until it is there."""
        address, event = self._parts[place]
        return address, event.synchronize

    def give_back(self, future: Any) -> None:
        """Copies the means to the card; the future is ordered after that on its stream."""
        with torch.cuda.stream(self._stream):
            flat = self._buffer.view(-1)
            for start, end in self._ranges:
                flat[start:end].copy_(self._host[start:end], non_blocking=True)
            done = torch.cuda.Event()  # type: ignore[no-untyped-call]
            done.record(self._stream)
            future.set_result(self._buffer)
        done.synchronize()  # before the host memory is used again
        self._staging.put_back(self._host)
