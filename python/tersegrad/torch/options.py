# SPDX-License-Identifier: Apache-2.0
"""The options of `compress`: their types, and what is checked of them before any rank waits for another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypedDict, Union

import torch.distributed as dist

from ..checked import whole
from ..errors import Error
from ..spec import FeedbackSpec, Spec
from .policy import Policy, Rule

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

NONFINITE = ("propagate", "raise", "drop")
ALGORITHMS = ("auto", "gather", "shard")
HOSTS = ("auto", "names")


class CommonOptions(TypedDict, total=False):
    """What both CompressionState and ShardedCompression take; their docstrings say what it means."""

    feedback: Union[str, FeedbackSpec, None]
    rules: Union[Mapping[str, Rule], Sequence[tuple[str, Rule]]]
    min_size: int
    exclude: Iterable[str]
    exclude_norms: bool
    warmup: int
    schedule: Iterable[tuple[int, float]]
    seed: int
    nonfinite: str
    scaler: Any
    log_every: int
    insist: bool
    process_group: Union[dist.ProcessGroup, None]
    timeout: Union[timedelta, float, None]
    device: str


class Options(CommonOptions, total=False):
    """Of a CompressionState."""

    algorithm: str
    bypass: Union[str, Sequence[int]]
    hosts: Union[str, Sequence[int], None]
    check: bool


class ShardedOptions(CommonOptions, total=False):
    """Of a ShardedCompression."""

    hosts: Union[dist.ProcessGroup, DeviceMesh, None]


def duration(timeout: timedelta | float | None) -> timedelta | None:
    """Of an exchange."""
    if timeout is None:
        return None
    made = timeout if isinstance(timeout, timedelta) else timedelta(seconds=timeout)
    if made <= timedelta(0):
        raise ValueError(f"timeout is {timeout}: it must be above 0")
    return made


def check_common(seed: int, warmup: int, nonfinite: str, scaler: Any = None) -> None:
    """What the library would be told only after all ranks have met."""
    whole("seed", seed)
    whole("warmup", warmup)
    if nonfinite not in NONFINITE:
        raise ValueError(f"nonfinite is {nonfinite!r}: it must be 'propagate', 'raise' or 'drop'")
    if scaler is not None and not all(callable(getattr(scaler, name, None)) for name in ("is_enabled", "get_scale")):
        raise TypeError(f"scaler must be the GradScaler in use, or None, not {type(scaler).__name__}")


def name_options(problem: BaseException | None, others: str) -> None:
    """The library's sentence names its own ways to go on where a value is not finite: put those of Python there."""
    if isinstance(problem, Error):
        problem.args = (str(problem).replace("nonfinite to skip or drop", f"nonfinite to {others}"),)


def check_algorithm(algorithm: str) -> None:
    """The library has one more, for parts of means, which would leave every rank with parameters of its own."""
    if algorithm not in ALGORITHMS:
        raise ValueError(f"algorithm is {algorithm!r}: it must be 'auto', 'gather' or 'shard'")


def check_hosts(hosts: Any) -> None:
    """What is a text; a list is checked when the world is known."""
    if isinstance(hosts, str) and hosts not in HOSTS:
        raise ValueError(f"hosts is {hosts!r}: it must be 'auto', 'names', None, or a list with the host of each rank")


def suits_levels(algorithm: str, bypass: str | Sequence[int], feedbacks: Iterable[FeedbackSpec]) -> bool:
    """Whether hosts='auto' may mean two levels: the algorithm is left to us, and nothing is wanted that they refuse."""
    return algorithm == "auto" and bypass == "off" and not any(feedback._raw.clip for feedback in feedbacks)


def densities(schedule: Iterable[tuple[int, float]], policy: Policy) -> list[tuple[int, float]]:
    """The changes of a schedule; there must be something that they change."""
    changes = [(whole("a step of schedule", step), density) for step, density in schedule]
    if changes and not any("density=" in str(spec) for spec in policy.specs()):
        raise ValueError(
            "schedule changes the density of sparsifiers, and no spec here has one: give a spec such as "
            "'topk:density=0.01', or no schedule"
        )
    return changes
