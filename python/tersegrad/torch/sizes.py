# SPDX-License-Identifier: Apache-2.0
"""How many bytes a frame takes, before there is a gradient."""

from __future__ import annotations

import functools

import numpy as np

from .._library import Algorithm, Dtype, ExchangeRole, tg_density_change, tg_reducer_options, tg_reducer_tensor
from ..codec import Encoder
from ..described import describe
from ..spec import Spec

NONE = Spec("none")
SAMPLE = 1 << 18


def depends_on_data(spec: Spec) -> bool:
    """Whether frames of one spec and count differ in size."""
    text = str(spec)
    return spec.codec.sparse or ("coding=" in text and "coding=packed" not in text)


@functools.lru_cache(maxsize=1024)
def frame_bytes(spec: Spec, count: int, dtype: Dtype, density: float = 0.0) -> int:
    """Of the frame of a gradient. Where it depends on the data, about: of as many elements as a sparsifier aims at, or
    of levels of normally distributed values. `density`, unless 0, is what a schedule ends with."""
    if not spec.codec.sparse and depends_on_data(spec):
        part = min(count, SAMPLE)
        frame = Encoder(spec, part).encode(np.random.default_rng(1).standard_normal(part, np.float32))
        return round(len(frame) * count / max(part, 1))
    # What the library plans with is a message: less what a message of one element has beside its frame.
    beside = _message_bytes(NONE, 1, Dtype.FLOAT32, 0.0) - Encoder(NONE, 1).bound(1)
    return _message_bytes(spec, count, dtype, density) - beside


def _message_bytes(spec: Spec, count: int, dtype: Dtype, density: float) -> int:
    """What one of two ranks sends the other of a tensor."""
    tensor = tg_reducer_tensor(name=b"it", count=count, dtype=dtype, codec=spec._raw, insist=True)
    options = tg_reducer_options(algorithm=Algorithm.GATHER)
    if density and "density=" in str(spec):
        options.schedule = (tg_density_change * 1)(tg_density_change(0, density))
        options.schedule_count = 1
    _, exchanges = describe(2, [tensor], options)
    return sum(exchange.bytes_sent for exchange in exchanges if exchange.role != ExchangeRole.ROLE_VERDICT)
