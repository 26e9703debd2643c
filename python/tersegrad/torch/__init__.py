# SPDX-License-Identifier: Apache-2.0
"""Compressed gradients for PyTorch, in two lines:

    import tersegrad.torch as tersegrad
    tersegrad.compress(ddp_model, "topk:density=0.01", feedback="ef")

docs/python.md is the manual.
"""

from .fsdp import ShardedCompression
from .hook import comm_hook, compress, reduce_gradients
from .local import LocalSGD
from .plan import Plan, Timeline, plan, timeline
from .policy import Choice, Policy
from .probe import probe
from .state import CompressionState
from .stats import Explanation, ParameterStats, Stats, explain

__all__ = [
    "Choice",
    "CompressionState",
    "Explanation",
    "LocalSGD",
    "ParameterStats",
    "Plan",
    "Policy",
    "ShardedCompression",
    "Stats",
    "Timeline",
    "comm_hook",
    "compress",
    "explain",
    "plan",
    "probe",
    "reduce_gradients",
    "timeline",
]
