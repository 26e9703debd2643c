# SPDX-License-Identifier: Apache-2.0
"""Gradients on a card: compressed there, or on the host.

`OnCard` gives the library pointers to card memory and a stream of its own. `Staging` copies gradients through pinned
host memory, tensor by tensor, so that copies, coding and the wire overlap: for cards and codecs that the library does
not have there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from .._library import Status
from ..codec import Device
from ..errors import Error
from ..reducer import Reducer
from .log import warn_once

class Held(Protocol):
    """The gradients of a bucket while they are reduced."""

    def part(self, place: int) -> tuple[int, Callable[[], None] | None]:
        """Where the library finds a gradient, and what waits until it is there."""

    def complete(self, future: Any, means: bool) -> None:
        """Completes the future with the means, or with NaN in all of them, ordered after that on the stream."""


class Cards(Protocol):
    """A way to reduce gradients on cards."""

    def take(self, buffer: torch.Tensor, gradients: Sequence[torch.Tensor]) -> Held:
        """Begins with the gradients of a bucket."""


def open_reducer(device: str, parameters: Sequence[torch.Tensor], make: Callable[[Any], Reducer]) -> tuple[Reducer, Cards]:
    """`make` gives a reducer on a device of the library. 'auto' is the card where all parameters are, else 'cpu'."""
    places = {parameter.device for parameter in parameters}
    place = next(iter(places))
    if device.startswith("cuda") and (len(places) > 1 or place.type != "cuda"):
        raise ValueError(f"device is {device!r}, and the parameters are on {', '.join(sorted(map(str, places)))}")
    if len(places) > 1 or place.type != "cuda" or not (device == "auto" or device.startswith("cuda")):
        return make("cpu" if device == "auto" else device), Staging()
    try:
        card = OnCard(place)
        return make(card.device), card
    except Error as problem:
        if device != "auto" or problem.status not in (Status.UNAVAILABLE, Status.UNKNOWN_DEVICE):
            raise
        warn_once(f"gradients on {place} are compressed on the host, through pinned memory: {problem}")
        return make("cpu"), Staging()


class OnCard:
    """The library's device for a card, on a stream of its own."""

    def __init__(self, place: torch.device) -> None:
        self.stream = torch.cuda.Stream(place)  # type: ignore[no-untyped-call]
        self.device = Device(f"cuda:{self.stream.device_index}", stream=self.stream.cuda_stream)

    def take(self, buffer: torch.Tensor, gradients: Sequence[torch.Tensor]) -> Held:
        """What is on the current stream comes before the library's work."""
        self.stream.wait_stream(torch.cuda.current_stream(buffer.device))
        buffer.record_stream(self.stream)
        return _HeldOnCard(self.stream, buffer, gradients)


class _HeldOnCard:
    def __init__(self, stream: Any, buffer: torch.Tensor, gradients: Sequence[torch.Tensor]) -> None:
        self._stream, self._buffer, self._gradients = stream, buffer, gradients

    def part(self, place: int) -> tuple[int, Callable[[], None] | None]:
        return self._gradients[place].data_ptr(), None

    def complete(self, future: Any, means: bool) -> None:
        with torch.cuda.stream(self._stream):  # the future remembers where the current stream has come to
            future.set_result(self._buffer if means else self._buffer.fill_(math.nan))


class Staging:
    """Pinned buffers, kept between steps, and a stream for copies."""

    def __init__(self) -> None:
        self._free: dict[tuple[int, torch.dtype], list[torch.Tensor]] = {}
        self._streams: dict[torch.device, Any] = {}

    def take(self, buffer: torch.Tensor, gradients: Sequence[torch.Tensor]) -> Held:
        """Starts copying the gradients of a bucket to the host."""
        if buffer.device.type != "cuda":
            raise TypeError(f"gradients are on {buffer.device}: they can be compressed on cpu and cuda")
        if buffer.device not in self._streams:
            self._streams[buffer.device] = torch.cuda.Stream(buffer.device)  # type: ignore[no-untyped-call]
        return _HeldOnHost(self, self._host(buffer), buffer, gradients, self._streams[buffer.device])

    def _host(self, buffer: torch.Tensor) -> torch.Tensor:
        free = self._free.setdefault((buffer.numel(), buffer.dtype), [])
        return free.pop() if free else torch.empty(buffer.numel(), dtype=buffer.dtype, pin_memory=True)

    def put_back(self, host: torch.Tensor) -> None:
        """It may be used again."""
        self._free[(host.numel(), host.dtype)].append(host)


class _HeldOnHost:
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

    def part(self, place: int) -> tuple[int, Callable[[], None] | None]:
        address, event = self._parts[place]
        return address, event.synchronize

    def complete(self, future: Any, means: bool) -> None:
        with torch.cuda.stream(self._stream):
            flat = self._buffer.view(-1)
            for start, end in self._ranges if means else ():
                flat[start:end].copy_(self._host[start:end], non_blocking=True)
            if not means:
                flat.fill_(math.nan)
            done = torch.cuda.Event()  # type: ignore[no-untyped-call]
            done.record(self._stream)
            future.set_result(self._buffer)
        done.synchronize()  # before the host memory is used again
        self._staging.put_back(self._host)
