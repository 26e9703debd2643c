# SPDX-License-Identifier: Apache-2.0
"""Gradients on a card: compressed there, or on the host.

`OnCard` gives the library pointers to card memory and a stream of its own. `Staging` copies gradients through pinned
host memory, tensor by tensor, so that copies, coding and the wire overlap: for cards and codecs that the library does
not have there. It takes any card that torch can copy from; where torch has no streams for it, copies are waited for.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import torch

from .._library import Status
from ..codec import Device
from ..errors import Error
from ..reducer import Reducer
from .log import warn_once

class Held(Protocol):
    """The gradients of a bucket while they are reduced."""

    devices: list[Any] | None
    """Of the future: where it must remember a stream."""

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
        return make("cpu" if device == "auto" else device), Staging(places)
    try:
        card = OnCard(place)
        return make(card.device), card
    except Error as problem:
        if device != "auto" or problem.status not in (Status.UNAVAILABLE, Status.UNKNOWN_DEVICE):
            raise
        warn_once(f"gradients on {place} are compressed on the host, through pinned memory: {problem}")
        return make("cpu"), Staging(places)


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
        self.devices: list[Any] | None = [buffer.device]

    def part(self, place: int) -> tuple[int, Callable[[], None] | None]:
        return self._gradients[place].data_ptr(), None

    def complete(self, future: Any, means: bool) -> None:
        with torch.cuda.stream(self._stream):  # the future remembers where the current stream has come to
            future.set_result(self._buffer if means else self._buffer.fill_(math.nan))


def pinned(count: int, dtype: torch.dtype) -> torch.Tensor:
    """Host memory that cards copy from and to by themselves, where there is such memory for this kind of card."""
    try:
        return torch.empty(count, dtype=dtype, pin_memory=True)
    except RuntimeError:
        return torch.empty(count, dtype=dtype)


def streams_of(place: torch.device) -> Any:
    """torch's module for such cards (torch.cuda, torch.xpu), if it has streams and events; else None."""
    try:
        module = torch.get_device_module(place)
    except (AttributeError, RuntimeError):  # torch before 2.4; a module that was not registered
        module = getattr(torch, place.type, None)
    wanted = ("Stream", "Event", "stream", "current_stream")
    return module if all(hasattr(module, name) for name in wanted) else None


def check_copies(places: Iterable[torch.device]) -> None:
    """Refuses gradients that cannot come to the host."""
    for place in places:
        try:
            torch.empty(1, device=place).cpu()
        except Exception as problem:
            raise TypeError(f"parameters are on {place}, and gradients there cannot be compressed: {problem}") from problem


class Staging:
    """Pinned buffers, kept between steps, and for each card a lane for copies."""

    def __init__(self, places: Iterable[torch.device] = ()) -> None:
        check_copies(places)
        self._free: dict[tuple[int, torch.dtype], list[torch.Tensor]] = {}
        self._lanes: dict[torch.device, _Lane] = {}

    def take(self, buffer: torch.Tensor, gradients: Sequence[torch.Tensor]) -> Held:
        """Starts copying the gradients of a bucket to the host."""
        if buffer.device not in self._lanes:
            self._lanes[buffer.device] = _Lane(buffer.device)
        return _HeldOnHost(self, self._host(buffer), buffer, gradients, self._lanes[buffer.device])

    def _host(self, buffer: torch.Tensor) -> torch.Tensor:
        free = self._free.setdefault((buffer.numel(), buffer.dtype), [])
        return free.pop() if free else pinned(buffer.numel(), buffer.dtype)

    def put_back(self, host: torch.Tensor) -> None:
        """It may be used again."""
        self._free[(host.numel(), host.dtype)].append(host)


class _Lane:
    """Copies beside the other work of a card, on a stream of their own; or each waited for, where it has no streams."""

    def __init__(self, place: torch.device) -> None:
        self._module = streams_of(place)
        self._stream = None if self._module is None else self._module.Stream(place)
        self.waits = self._module is None

    def begin(self, buffer: torch.Tensor) -> None:
        """What is on the current stream comes before the copies."""
        if self._stream is not None:
            self._stream.wait_stream(self._module.current_stream(buffer.device))
            buffer.record_stream(self._stream)

    def on(self) -> contextlib.AbstractContextManager[Any]:
        """Copies inside of it are in the lane."""
        return contextlib.nullcontext() if self.waits else self._module.stream(self._stream)

    def mark(self) -> Callable[[], None]:
        """Waits for the copies so far."""
        if self.waits:
            return _nothing
        event = self._module.Event()
        event.record(self._stream)
        synchronize: Callable[[], None] = event.synchronize
        return synchronize


def _flat(buffer: torch.Tensor) -> torch.Tensor:
    """Its elements as they lie in memory, side by side, whatever the order of its dimensions (channels_last)."""
    return buffer.as_strided((buffer.numel(),), (1,))


def _nothing() -> None:
    pass


class _HeldOnHost:
    def __init__(
        self, staging: Staging, host: torch.Tensor, buffer: torch.Tensor, gradients: Sequence[torch.Tensor], lane: _Lane
    ) -> None:
        self._staging, self._host, self._buffer, self._lane = staging, host, buffer, lane
        self.devices: list[Any] | None = None if lane.waits else [buffer.device]
        self._parts: list[tuple[int, Callable[[], None]]] = []
        self._ranges: list[tuple[int, int]] = []
        flat = _flat(buffer)
        lane.begin(buffer)
        with lane.on():
            for gradient in gradients:
                start = (gradient.data_ptr() - buffer.data_ptr()) // buffer.element_size()
                end = start + gradient.numel()
                part = host[start:end]
                part.copy_(flat[start:end], non_blocking=not lane.waits)
                self._ranges.append((start, end))
                self._parts.append((part.data_ptr(), lane.mark()))

    def part(self, place: int) -> tuple[int, Callable[[], None] | None]:
        return self._parts[place]

    def complete(self, future: Any, means: bool) -> None:
        with self._lane.on():
            flat = _flat(self._buffer)
            for start, end in self._ranges if means else ():
                flat[start:end].copy_(self._host[start:end], non_blocking=not self._lane.waits)
            if not means:
                flat.fill_(math.nan)
            arrived = self._lane.mark()
            future.set_result(self._buffer)
        arrived()  # before the host memory is used again
        self._staging.put_back(self._host)
