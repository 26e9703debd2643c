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
        if dtype not in _dtypes:
            raise ValueError(f"dtype is {dtype!r}: it must be 'float32', 'float16' or 'bfloat16'")
        if name != dtype and not (name == "uint16" and dtype != "float32"):
            raise TypeError(f"{what} has dtype {name}, which cannot hold {dtype}")
        name = dtype
    if name == "uint16":
        raise TypeError(f"{what} has dtype uint16: say dtype='bfloat16' if that is what its bits are")
    if name not in _dtypes:
        raise TypeError(f"{what} has dtype {name}: it must be float32, float16 or bfloat16")
    if not array.dtype.isnative:
        raise TypeError(f"{what} has the byte order of another machine: convert it with .astype({name!r})")
    return _dtypes[name]


def tensor(array: Any, *, dtype: str | None = None, writable: bool = False, what: str = "the array") -> tg_tensor:
    """A tg_tensor over the array's own memory. The caller keeps the array alive."""
    if not isinstance(array, np.ndarray):
        raise TypeError(f"{what} must be a numpy array, not {type(array).__name__}")
    kind = dtype_of(array, dtype, what)
    if not array.flags.c_contiguous:
        raise ValueError(f"{what} is not contiguous: give numpy.ascontiguousarray(array)")
    if not array.flags.aligned:
        raise ValueError(f"{what} is not aligned to its elements: give a copy")
    if writable and not array.flags.writeable:
        raise ValueError(f"{what} is read-only, and would be written to")
    if array.size > TG_MAX_COUNT:
        raise ValueError(f"{what} has {array.size} elements: one tensor may have {TG_MAX_COUNT}")
    return tg_tensor(array.ctypes.data, array.size, kind)


def frame(data: Any) -> tuple[tg_frame, Array]:
    """A tg_frame over bytes-like data, and the object that keeps its memory alive."""
    try:
        bytes_ = np.frombuffer(data, dtype=np.uint8) if len(data) else np.empty(0, np.uint8)
    except (TypeError, ValueError, BufferError) as problem:
        raise TypeError(f"a frame must be contiguous bytes, not {type(data).__name__} ({problem})") from None
    return tg_frame(bytes_.ctypes.data, bytes_.size), bytes_
