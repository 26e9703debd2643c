# SPDX-License-Identifier: Apache-2.0
"""One vector to one frame and back, over numpy arrays."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from ctypes import POINTER, byref, c_float, c_uint32
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import arrays, checked
from ._library import Dtype, FeedbackKind, FeedbackPart, Nonfinite, lib, tg_codec, tg_device, tg_encode_options, tg_encode_report
from ._library import tg_error, tg_feedback, tg_frame, tg_frame_info, tg_frame_parts, tg_stats
from .arrays import Array, Bytes
from .errors import InvalidArgument, UnknownDevice, check
from .spec import FeedbackSpec, Spec

_nonfinite = {
    "reject": Nonfinite.NONFINITE_REJECT,
    "zero": Nonfinite.NONFINITE_ZERO,
    "trust": Nonfinite.NONFINITE_TRUST,
}


class Device(checked.Handle):
    """Where the work is done: 'cpu' is the fastest kernels of this machine, 'cpu:threads=4' shares the work out.

    'cuda' and 'cuda:1' are cards. Arrays of numpy are in host memory, so cards are for reducers (`tersegrad.torch`).
    `stream` is the address of the CUDA stream that a card works on; None is CUDA's default stream.

    No byte depends on the choice. Any number of encoders, feedbacks and reducers may use one device.
    """

    _instead = "Open another with Device(name)"

    def __init__(self, name: str = "cpu", *, stream: int | None = None) -> None:
        if not isinstance(name, str):
            raise TypeError(f"a device is text such as 'cpu', not {type(name).__name__}")
        if stream is not None:
            stream = checked.whole("stream", stream)
        self._handle = POINTER(tg_device)()
        self._users = 0
        self._lock = threading.RLock()  # finalisers run in any thread, also while it is held
        error, text = tg_error(), checked.text("the device", name, UnknownDevice)
        check(lib.tg_device_open(text, stream, byref(self._handle), byref(error)), error)
        self._acquire()

    def _acquire(self) -> None:
        """One more needs the device. Finalisers run in any order, so handles are counted and not only referred to."""
        with self._lock:
            self._users += 1

    def _release(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                lib.tg_device_free(self._handle)

    @property
    def name(self) -> str:
        """The kernels that were picked, and the threads."""
        return str(lib.tg_device_name(self._handle).decode())

    def __repr__(self) -> str:
        return f"Device({self.name!r})"

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self._release()


def devices() -> list[str]:
    """The devices that this machine can run, the fastest first."""
    names: list[str] = []
    while (name := lib.tg_device_list(len(names))) is not None:
        names.append(name.decode())
    return names


class _Mine(threading.local):
    """Each thread's device and last encoder: a handle serves one call at a time."""

    device: Device | None = None
    encoder: Encoder | None = None


_mine = _Mine()


def _device(device: Device | None) -> Device:
    if device is not None:
        if not isinstance(device, Device):
            raise TypeError(f"device must be a tersegrad.Device, not {type(device).__name__}: give Device('cpu')")
        return device
    if _mine.device is None:
        _mine.device = Device()
    return _mine.device


@dataclass(frozen=True)
class Report:
    """What an encode call did."""

    bytes: int
    selected: int
    saturated: int
    """Values limited to the largest float16 or bfloat16."""
    dropped: int
    """Values that were not finite and became 0 (nonfinite='zero')."""


