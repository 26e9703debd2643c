# SPDX-License-Identifier: Apache-2.0
"""numpy arrays as the library's tensors: checked, never copied."""

from __future__ import annotations

from typing import Any, Union

import numpy as np
import numpy.typing as npt

from ._library import TG_MAX_COUNT, Dtype, tg_frame, tg_tensor

Array = npt.NDArray[Any]
Bytes = Union[bytes, bytearray, memoryview]

_dtypes = {"float32": Dtype.FLOAT32, "float16": Dtype.FLOAT16, "bfloat16": Dtype.BFLOAT16}


def dtype_of(array: Array, dtype: str | None, what: str) -> Dtype:
    """The library's dtype of an array; `dtype` says what uint16 elements stand for."""
    name = array.dtype.name
    if dtype is not None:
        if not isinstance(dtype, str) or dtype not in _dtypes:
            raise ValueError(f"dtype is {dtype!r}: it must be 'float32', 'float16' or 'bfloat16'")
        if name != dtype and not (name == "uint16" and dtype != "float32"):
            raise TypeError(f"{what} has dtype {name}, which cannot hold {dtype}")
        name = dtype
    if name == "uint16":
        raise TypeError(f"{what} has dtype uint16: say dtype='bfloat16' if that is what its bits are")
    if name not in _dtypes:
        raise TypeError(f"{what} has dtype {name}: it must be float32, float16 or bfloat16")
    if not array.dtype.isnative:
        advice = f"give one of dtype {name}, as .astype({name!r}) makes"
        raise TypeError(f"{what} has the byte order of another machine: {advice}")
    return _dtypes[name]


def unmasked(array: Array, what: str) -> None:
    """The library knows no masks, and would take what lies behind one for values."""
    if isinstance(array, np.ma.MaskedArray):
        raise TypeError(f"{what} has a mask: give array.filled(0), or what else is to be there")


def tensor(array: Any, *, dtype: str | None = None, writable: bool = False, what: str = "the array") -> tg_tensor:
    """A tg_tensor over the array's own memory. The caller keeps the array alive."""
    if not isinstance(array, np.ndarray):
        raise TypeError(f"{what} must be a numpy array, not {type(array).__name__}")
    unmasked(array, what)
    kind = dtype_of(array, dtype, what)
    if not array.flags.c_contiguous:
        advice = ", and would be written to: give one that is" if writable else ": give numpy.ascontiguousarray(array)"
        raise ValueError(f"{what} is not contiguous{advice}")
    if not array.flags.aligned:
        raise ValueError(f"{what} is not aligned to its elements: give a copy")
    if writable and not array.flags.writeable:
        raise ValueError(f"{what} is read-only, and would be written to")
    if array.size > TG_MAX_COUNT:
        raise ValueError(f"{what} has {array.size} elements: one tensor may have {TG_MAX_COUNT}")
    return tg_tensor(array.ctypes.data, array.size, kind)


def floats(values: Any, count: int) -> Array:
    """So many values as float32, copied where they are anything else. What float32 cannot hold becomes infinite."""
    if isinstance(values, np.ndarray):
        unmasked(values, "the array of values")
    array = np.asarray(values)
    if array.dtype.kind not in "fiu" and array.dtype.name != "bfloat16":
        raise TypeError(f"values have dtype {array.dtype.name}: they must be real numbers")
    if array.shape != (count,):
        raise ValueError(f"values have shape {array.shape}: it must be ({count},)")
    with np.errstate(over="ignore"):  # the library says which value it is
        return np.ascontiguousarray(array, np.float32)


def indices(values: Any, what: str) -> Array:
    """Indices as uint32, copied where they are anything else."""
    array = np.asarray(values)
    if array.ndim != 1:
        raise ValueError(f"{what} has shape {array.shape}: it must be a vector of indices")
    if not array.size:
        return np.empty(0, np.uint32)
    if array.dtype.kind not in "iu":
        raise TypeError(f"{what} has dtype {array.dtype.name}: indices are whole numbers")
    least, largest = int(array.min()), int(array.max())
    if least < 0 or largest > TG_MAX_COUNT:
        raise ValueError(f"{what} has the index {least if least < 0 else largest}: it must be 0 ... {TG_MAX_COUNT}")
    return np.ascontiguousarray(array, np.uint32)


def frame(data: Any) -> tuple[tg_frame, Array]:
    """A tg_frame over bytes-like data, and the object that keeps its memory alive."""
    kind = type(data).__name__
    if isinstance(data, np.ndarray) and data.dtype.itemsize != 1:  # somebody's numbers
        raise TypeError(f"a frame must be contiguous bytes, not an array of {data.dtype.name}")
    try:
        bytes_ = np.frombuffer(data, dtype=np.uint8) if len(data) else np.empty(0, np.uint8)
    except (TypeError, ValueError, BufferError) as problem:
        raise TypeError(f"a frame must be contiguous bytes, not {kind} ({problem})") from None
    return tg_frame(bytes_.ctypes.data, bytes_.size), bytes_
