# SPDX-License-Identifier: Apache-2.0
"""What compressing has done so far, and what it would do: Stats and explain."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ..codec import Encoder
from ..reducer import ALGORITHMS, Reducer
from .plan import Row, plan
from .policy import Choice, Policy, choices_of


@dataclass(frozen=True)
class ParameterStats:
    """One parameter, on this rank."""

    count: int
    spec: str
    feedback: str
    steps: int
    bytes: int
    """Of its frames, each once."""
    dense_bytes: int
    """The same gradients as float32."""
    gradient_norm: float
    residual_norm: float
    residual_peak: float
    residual_growth: float

    @property
    def ratio(self) -> float:
        """dense_bytes / bytes; 0 before the first step."""
        return self.dense_bytes / self.bytes if self.bytes else 0.0

    @property
    def error(self) -> float:
        """What is kept back, relative to the last gradient: |residual| / |gradient|."""
        return self.residual_norm / self.gradient_norm if self.gradient_norm else 0.0


@dataclass(frozen=True)
class Stats:
    """All parameters, on this rank, since the start or since that of the loaded state."""

    steps: int
    applied: int
    skipped: int
    algorithm: str
    bytes_sent: int
    """Over the wire, with a copy to each peer."""
    bytes_received: int
    dense_bytes: int
    """What a float32 ring all-reduce, or under 'scatter' reduce-scatter, would have sent from this rank."""
    ratio: float
    """Bytes of the gradients as float32, over those of their frames."""
    residual_norm: float
    residual_growth: float
    saturated: int
    dropped: int
    seconds: dict[str, float]
    """encode, verify, decode: at work; exchange: waiting for bytes when all gradients were there."""
    parameters: dict[str, ParameterStats]

    def scalars(self) -> dict[str, float]:
        """The totals that change from step to step."""
        names = ("bytes_sent", "bytes_received", "dense_bytes", "ratio", "residual_norm", "residual_growth", "skipped")
        return {
            **{name: float(getattr(self, name)) for name in names},
            **{f"{name}_seconds": value for name, value in self.seconds.items()},
        }


def collect(reducer: Reducer, choices: Sequence[Choice], waited: float, steps: int) -> Stats:
    """The library's counters by parameter name."""
    raw = reducer.stats()
    names = {int(value): name for name, value in ALGORITHMS.items()}
    return Stats(
        steps=steps,
        applied=raw.applied,
        skipped=raw.skipped,
        algorithm=names[raw.algorithm],
        bytes_sent=raw.bytes_sent,
        bytes_received=raw.bytes_received,
        dense_bytes=raw.ring_bytes,
        ratio=raw.ratio,
        residual_norm=raw.residual_norm,
        residual_growth=raw.residual_growth,
        saturated=raw.saturated,
        dropped=raw.dropped,
        seconds={
            "encode": raw.encode_seconds,
            "exchange": waited,
            "verify": raw.verify_seconds,
            "decode": raw.decode_seconds,
        },
        parameters={choice.name: _parameter(reducer.tensor_stats(i), choice) for i, choice in enumerate(choices)},
    )


def _parameter(raw: Any, choice: Choice) -> ParameterStats:
    return ParameterStats(
        count=choice.count,
        spec=str(choice.spec),
        feedback=str(choice.feedback),
        steps=raw.steps,
        bytes=raw.bytes,
        dense_bytes=4 * choice.count * raw.steps,
        gradient_norm=raw.gradient_norm,
        residual_norm=raw.residual_norm,
        residual_peak=raw.residual_peak,
        residual_growth=raw.residual_growth,
    )


def together(every: Sequence[Stats]) -> Stats:
    """Those of several reducers that share one model's parameters; what each applied and skipped is added up."""

    def total(name: str) -> int:
        return sum(getattr(one, name) for one in every)

    parameters = {name: own for one in every for name, own in one.parameters.items()}
    sent = sum(own.bytes for own in parameters.values())
    stages = ("encode", "exchange", "verify", "decode")
    return Stats(
        steps=max((one.steps for one in every), default=0),
        applied=total("applied"),
        skipped=total("skipped"),
        algorithm=every[0].algorithm if every else "",
        bytes_sent=total("bytes_sent"),
        bytes_received=total("bytes_received"),
        dense_bytes=total("dense_bytes"),
        ratio=sum(own.dense_bytes for own in parameters.values()) / sent if sent else 0.0,
        residual_norm=math.hypot(*(one.residual_norm for one in every)),
        residual_growth=max((one.residual_growth for one in every), default=0.0),
        saturated=total("saturated"),
        dropped=total("dropped"),
        seconds={stage: sum(one.seconds[stage] for one in every) for stage in stages},
        parameters=parameters,
    )