class Feedback(checked.Handle):
    """The residual of one tensor on one rank: what a codec left out, to be sent later.

    Give it to `encode` for every step of the same tensor, with the same spec. `insist=True` accepts a pairing whose
    residual would diverge, see `stability`. Threads that share one take turns.
    """

    _instead = "Save its residual (and momentum), and give them to a new Feedback"

    def __init__(
        self,
        feedback: FeedbackSpec | str,
        spec: Spec | str,
        count: int,
        *,
        insist: bool = False,
        device: Device | None = None,
    ) -> None:
        self.feedback, self.spec, self.count = FeedbackSpec(feedback), Spec(spec), checked.count("count", count)
        self._turn = threading.RLock()
        self._device = _device(device)
        self._handle = POINTER(tg_feedback)()
        error = tg_error()
        status = lib.tg_feedback_create(
            self._device._handle,
            byref(self.feedback._raw),
            byref(self.spec._raw),
            self.count,
            insist,
            byref(self._handle),
            byref(error),
        )
        check(status, error)
        self._device._acquire()

    def _read(self, part: FeedbackPart) -> Array:
        values, error = np.empty(self.count, np.float32), tg_error()
        pointer = values.ctypes.data_as(POINTER(c_float))
        with self._turn:
            check(lib.tg_feedback_read(self._handle, part, 0, self.count, pointer, byref(error)), error)
        return values

    def _write(self, part: FeedbackPart, values: Array) -> None:
        values, error = arrays.floats(values, self.count), tg_error()
        pointer = values.ctypes.data_as(POINTER(c_float))
        with self._turn:
            check(lib.tg_feedback_write(self._handle, part, 0, self.count, pointer, byref(error)), error)

    @property
    def residual(self) -> Array:
        """A copy of the residual, float32, for a checkpoint; assign to it to restore one."""
        return self._read(FeedbackPart.RESIDUAL)

    @residual.setter
    def residual(self, values: Array) -> None:
        self._write(FeedbackPart.RESIDUAL, values)

    @property
    def momentum(self) -> Array | None:
        """dgc's momentum, like `residual`; None for other kinds."""
        return self._read(FeedbackPart.MOMENTUM) if self.feedback._raw.kind == FeedbackKind.FEEDBACK_DGC else None

    @momentum.setter
    def momentum(self, values: Array) -> None:
        self._write(FeedbackPart.MOMENTUM, values)

    def compensate(self, gradient: Array, out: Array | None = None, *, dtype: str | None = None) -> Array:
        """u = g + alpha h, what is to be encoded. Changes nothing else."""
        out = np.empty(self.count, np.float32) if out is None else out
        source = arrays.tensor(gradient, dtype=dtype, what="the gradient")
        target = arrays.tensor(out, writable=True, what="out")
        error = tg_error()
        with self._turn:
            check(lib.tg_feedback_compensate(self._handle, byref(source), byref(target), byref(error)), error)
        return out

    def update(self, gradient: Array, frame: Bytes, *, dtype: str | None = None) -> None:
        """The residual moves on after the caller has encoded `compensate(gradient)` to `frame`."""
        source = arrays.tensor(gradient, dtype=dtype, what="the gradient")
        raw, owner = arrays.frame(frame)
        error = tg_error()
        with self._turn:
            check(lib.tg_feedback_update(self._handle, byref(source), raw, byref(error)), error)

    def give_back(self, frame: Bytes, applied: Array | None = None) -> None:
        """A frame that was sent but not applied returns to the residual; `applied`: all but these indices (uint32)."""
        raw, owner = arrays.frame(frame)
        indices, number = None, 0
        if applied is not None:
            applied = arrays.indices(applied, "applied")
            number = applied.size
            applied = applied if number else np.zeros(1, np.uint32)
            indices = applied.ctypes.data_as(POINTER(c_uint32))
        error = tg_error()
        with self._turn:
            check(lib.tg_feedback_return(self._handle, raw, indices, number, byref(error)), error)

    def reset(self) -> None:
        """Forget residual, momentum and statistics."""
        with self._turn:
            lib.tg_feedback_reset(self._handle)

    def stats(self) -> dict[str, float]:
        """steps, bytes, saturated, dropped, gradient_norm, residual_norm, residual_peak, residual_growth."""
        raw, error = tg_stats(), tg_error()
        with self._turn:
            check(lib.tg_feedback_stats(self._handle, byref(raw), byref(error)), error)
        return {field[0]: getattr(raw, field[0]) for field in tg_stats._fields_}

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            lib.tg_feedback_free(self._handle)
            self._device._release()


class Encoder(checked.Handle):
    """A codec with its workspace, for vectors of up to max_count elements: for loops that encode often.

    `report` is what the last call did. Threads that share one take turns.
    """

    _instead = "Make another with Encoder(spec, max_count)"

    def __init__(self, spec: Spec | str, max_count: int, *, device: Device | None = None) -> None:
        self.spec, self.max_count = Spec(spec), checked.count("max_count", max_count)
        self._turn = threading.RLock()
        self.report = Report(0, 0, 0, 0)
        self._device = _device(device)
        self._handle = POINTER(tg_codec)()
        error = tg_error()
        status = lib.tg_codec_create(
            self._device._handle, byref(self.spec._raw), self.max_count, byref(self._handle), byref(error)
        )
        check(status, error)
        self._device._acquire()
        self._buffer = np.empty(self.bound(self.max_count), np.uint8)

    def bound(self, count: int) -> int:
        """The most bytes that a frame of this many elements can take."""
        count = checked.count("count", count)
        if count > self.max_count:
            raise ValueError(f"the array has {count} elements, and this encoder was made for {self.max_count}")
        return int(lib.tg_frame_bound(self._handle, count))

    def encode(
        self,
        array: Array,
        *,
        feedback: Feedback | None = None,
        seed: int = 0,
        step: int = 0,
        tensor: int = 0,
        rank: int = 0,
        nonfinite: str = "reject",
        checksum: bool = True,
        dtype: str | None = None,
    ) -> bytes:
        """As `tersegrad.encode`."""
        source = arrays.tensor(array, dtype=dtype)
        bound = self.bound(array.size)
        options = _options(seed, step, tensor, rank, nonfinite, checksum)
        report, error = tg_encode_report(), tg_error()
        common = (byref(source), byref(options), self._buffer.ctypes.data, bound, byref(report), byref(error))
        if feedback is not None and not isinstance(feedback, Feedback):
            raise TypeError(self._no_feedback(feedback, array.size))
        with self._turn:
            if feedback is None:
                status = lib.tg_encode(self._handle, *common)
            else:
                with feedback._turn:
                    status = lib.tg_encode_with_feedback(self._handle, feedback._handle, *common)
            check(status, error)
            self.report = Report(report.bytes, report.selected, report.saturated, report.dropped)
            return self._buffer[: report.bytes].tobytes()

    def _no_feedback(self, given: Any, count: int) -> str:
        name = str(given) if isinstance(given, (str, FeedbackSpec)) else "ef"
        return (
            f"feedback must be a tersegrad.Feedback, not {type(given).__name__}: it holds the residual from step to "
            f"step, so make it once, with Feedback({name!r}, {str(self.spec)!r}, {count}), and give it in every step"
        )

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            lib.tg_codec_free(self._handle)
            self._device._release()


