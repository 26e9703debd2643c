# SPDX-License-Identifier: Apache-2.0
"""Gradients of all ranks in, their mean out, for whoever brings the wire: the library's step machine.

    reduction = reducer.begin(step)
    reduction.ready(i, tensor)            for every tensor, in any order, as they come
    exchange = reduction.next()           None: nothing to be sent for now
    reduction.feed(exchange)              after it was carried out, in the order of `next`
    reduction.end()                       raises Skipped or NonFinite on all ranks alike, or on none

Nothing here moves bytes between processes; `tersegrad.torch` does, over torch.distributed.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from ctypes import POINTER, byref, c_size_t
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import checked
from ._library import Algorithm, Bypass, Dtype, NonfiniteStep, lib, tg_density_change, tg_error, tg_exchange, tg_reducer
from ._library import tg_reducer_options, tg_reducer_stats, tg_reducer_tensor, tg_reduction, tg_state, tg_stats, tg_tensor
from .arrays import Array, Bytes
from .checked import whole
from .codec import Device
from .errors import InvalidArgument, check
from .spec import FeedbackSpec, Spec

ALGORITHMS = {"auto": Algorithm.AUTO, "gather": Algorithm.GATHER, "shard": Algorithm.SHARD, "scatter": Algorithm.SCATTER}
NONFINITE = {
    "stop": NonfiniteStep.NONFINITE_STOP,
    "skip": NonfiniteStep.NONFINITE_SKIP,
    "drop": NonfiniteStep.NONFINITE_DROP,
}


@dataclass(frozen=True)
class TensorSpec:
    """One tensor of a reducer: its name, elements, dtype, and how it is sent. With the algorithm `scatter` also where
    the parts of the ranks begin, and the end: world + 1 numbers, from 0 to count; without them parts are equal."""

    name: str
    count: int
    dtype: Dtype
    spec: Spec
    feedback: FeedbackSpec
    insist: bool = False
    boundaries: tuple[int, ...] | None = None


class Reduction(checked.Handle):
    """One step under way. Made by Reducer.begin."""

    _instead = "Reducer.begin makes one"

    def __init__(self, reducer: Reducer, handle: Any) -> None:
        self._reducer, self._handle = reducer, handle

    def ready(self, index: int, tensor: tg_tensor) -> None:
        """This rank's gradient of tensor `index`; the mean will be left in its place."""
        error = tg_error()
        check(lib.tg_reduce_ready(self._handle, index, byref(tensor), byref(error)), error)

    def absent(self, index: int, out: tg_tensor | None) -> None:
        """This rank has no gradient of tensor `index`: it sends nothing, its residual waits, and `out` gets the mean
        where another rank has one."""
        error = tg_error()
        place = None if out is None else byref(out)
        check(lib.tg_reduce_absent(self._handle, index, place, byref(error)), error)

    def next(self) -> Any:
        """Compresses the next message and gives its exchange; None if none is due for now."""
        exchange, error = POINTER(tg_exchange)(), tg_error()
        check(lib.tg_reduce_next(self._handle, byref(exchange), byref(error)), error)
        return exchange if exchange else None

    def feed(self, exchange: Any) -> None:
        """Takes what came."""
        error = tg_error()
        check(lib.tg_reduce_feed(self._handle, exchange, byref(error)), error)

    def end(self) -> None:
        """Leaves the mean in every tensor, under `scatter` in this rank's part of it; or raises, and then nothing was
        written on any rank."""
        error = tg_error()
        check(lib.tg_reduce_end(self._handle, byref(error)), error)

    def abandon(self) -> None:
        """After an exchange failed: what was sent returns to the residuals."""
        lib.tg_reduce_abandon(self._handle)


