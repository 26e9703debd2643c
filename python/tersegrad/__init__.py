# SPDX-License-Identifier: Apache-2.0
"""Tersegrad: make the gradients of distributed training small.

A vector of floats goes in, a small checksummed frame comes out, and any machine turns that frame back into the same
bits. This module works on numpy arrays and needs numpy alone:

    import numpy as np, tersegrad
    gradient = np.random.default_rng(0).standard_normal(1_000_000, dtype=np.float32)
    spec = "topk:density=0.01"
    residual = tersegrad.Feedback("ef", spec, gradient.size)
    frame = tersegrad.encode(gradient, spec, feedback=residual, step=1)
    mean = tersegrad.decode([frame, frame], weight=0.5)

`tersegrad.torch` compresses the gradients of PyTorch models. docs/python.md is the manual.
"""

from . import errors
from ._library import lib
from .codec import (
    ArrayInfo,
    Device,
    Encoder,
    Feedback,
    FrameInfo,
    Report,
    decode,
    decode_add,
    devices,
    encode,
    inspect,
    verify,
)
from .errors import *
from .spec import Codec, FeedbackSpec, Parameter, Spec, Stability, codecs, stability

__version__: str = lib.tg_version().decode()
__all__ = errors.__all__ + [
    "ArrayInfo",
    "Codec",
    "Device",
    "Encoder",
    "Feedback",
    "FeedbackSpec",
    "FrameInfo",
    "Parameter",
    "Report",
    "Spec",
    "Stability",
    "codecs",
    "decode",
    "decode_add",
    "devices",
    "encode",
    "inspect",
    "stability",
    "verify",
]