def _options(seed: int, step: int, tensor: int, rank: int, nonfinite: str, checksum: bool) -> tg_encode_options:
    if not isinstance(nonfinite, str) or nonfinite not in _nonfinite:
        raise ValueError(f"nonfinite is {nonfinite!r}: it must be 'reject', 'zero' or 'trust'")
    options = tg_encode_options()
    options.draw.seed, options.draw.step = checked.whole("seed", seed), checked.whole("step", step)
    options.draw.tensor, options.draw.rank = checked.whole("tensor", tensor, 32), checked.whole("rank", rank, 32)
    options.nonfinite, options.no_checksum = _nonfinite[nonfinite], not checksum
    return options


def encode(
    array: Array,
    spec: Spec | str,
    *,
    feedback: Feedback | None = None,
    seed: int = 0,
    step: int = 0,
    tensor: int = 0,
    rank: int = 0,
    nonfinite: str = "reject",
    checksum: bool = True,
    dtype: str | None = None,
) -> bytes:
    """One vector to one frame.

    array      float32, float16 or bfloat16 (ml_dtypes, or uint16 with dtype='bfloat16'); contiguous, any shape
    spec       'qsgd:levels=7,bucket=512', 'topk:density=0.01', ...; see `codecs`
    feedback   a Feedback: its residual is added before, and keeps what is left out
    seed, step, tensor, rank    identify the random numbers: give each step, tensor and rank of a run its own
    nonfinite  'reject' raises NonFinite with the first index; 'zero' drops such elements; 'trust' raises too, but may
               leave the residual put back only to rounding
    checksum   False leaves it out

    >>> frame = encode(np.ones(1000, np.float32), "topk:density=0.01")
    >>> int(decode(frame).sum())
    10
    """
    wanted = Spec(spec)
    count = array.size if isinstance(array, np.ndarray) else 0
    encoder = _mine.encoder
    if encoder is None or encoder.spec != wanted or encoder.max_count < count:
        encoder = _mine.encoder = Encoder(wanted, count)
    return encoder.encode(
        array,
        feedback=feedback,
        seed=seed,
        step=step,
        tensor=tensor,
        rank=rank,
        nonfinite=nonfinite,
        checksum=checksum,
        dtype=dtype,
    )


def _read(raw: tg_frame) -> tg_frame_info:
    info, error = tg_frame_info(), tg_error()
    check(lib.tg_frame_read(raw, byref(info), byref(error)), error)
    return info


def _list(frames: Bytes | Sequence[Bytes]) -> tuple[Any, int, list[Array]]:
    every = list(frames) if isinstance(frames, (list, tuple)) else [frames]
    if not every:
        raise InvalidArgument("no frame was given")
    pairs = [arrays.frame(one) for one in every]
    return (tg_frame * len(pairs))(*(raw for raw, _ in pairs)), len(pairs), [owner for _, owner in pairs]


def _decode(function: Any, raw: Any, number: int, weight: float, out: Array, dtype: str | None) -> Array:
    target = arrays.tensor(out, dtype=dtype, writable=True, what="out")
    error = tg_error()
    weight = checked.number("weight", weight)
    check(function(_device(None)._handle, raw, number, weight, 0, byref(target), byref(error)), error)
    return out


