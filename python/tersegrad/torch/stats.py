# SPDX-License-Identifier: Apache-2.0
"""What compressing has done so far, and what it would do: Stats and explain."""

from __future__ import annotations

import difflib
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..codec import Feedback
from ..errors import Error
from ..reducer import ALGORITHMS, Reducer
from ..spec import Spec, stability
from .options import Options, ShardedOptions, check_algorithm, check_common, densities, duration, suits_levels
from .plan import Row, plan
from .policy import DTYPES, Choice, Policy, choices_of
from .sizes import depends_on_data, frame_bytes


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
    gradient_norm: float | None
    """Of the last gradient; None without feedback, where nobody measures it."""
    residual_norm: float
    residual_peak: float
    residual_growth: float

    @property
    def ratio(self) -> float:
        """dense_bytes / bytes; 0 before the first step."""
        return self.dense_bytes / self.bytes if self.bytes else 0.0

    @property
    def error(self) -> float | None:
        """What is kept back, relative to the last gradient: |residual| / |gradient|. 0 where parameters are sent as
        they are; None where it is not known: without feedback, and before the first step."""
        if Spec(self.spec).name == "none":
            return 0.0
        return self.residual_norm / self.gradient_norm if self.gradient_norm else None


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
    """The same gradients as float32, each once."""
    ring_bytes: int
    """What a float32 ring all-reduce, or under 'scatter' reduce-scatter, would have sent from this rank."""
    ratio: float
    """dense_bytes over the bytes of the frames, each once."""
    residual_norm: float
    residual_growth: float
    saturated: int
    dropped: int
    seconds: dict[str, float]
    """encode, verify, decode: at work; exchange: waiting for bytes when all gradients were there."""
    parameters: dict[str, ParameterStats]

    @property
    def error(self) -> float | None:
        """What is kept back, relative to the last gradients, over all parameters with feedback; None if there are none,
        or before the first step."""
        kept = [own for own in self.parameters.values() if own.gradient_norm is not None]
        gradient = math.hypot(*(own.gradient_norm or 0.0 for own in kept))
        return math.hypot(*(own.residual_norm for own in kept)) / gradient if gradient else None

    def scalars(self) -> dict[str, float]:
        """The totals that change from step to step; the error where it is known."""
        names = ("bytes_sent", "bytes_received", "dense_bytes", "ring_bytes", "ratio", "skipped")
        return {
            **{name: float(getattr(self, name)) for name in (*names, "residual_norm", "residual_growth")},
            **({} if self.error is None else {"error": self.error}),
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
        dense_bytes=raw.float32_bytes,
        ring_bytes=raw.ring_bytes,
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
        gradient_norm=raw.gradient_norm if choice.feedback.bytes_per_element and raw.steps else None,
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
        ring_bytes=total("ring_bytes"),
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
        f"step {stats.steps}: {stats.bytes_sent:,} bytes sent where a dense ring sends {stats.ring_bytes:,}, "
        f"gradients {stats.ratio:.1f} times smaller, residual {stats.residual_norm:.3g}; {seconds}"
    )