def log_line(stats: Stats) -> str:
    """One line for a log."""
    seconds = ", ".join(f"{name} {value:.2f} s" for name, value in stats.seconds.items())
    return (
        f"step {stats.steps}: {stats.bytes_sent:,} bytes sent where a dense ring sends {stats.dense_bytes:,}, "
        f"gradients {stats.ratio:.1f} times smaller, residual {stats.residual_norm:.3g}; {seconds}"
    )


@dataclass(frozen=True)
class Explanation:
    """Which parameters are sent how. `print` it for a table."""

    choices: tuple[Choice, ...]
    frame_bytes: tuple[int, ...]
    """The most bytes of each parameter's frame; for fixed codes that is the size."""
    shards: int = 1
    """Ranks that fully_shard has divided the model among."""
    predicted: Row | None = None
    """The step's predicted time, where `loss` was given; the faster of the two algorithms."""
    dense: Row | None = None
    """The same without compression."""

    @property
    def dense_bytes(self) -> int:
        """All gradients of a step as float32."""
        return sum(4 * choice.count for choice in self.choices)

    @property
    def bytes(self) -> int:
        """The most that one step's frames take on one rank, each counted once."""
        return sum(self.frame_bytes)

    @property
    def residual_bytes(self) -> int:
        """Memory for residuals on each rank, without what owners keep under 'shard'."""
        return sum(choice.count * choice.feedback.bytes_per_element for choice in self.choices)

    def __str__(self) -> str:
        width = max(len(choice.name) for choice in self.choices)
        lines = [f"{'parameter':{width}} {'elements':>12} {'bytes':>12}  sent as"]
        for choice, size in zip(self.choices, self.frame_bytes):
            how = f"{choice.spec}, feedback {choice.feedback}" if choice.compressed else "it is"
            why = f" ({choice.reason})" if choice.reason else ""
            lines.append(f"{choice.name:{width}} {choice.count:12,} {size:12,}  {how}{why}")
        lines.append(
            f"a step: at most {self.bytes:,} bytes where float32 takes {self.dense_bytes:,}; "
            f"residuals: {self.residual_bytes:,} bytes of memory on each rank"
        )
        if self.predicted is not None and self.dense is not None:
            step, dense = self.predicted, self.dense
            lines.append(
                f"predicted: a step takes {1e3 * step.seconds:.1f} ms ({1e3 * step.low:.1f} - {1e3 * step.high:.1f}) by "
                f"{step.algorithm}, bound by {step.bound_by}; without compression {1e3 * dense.seconds:.1f} ms"
            )
        if self.shards > 1:
            full = sum(4 * choice.count for choice in self.choices if choice.compressed)
            lines.append(
                f"feedback 'ef' keeps {full:,} bytes on each of the {self.shards} ranks that share this model, as much as "
                f"all its gradients; a shard of them has {full // self.shards:,}, and that is what it keeps with hosts="
            )
        return "\n".join(lines)


def explain(
    model: nn.Module,
    spec: Any,
    *,
    feedback: Any = None,
    rules: Any = (),
    min_size: int = 10_000,
    exclude: Any = (),
    exclude_norms: bool = True,
    loss: Callable[[], torch.Tensor] | None = None,
    **network: Any,
) -> Explanation:
    """Which parameters would be sent how, the bytes of a step, and the memory for residuals. Needs no process group.

    With `loss`, and a network as for `plan` (probe, world, rate, ...), also how long a step takes. That is predicted with
    the spec for all parameters of `min_size` elements and more; rules and exclusions are left out.
    """
    policy = Policy.of(spec, feedback, rules, min_size, exclude, exclude_norms)
    choices = choices_of(model, policy)
    if network and loss is None:
        raise TypeError(f"explain was given {', '.join(network)}, but no loss= to time the model with")
    sizes = []
    for choice in choices:
        if choice.spec.codec.sparse:
            # The bound of a sparsifier is for its worst case; what it aims at is of more use.
            sizes.append(5 * choice.spec.selected(choice.count) + 64)
        else:
            sizes.append(Encoder(choice.spec, choice.count).bound(choice.count))
    from .fsdp import shards_of

    if loss is None:
        return Explanation(tuple(choices), tuple(sizes), shards_of(model))
    text, loop = str(policy.spec), str(policy.feedback)
    made = plan(model, loss, codecs=[text], feedback=loop, min_size=min_size, **network)
    return Explanation(tuple(choices), tuple(sizes), shards_of(model), made.find(text, loop), made.rows[0])