def decode(
    frames: Bytes | Sequence[Bytes],
    out: Array | None = None,
    *,
    weight: float = 1.0,
    dtype: str | None = None,
) -> Array:
    """weight * the frame's vector, or weight * each of a list of frames, added up in order.

    `out` is written to and returned; without it a new float32 array is. Every frame is verified before anything is
    written, so a bad one raises BadFrame and leaves `out` as it was.
    """
    raw, number, owners = _list(frames)
    if out is None:
        arrays.dtype_of(np.empty(0, np.float32), dtype, "the result without out")
        info, error = tg_frame_info(), tg_error()
        # A frame's count is believed only after the whole frame was: a few bytes could ask for gigabytes.
        check(lib.tg_frame_verify(_device(None)._handle, raw[0], byref(info), byref(error)), error)
        out = np.empty(info.count, np.float32)
    return _decode(lib.tg_decode, raw, number, weight, out, dtype)


def decode_add(
    frames: Bytes | Sequence[Bytes], out: Array, *, weight: float = 1.0, dtype: str | None = None
) -> Array:
    """out += weight * each frame's vector, in order. Otherwise as `decode`."""
    raw, number, owners = _list(frames)
    return _decode(lib.tg_decode_add, raw, number, weight, out, dtype)


def verify(frame: Bytes) -> None:
    """Checks everything in a frame: header, checksum, every rule of the format. Raises BadFrame."""
    raw, owner = arrays.frame(frame)
    error = tg_error()
    check(lib.tg_frame_verify(_device(None)._handle, raw, None, byref(error)), error)


@dataclass(frozen=True)
class FrameInfo:
    """What a frame holds, and what it spends its bytes on."""

    spec: Spec
    dtype: str
    count: int
    bytes: int
    seed: int
    step: int
    tensor: int
    rank: int
    version: int
    layout: str
    checksum: bool
    selected: int
    scale_bytes: int
    index_bytes: int
    value_bytes: int
    level_entropy: float
    """Bits: the Shannon entropy of the levels times their number."""

    @property
    def ratio(self) -> float:
        """Bytes of the vector as float32, over those of the frame."""
        return 4 * self.count / self.bytes


@dataclass(frozen=True)
class ArrayInfo:
    """How a vector's values are distributed, as far as that decides how well it compresses."""

    dtype: str
    count: int
    zeros: int
    nonfinite: int
    norm: float
    """L2, of the finite values."""
    largest: float
    """The largest magnitude of the finite values."""
    top_percent: float
    """The share of the squared norm that is in the 1 % of largest magnitude: what topk:density=0.01 sends at once."""


def inspect(data: Bytes | Array, *, dtype: str | None = None) -> FrameInfo | ArrayInfo:
    """What is in a frame (bytes), or how the values of a gradient (a numpy array of floats) are distributed."""
    if isinstance(data, np.ndarray) and (data.dtype != np.uint8 or dtype is not None):
        return _inspect_array(data, dtype)
    if dtype is not None:
        raise TypeError("dtype says what the elements of an array stand for: a frame knows its own")
    raw, owner = arrays.frame(data)
    info = _read(raw)
    parts, error = tg_frame_parts(), tg_error()
    check(lib.tg_frame_measure(_device(None)._handle, raw, byref(parts), byref(error)), error)
    return FrameInfo(
        spec=Spec._of(info.spec),
        dtype=Dtype(info.dtype).name.lower(),
        count=info.count,
        bytes=info.bytes,
        seed=info.draw.seed,
        step=info.draw.step,
        tensor=info.draw.tensor,
        rank=info.draw.rank,
        version=info.version,
        layout=lib.tg_layout_text(info.layout).decode(),
        checksum=info.has_checksum,
        selected=parts.selected,
        scale_bytes=parts.scale_bytes,
        index_bytes=parts.index_bytes,
        value_bytes=parts.value_bytes,
        level_entropy=parts.level_entropy,
    )


def _inspect_array(array: Array, dtype: str | None) -> ArrayInfo:
    arrays.unmasked(array, "the array")
    kind = arrays.dtype_of(array, dtype, "the array")
    if array.dtype.name == "uint16":
        wide = (array.astype(np.uint32) << 16).view(np.float32) if kind is Dtype.BFLOAT16 else array.view(np.float16)
    else:
        wide = array
    values = np.asarray(wide, np.float32).ravel()
    finite = np.abs(values[np.isfinite(values)].astype(np.float64))
    squares = np.sort(finite**2)[::-1]
    total = float(squares.sum())
    top = float(squares[: max(1, squares.size // 100)].sum())
    return ArrayInfo(
        dtype=kind.name.lower(),
        count=values.size,
        zeros=int(values.size - np.count_nonzero(values)),
        nonfinite=int(values.size - finite.size),
        norm=total**0.5,
        largest=float(finite.max(initial=0.0)),
        top_percent=top / total if total else 0.0,
    )


__all__ = [
    "ArrayInfo",
    "Device",
    "Encoder",
    "Feedback",
    "FrameInfo",
    "Report",
    "decode",
    "decode_add",
    "devices",
    "encode",
    "inspect",
    "verify",
]
