# SPDX-License-Identifier: Apache-2.0
"""Which codec, and with which parameters: Spec, FeedbackSpec, and the table of codecs."""

from __future__ import annotations

import ctypes
from ctypes import byref
from dataclasses import dataclass
from typing import Union

from . import checked
from ._library import TG_SPEC_TEXT, FeedbackKind, Status, lib, tg_codec_info, tg_error, tg_feedback_spec, tg_spec
from ._library import tg_stability
from .errors import InvalidSpec, check


@dataclass(frozen=True)
class Parameter:
    """One parameter of a codec."""

    name: str
    range: str
    default: str
    summary: str


@dataclass(frozen=True)
class Codec:
    """One row of the table of codecs."""

    name: str
    summary: str
    sparse: bool
    """It sends chosen elements, with their indices."""
    unbiased: bool
    """The expectation of what is decoded is the input."""
    parameters: tuple[Parameter, ...]


def _text(value: bytes | None) -> str:
    return (value or b"").decode()


def _rows() -> dict[int, Codec]:
    rows: dict[int, Codec] = {}
    info = tg_codec_info()
    index = 0
    while lib.tg_codec_list(index, byref(info)) == Status.OK:
        parameters = tuple(
            Parameter(_text(p.name), _text(p.range), _text(p.standard), _text(p.summary))
            for p in info.parameters[: info.parameter_count]
        )
        rows[info.id] = Codec(_text(info.name), _text(info.summary), info.sparse, info.unbiased, parameters)
        index += 1
    return rows


_table = _rows()


def codecs() -> list[Codec]:
    """Every codec of the library, with its parameters."""
    return list(_table.values())


class Spec:
    """A codec with its parameters, made from text.

    >>> Spec("topk:density=0.01")
    Spec('topk:density=0.01,values=fp32')

    Parameters that are left out take their defaults; `str` writes all of them out. Specs are compared and hashed by
    what they mean. Unknown names, keys and values raise InvalidSpec or UnknownCodec with a sentence that names them.
    """

    __slots__ = ("_raw",)
    _raw: tg_spec

    def __init__(self, text: Union[str, Spec]) -> None:
        self._raw = tg_spec()
        if isinstance(text, Spec):
            ctypes.pointer(self._raw)[0] = text._raw
            return
        if not isinstance(text, str):
            raise TypeError(f"a spec is text such as 'topk:density=0.01', not {type(text).__name__}")
        error, encoded = tg_error(), checked.text("the spec", text, InvalidSpec)
        check(lib.tg_spec_parse(encoded, byref(self._raw), byref(error)), error)

    @classmethod
    def _of(cls, raw: tg_spec) -> Spec:
        spec = cls.__new__(cls)
        spec._raw = tg_spec.from_buffer_copy(raw)
        return spec

    @property
    def name(self) -> str:
        """The codec's name: 'topk'."""
        return self.codec.name

    @property
    def codec(self) -> Codec:
        """The codec's row of the table."""
        return _table[self._raw.codec]

    def selected(self, count: int) -> int:
        """How many elements a sparsifier aims at in a vector of this many; for other codecs, count."""
        return int(lib.tg_spec_selected(byref(self._raw), checked.count("count", count)))

    def __str__(self) -> str:
        text = ctypes.create_string_buffer(TG_SPEC_TEXT)
        error = tg_error()
        check(lib.tg_spec_print(byref(self._raw), text, TG_SPEC_TEXT, byref(error)), error)
        return text.value.decode()

    def __repr__(self) -> str:
        return f"Spec({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return bytes(self._raw) == bytes(other._raw) if isinstance(other, Spec) else NotImplemented

    def __hash__(self) -> int:
        return hash(bytes(self._raw))

    def __reduce__(self) -> tuple[type[Spec], tuple[str]]:
        return Spec, (str(self),)


class FeedbackSpec:
    """What happens to that which a codec leaves out: 'none', 'ef', 'ecq:alpha=0.2,beta=0.9', 'dgc:momentum=0.9'."""

    __slots__ = ("_raw",)
    _raw: tg_feedback_spec

    def __init__(self, text: Union[str, FeedbackSpec]) -> None:
        self._raw = tg_feedback_spec()
        if isinstance(text, FeedbackSpec):
            ctypes.pointer(self._raw)[0] = text._raw
            return
        if not isinstance(text, str):
            raise TypeError(f"feedback is text such as 'ef', not {type(text).__name__}")
        error, encoded = tg_error(), checked.text("the feedback", text, InvalidSpec)
        check(lib.tg_feedback_parse(encoded, byref(self._raw), byref(error)), error)

    @property
    def name(self) -> str:
        """'none', 'ef', 'ecq' or 'dgc'."""
        return FeedbackKind(self._raw.kind).name.removeprefix("FEEDBACK_").lower()

    @property
    def bytes_per_element(self) -> int:
        """What it keeps for each element of a tensor, on every rank."""
        return {"none": 0, "ef": 4, "ecq": 4, "dgc": 8}[self.name]

    def __str__(self) -> str:
        text = ctypes.create_string_buffer(TG_SPEC_TEXT)
        error = tg_error()
        check(lib.tg_feedback_print(byref(self._raw), text, TG_SPEC_TEXT, byref(error)), error)
        return text.value.decode()

    def __repr__(self) -> str:
        return f"FeedbackSpec({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return str(self) == str(other) if isinstance(other, FeedbackSpec) else NotImplemented

    def __hash__(self) -> int:
        return hash(str(self))

    def __reduce__(self) -> tuple[type[FeedbackSpec], tuple[str]]:
        return FeedbackSpec, (str(self),)


@dataclass(frozen=True)
class Stability:
    """Whether a residual stays bounded: it does where lambda_ < 1, which is sufficient, not necessary."""

    gamma: float
    """The bound on the codec's relative squared error."""
    lambda_: float
    binding: bool
    """lambda_ >= 1 over an L2 quantiser: Feedback refuses it unless you insist."""


def stability(spec: Spec | str, feedback: FeedbackSpec | str, count: int) -> Stability:
    """How feedback over this codec behaves, for vectors of this many elements."""
    raw, error = tg_stability(), tg_error()
    codec, loop, count = Spec(spec), FeedbackSpec(feedback), checked.count("count", count)
    check(lib.tg_stability_of(byref(codec._raw), byref(loop._raw), count, byref(raw), byref(error)), error)
    return Stability(raw.gamma, getattr(raw, "lambda"), raw.binding)