@dataclass(frozen=True)
class Explanation:
    """Which parameters are sent how. `print` it for a table."""

    choices: tuple[Choice, ...]
    frame_bytes: tuple[int, ...]
    """Bytes of each parameter's frame."""
    estimated: bool = False
    """Some of them depend on the data: then as many elements as a sparsifier aims at, or levels of normally distributed
    values. Others are exact."""
    shards: int = 1
    """Ranks that fully_shard has divided the model among."""
    predicted: Row | None = None
    """The step's predicted time, where `loss` was given; the faster of the two algorithms."""
    dense: Row | None = None
    """The same without compression."""
    hosts: int = 0
    """How many there are, where there are two levels."""
    shares: int = 1
    """As many ranks of each host own a share of the gradients, which they compress."""

    @property
    def dense_bytes(self) -> int:
        """All gradients of a step as float32."""
        return sum(4 * choice.count for choice in self.choices)

    @property
    def bytes(self) -> int:
        """Of one step's frames on one rank, or with hosts on one host, each counted once."""
        return sum(self.frame_bytes)

    @property
    def residual_bytes(self) -> int:
        """Memory for residuals on each rank (with hosts: on each owner of a share, about), without what owners keep
        under 'shard'."""
        return -(-sum(choice.count * choice.feedback.bytes_per_element for choice in self.choices) // self.shares)

    def __str__(self) -> str:
        width = max(len(choice.name) for choice in self.choices)
        lines = [f"{'parameter':{width}} {'elements':>12} {'bytes':>12}  sent as"]
        for choice, size in zip(self.choices, self.frame_bytes):
            how = f"{choice.spec}, feedback {choice.feedback}" if choice.compressed else "it is"
            why = f" ({choice.reason})" if choice.reason else ""
            lines.append(f"{choice.name:{width}} {choice.count:12,} {size:12,}  {how}{why}")
        lines.append(
            f"a step: {'about ' if self.estimated else ''}{self.bytes:,} bytes where float32 takes "
            f"{self.dense_bytes:,}; residuals: {self.residual_bytes:,} bytes of memory on each rank"
        )
        if self.hosts == 1:
            lines.append("all ranks are on one host: they add up their gradients as they are, and nothing is compressed")
        elif self.hosts:
            lines.append(
                f"{self.hosts} hosts: the ranks of each add up their gradients as they are; these bytes are a host's, and "
                f"these residuals those of a rank that owns one of the {self.shares} shares"
            )
        if self.predicted is not None and self.dense is not None:
            step, dense = self.predicted, self.dense
            lines.append(
                f"predicted: a step takes {1e3 * step.seconds:.1f} ms ({1e3 * step.low:.1f} - {1e3 * step.high:.1f}) by "
                f"{step.algorithm}, bound by {step.bound_by}; without compression {1e3 * dense.seconds:.1f} ms"
            )
        if self.shards > 1 and not self.hosts:
            full = sum(4 * choice.count for choice in self.choices if choice.compressed)
            lines.append(
                f"feedback 'ef' keeps {full:,} bytes on each of the {self.shards} ranks that share this model, as much as "
                f"all its gradients; a shard of them has {full // self.shards:,}, and that is what it keeps with hosts="
            )
        return "\n".join(lines)


# What compress takes and explain has no use for. It takes them too, so that both can be given the same.
_UNUSED = (Options.__annotations__.keys() | ShardedOptions.__annotations__.keys()) - {
    "feedback", "rules", "min_size", "exclude", "exclude_norms", "hosts", "schedule", "insist"
}  # fmt: skip


def explain(
    model: nn.Module,
    spec: str | Spec | None = None,
    *,
    feedback: Any = None,
    rules: Any = (),
    min_size: int = 10_000,
    exclude: Any = (),
    exclude_norms: bool = True,
    schedule: Iterable[tuple[int, float]] = (),
    insist: bool = False,
    hosts: Any = "auto",
    loss: Callable[[], torch.Tensor] | None = None,
    probe: str | Path | None = None,
    world: int | None = None,
    per_node: int | None = None,
    rate: str | None = None,
    latency: str | None = None,
    kappa: float | None = None,
    repeats: int | None = None,
    levels: bool | None = None,
    **options: Any,
) -> Explanation:
    """Which parameters would be sent how, the bytes of a step, and the memory for residuals. Needs no process group.

    It takes the options of `compress`, and refuses what compress would refuse. Bytes are those after `warmup`, and with
    the last density of `schedule`. `hosts` as for CompressionState, but for 'names': the host of each rank; with
    fully_shard as for ShardedCompression. 'auto', the default, counts the hosts of the network that is predicted for.

    With `loss`, and a network as for `plan` (probe, world, rate, ...), also how long a step takes. That is predicted with
    the spec for all parameters of `min_size` elements and more; rules and exclusions are left out. It is in two levels
    where compress, given the same options, would reduce in two.
    """
    from .fsdp import DEFAULT_SPEC, is_sharded, shards_of

    _check_options(options)
    if spec is None and not is_sharded(model):
        raise TypeError("explain needs a spec, such as 'qsgd' or 'topk:density=0.01'")
    given: dict[str, Any] = {"probe": probe, "world": world, "per_node": per_node, "rate": rate, "latency": latency}
    given.update({"kappa": kappa, "repeats": repeats, "levels": levels})
    network = {name: value for name, value in given.items() if value is not None}
    if network and loss is None:
        raise TypeError(f"explain was given {', '.join(network)}, but no loss= to time the model with")
    policy = Policy.of(DEFAULT_SPEC if spec is None else spec, feedback, rules, min_size, exclude, exclude_norms)
    changes = densities(schedule, policy)
    choices = choices_of(model, policy)
    for choice in choices:
        _check_feedback(choice, insist)
    density = changes[-1][1] if changes else 0.0
    sizes = [frame_bytes(choice.spec, choice.count, DTYPES[choice.dtype], density) for choice in choices]
    sharded = shards_of(model)
    found = isinstance(hosts, str) and hosts == "auto"  # by those that run
    if found:
        ranks = []
    elif is_sharded(model) and hosts is not None:
        ranks = [sharded] * hosts.size()
    else:
        ranks = _ranks_of_hosts(hosts)
    if max(ranks, default=0) < 2:
        ranks = []  # there are no levels
    explained = Explanation(
        choices=tuple(choices),
        frame_bytes=tuple(sizes),
        estimated=any(depends_on_data(choice.spec) for choice in choices),
        shards=sharded,
        hosts=len(ranks),
        shares=min(ranks, default=1),
    )
    if loss is None:
        return explained
    if ranks:
        if min(ranks) != max(ranks):
            raise ValueError(f"hosts have {min(ranks)} to {max(ranks)} ranks: predictions take as many ranks on each")
        network = {"world": sum(ranks), "per_node": ranks[0], **network}
    suited = suits_levels(options.get("algorithm", "auto"), options.get("bypass", "off"), [one.feedback for one in choices])
    network = {"levels": bool(ranks) or (found and suited and not is_sharded(model)), **network}
    text, loop = str(policy.spec), str(policy.feedback)
    made = plan(model, loss, codecs=[text], feedback=loop, min_size=min_size, insist=insist, **network)
    if found and made.levels:
        least = made.world % made.per_node or made.per_node
        explained = replace(explained, hosts=-(-made.world // made.per_node), shares=least)
    return replace(explained, predicted=made.find(text, loop), dense=made.rows[0])


def _check_options(options: dict[str, Any]) -> None:
    """Those that explain has no use for: a mistake in them is found all the same."""
    for name in options:
        if name not in _UNUSED:
            like = difflib.get_close_matches(name, _UNUSED, 1)
            raise TypeError(f"explain has no option {name!r}" + (f": did you mean {like[0]!r}?" if like else ""))
    common = (options.get("seed", 0), options.get("warmup", 0), options.get("nonfinite", "propagate"))
    check_common(*common, options.get("scaler"))
    check_algorithm(options.get("algorithm", "auto"))
    duration(options.get("timeout"))


def _check_feedback(choice: Choice, insist: bool) -> None:
    """Raises what a reducer would raise, which says it before it takes memory for a residual."""
    dgc_over_dense = choice.feedback.name == "dgc" and not choice.spec.codec.sparse
    if dgc_over_dense or (not insist and stability(choice.spec, choice.feedback, choice.count).binding):
        try:
            Feedback(choice.feedback, choice.spec, choice.count, insist=insist)
        except Error as problem:
            raise type(problem)(f"{choice.name}: {problem}") from None


def _ranks_of_hosts(hosts: Sequence[int] | None) -> list[int]:
    """How many ranks each host has."""
    if hosts is None:
        return []
    if isinstance(hosts, str) or not hosts:
        raise ValueError(f"hosts is {hosts!r}: give a list with the host of each rank, for instance [0, 0, 1, 1]")
    return list(Counter(hosts).values())
