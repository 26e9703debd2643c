# SPDX-License-Identifier: Apache-2.0
"""Exceptions: one class for each status of the library, with the library's sentence."""

from __future__ import annotations

from ._library import Status, lib, tg_error


class Error(Exception):
    """Base of everything that the library reports; `status` says what kind it is."""

    status: Status = Status.STATUS_COUNT


class InvalidArgument(Error, ValueError):
    """A length or a number that the function cannot take."""

    status = Status.INVALID_ARGUMENT


class InvalidSpec(Error, ValueError):
    """A spec text that no codec accepts."""

    status = Status.INVALID_SPEC


class UnknownCodec(Error, ValueError):
    """A codec that this library does not have."""

    status = Status.UNKNOWN_CODEC


class UnknownDevice(Error, ValueError):
    """A device that this library does not have, or this machine cannot run."""

    status = Status.UNKNOWN_DEVICE


class ShapeMismatch(Error, ValueError):
    """Counts that ought to be equal are not."""

    status = Status.SHAPE_MISMATCH


class OutOfMemory(Error, MemoryError):
    """There is not enough memory."""

    status = Status.OUT_OF_MEMORY


class BadFrame(Error, ValueError):
    """Bytes that are not a good frame; the children say why."""


class UnknownVersion(BadFrame):
    """A frame of a format version that this library does not read."""

    status = Status.UNKNOWN_VERSION


class NotAFrame(BadFrame):
    """The magic number is missing."""

    status = Status.NOT_A_FRAME


class Truncated(BadFrame):
    """The bytes end before the frame does."""

    status = Status.TRUNCATED


class TrailingBytes(BadFrame):
    """The bytes go on after the frame has ended."""

    status = Status.TRAILING_BYTES


class ChecksumMismatch(BadFrame):
    """The bytes are not those that were written."""

    status = Status.CHECKSUM_MISMATCH


class Corrupt(BadFrame):
    """The contents break a rule of the format."""

    status = Status.CORRUPT


class NonFinite(Error, ArithmeticError):
    """An infinity or a NaN in the input."""

    status = Status.NONFINITE


class Unstable(Error, ValueError):
    """Error feedback over this codec would diverge."""

    status = Status.UNSTABLE


class Unavailable(Error):
    """An optional part that is not on this machine."""

    status = Status.UNAVAILABLE


class ExchangeFailed(Error):
    """An exchange between ranks failed. Ranks may not know the same any more: stop, and resume from a checkpoint."""

    status = Status.EXCHANGE


class Skipped(Error):
    """No rank applied this step; what was sent is in the residuals again."""

    status = Status.SKIPPED


class LayoutMismatch(Error, ValueError):
    """Another rank, or a saved state, has other tensors, specs or options."""

    status = Status.LAYOUT_MISMATCH


class BadResidual(Error, ArithmeticError):
    """A residual, or dgc's momentum, holds an infinity or a NaN: reset or restore the feedback."""

    status = Status.BAD_RESIDUAL


def _descendants(parent: type[Error]) -> list[type[Error]]:
    children = parent.__subclasses__()
    return children + [grandchild for child in children for grandchild in _descendants(child)]


_by_status: dict[int, type[Error]] = {
    int(kind.status): kind for kind in _descendants(Error) if kind.status is not Status.STATUS_COUNT
}


def check(status: int, error: tg_error | None = None) -> None:
    """Raises what a status other than OK means."""
    if status == Status.OK:
        return
    kind = _by_status.get(status, Error)
    words = lib.tg_status_text(status).decode()
    sentence = error.message.decode(errors="replace") if error is not None else ""
    exception = kind(sentence or words)
    if kind is Error:  # a status without a class of its own
        exception.status = Status(status) if 0 <= status < Status.STATUS_COUNT else Status.STATUS_COUNT
    raise exception


__all__ = ["Error"] + [kind.__name__ for kind in _descendants(Error)]
