# SPDX-License-Identifier: Apache-2.0
"""What a reduction exchanges, without making a reducer: the library's own description of it."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import POINTER, byref

from ._library import lib, tg_described_exchange, tg_description, tg_description_info, tg_error, tg_reducer_options
from ._library import tg_reducer_tensor
from .errors import check


def describe(
    world: int, tensors: Sequence[tg_reducer_tensor], options: tg_reducer_options
) -> tuple[tg_description_info, list[tg_described_exchange]]:
    """Of a step, as rank 0 sees it."""
    raw = (tg_reducer_tensor * len(tensors))(*tensors)
    description, info, error = POINTER(tg_description)(), tg_description_info(), tg_error()
    status = lib.tg_description_create(world, raw, len(tensors), byref(options), byref(description), byref(error))
    check(status, error)
    try:
        check(lib.tg_description_of(description, byref(info), byref(error)), error)
        exchanges = []
        for i in range(info.exchange_count):
            exchange = tg_described_exchange()
            check(lib.tg_description_exchange(description, 0, i, byref(exchange), byref(error)), error)
            exchanges.append(exchange)
        return info, exchanges
    finally:
        lib.tg_description_free(description)
