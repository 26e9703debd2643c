# SPDX-License-Identifier: Apache-2.0
"""Arguments as C takes them: what ctypes would cut off or misread without a word is refused, with its name."""

from __future__ import annotations

import math
import operator
from typing import Any, NoReturn

from ._library import TG_MAX_COUNT

MAX_WEIGHT = 3.4028234663852886e38
"""The largest float32."""


def _index(name: str, value: Any) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be a whole number, not {type(value).__name__}") from None


def whole(name: str, value: Any, bits: int = 64) -> int:
    """A whole number of so many bits. ctypes would keep the low ones of any other."""
    number = _index(name, value)
    if not 0 <= number < 1 << bits:
        raise ValueError(f"{name} is {number}: it must be 0 ... 2**{bits} - 1")
    return number


def count(name: str, value: Any) -> int:
    """A number of elements."""
    number = _index(name, value)
    if not 0 <= number <= TG_MAX_COUNT:
        raise ValueError(f"{name} is {number}: it must be 0 ... {TG_MAX_COUNT}")
    return number


def number(name: str, value: Any) -> float:
    """A finite number that float32 can hold."""
    try:
        if isinstance(value, (str, bytes, bytearray)):  # float would read them
            raise TypeError
        result = float(value)
    except TypeError:
        raise TypeError(f"{name} must be a number, not {type(value).__name__}") from None
    except OverflowError:
        result = math.inf
    if not abs(result) <= MAX_WEIGHT:
        raise ValueError(f"{name} is {value}: it must be finite, and fit into float32")
    return result


def text(name: str, value: str, kind: type[ValueError]) -> bytes:
    """Text as C reads it: it would end at a NUL. `kind` is raised where it cannot be."""
    try:
        encoded = value.encode()
    except UnicodeEncodeError:
        encoded = b"\0"
    if b"\0" in encoded:
        raise kind(f"{name} {value!r} holds a character that no text may have")
    return encoded


class Handle:
    """What owns memory of the library. A copy would free the same memory again."""

    _instead = "make another one"

    def __reduce__(self) -> NoReturn:  # copy, deepcopy and pickle all come here
        name = type(self).__name__
        raise TypeError(f"a {name} cannot be copied or pickled: it owns memory of the library. {self._instead}")