class Reducer(checked.Handle):
    """Everything that reducing needs on one rank. All ranks give the same tensors and options."""

    _instead = "Take its state with save, and give it to load of a new one"

    def __init__(
        self,
        rank: int,
        world: int,
        tensors: Sequence[TensorSpec],
        *,
        algorithm: str = "auto",
        nonfinite: str = "stop",
        seed: int = 0,
        warmup: int = 0,
        schedule: Iterable[tuple[int, float]] = (),
        batch_elements: int = 0,
        bypass: str | Sequence[int] = "off",
        hosts: Sequence[int] | None = None,
        device: Device | str = "cpu",
        on_device: bool = False,
        minimum: bool = False,
    ) -> None:
        if algorithm not in ALGORITHMS:
            raise ValueError(f"algorithm is {algorithm!r}: it must be one of {', '.join(ALGORITHMS)}")
        if nonfinite not in NONFINITE:
            raise ValueError(f"nonfinite is {nonfinite!r}: it must be 'stop', 'skip' or 'drop'")
        if isinstance(bypass, str) and bypass not in ("off", "auto"):
            raise ValueError(f"bypass is {bypass!r}: it must be 'off', 'auto', or the bypass_log of a run to replay")
        self.rank, self.world, self.tensors = whole("rank", rank, 32), whole("world", world, 32), list(tensors)
        self._device = device if isinstance(device, Device) else Device(device)
        changes = [tg_density_change(whole("a step of schedule", step), density) for step, density in schedule]
        options = tg_reducer_options()
        options.algorithm, options.nonfinite = ALGORITHMS[algorithm], NONFINITE[nonfinite]
        options.seed, options.warmup = whole("seed", seed), whole("warmup", warmup)
        options.batch_elements = whole("batch_elements", batch_elements)
        options.schedule = (tg_density_change * len(changes))(*changes)
        options.schedule_count = len(changes)
        log = [] if isinstance(bypass, str) else [whole("an entry of bypass", step) for step in bypass]
        options.bypass = Bypass.BYPASS_REPLAY if not isinstance(bypass, str) else Bypass.BYPASS_AUTO if bypass == "auto" else 0
        options.bypass_changes = (ctypes.c_uint64 * len(log))(*log)
        options.bypass_change_count = len(log)
        options.on_device, options.minimum = on_device, minimum
        if hosts is not None:
            if len(hosts) != world:
                raise ValueError(f"hosts has {len(hosts)} entries for {world} ranks: give one for each rank")
            options.host_of_rank = (ctypes.c_uint32 * world)(*(whole("an entry of hosts", host, 32) for host in hosts))
        self._handle = POINTER(tg_reducer)()
        error = tg_error()
        status = lib.tg_reducer_create(
            self._device._handle, rank, world, self._list(), len(self.tensors), byref(options), byref(self._handle), byref(error)
        )
        check(status, error)
        self._device._acquire()

    def _list(self) -> Any:
        every = (tg_reducer_tensor * len(self.tensors))()
        for raw, tensor in zip(every, self.tensors):
            raw.name = checked.text("the tensor name", tensor.name, InvalidArgument)
            raw.count, raw.dtype = checked.count(f"the count of {tensor.name}", tensor.count), tensor.dtype
            raw.codec, raw.feedback, raw.insist = tensor.spec._raw, tensor.feedback._raw, tensor.insist
            if tensor.boundaries is None:
                continue
            if len(tensor.boundaries) != self.world + 1:
                given, due = len(tensor.boundaries), self.world + 1
                raise ValueError(f"{tensor.name} has {given} boundaries; {self.world} ranks take {due}")
            places = [whole("a boundary", place) for place in tensor.boundaries]
            raw.boundaries = (ctypes.c_uint64 * len(places))(*places)
        return every

    def begin(self, step: int) -> Reduction:
        """Starts a step."""
        handle, error = POINTER(tg_reduction)(), tg_error()
        check(lib.tg_reduce_begin(self._handle, None, whole("step", step), byref(handle), byref(error)), error)
        return Reduction(self, handle)

    def state_size(self) -> int:
        """Bytes that `save` would give now. A log of bypass makes them more later; nothing else does."""
        size, error = c_size_t(), tg_error()
        check(lib.tg_reducer_save(self._handle, None, 0, byref(size), byref(error)), error)
        return size.value

    def save(self) -> bytes:
        """This rank's residuals and counters, as checksummed bytes, between steps."""
        size, error = c_size_t(self.state_size()), tg_error()
        buffer = np.empty(size.value, np.uint8)
        check(lib.tg_reducer_save(self._handle, buffer.ctypes.data, size.value, byref(size), byref(error)), error)
        return buffer[: size.value].tobytes()

    def load(self, states: Sequence[Bytes]) -> None:
        """Takes states back: this rank's own; after a change of the world from P to Q, those of r, r+Q, r+2Q, ... of P."""
        memory = [np.frombuffer(state, np.uint8) for state in states]
        raw = (tg_state * len(memory))(*(tg_state(one.ctypes.data, one.size) for one in memory))
        error = tg_error()
        check(lib.tg_reducer_load(self._handle, raw, len(memory), byref(error)), error)

    def scale(self, factor: float) -> None:
        """Multiplies every residual: they follow a change of the loss scale."""
        error = tg_error()
        check(lib.tg_reducer_scale(self._handle, factor, byref(error)), error)

    def bypass_log(self) -> list[int]:
        """The reductions, counted from 0, from which on steps were sent as they are, and compressed again, by turns."""
        count, error = c_size_t(), tg_error()
        check(lib.tg_reducer_bypass_log(self._handle, None, 0, byref(count), byref(error)), error)
        log = (ctypes.c_uint64 * count.value)()
        check(lib.tg_reducer_bypass_log(self._handle, log, count.value, byref(count), byref(error)), error)
        return list(log)

    def residual(self, index: int) -> Array:
        """A copy of one tensor's residual; zeros where it keeps none."""
        out, error = np.zeros(self.tensors[index].count, np.float32), tg_error()
        if self.tensors[index].feedback.bytes_per_element:
            address = out.ctypes.data_as(POINTER(ctypes.c_float))
            check(lib.tg_reducer_residual_read(self._handle, index, address, out.size, byref(error)), error)
        return out

    def tensor_stats(self, index: int) -> tg_stats:
        """Of one tensor."""
        raw, error = tg_stats(), tg_error()
        check(lib.tg_reducer_tensor_stats(self._handle, index, byref(raw), byref(error)), error)
        return raw

    def stats(self) -> tg_reducer_stats:
        """Of all of them."""
        raw, error = tg_reducer_stats(), tg_error()
        check(lib.tg_reducer_stats_of(self._handle, byref(raw), byref(error)), error)
        return raw

    def forget(self) -> None:
        """Never free it: after a failure the wire may still write to its memory."""
        self._handle = POINTER(tg_reducer)()

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            lib.tg_reducer_free(self._handle)
            self._device._release()
