# SPDX-License-Identifier: Apache-2.0
"""Will compression help? Predicted step times of a real model, before it is trained: plan.

The backward pass is timed here, parameter by parameter; what follows from that is computed by the command
`tersegrad plan`, which `explain` asks too.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ContextManager

import torch
from torch import nn

from .. import _command
from ..spec import FeedbackSpec, Spec
from .policy import parameters_of, wrapper


@dataclass(frozen=True)
class Timeline:
    """When each gradient of a model is ready, in seconds after the backward pass began, in that order."""

    names: tuple[str, ...]
    counts: tuple[int, ...]
    ready: tuple[float, ...]
    forward: float
    backward: float

    def layout(self) -> list[dict[str, Any]]:
        """As `tersegrad plan --layout` reads it."""
        rows, offset = [], 0
        for name, count, ready in zip(self.names, self.counts, self.ready):
            rows.append({"name": name, "offset": offset, "count": count, "ready": ready})
            offset += count
        return rows


@dataclass(frozen=True)
class Row:
    """A codec by one algorithm; `ring` is the dense baseline."""

    codec: str
    feedback: str
    algorithm: str
    seconds: float
    low: float
    high: float
    """Four of five measured steps should lie between low and high."""
    speed_up: float
    """Over the baseline."""
    bytes_sent: int
    """By the busiest rank to other hosts, in a step."""
    bound_by: str


@dataclass(frozen=True)
class Plan:
    """Predicted steps. `print` it for a table, with all that they rest on. Times, not accuracy."""

    rows: tuple[Row, ...]
    recommended: Row
    reason: str
    world: int
    timeline: Timeline
    per_node: int
    levels: bool
    """Whether ranks of a host add up their gradients first."""
    inputs: tuple[str, ...]
    """What the predictions rest on, each stated, measured or assumed."""

    def find(self, codec: str, feedback: str) -> Row:
        """The faster of a codec's two algorithms."""
        rows = [row for row in self.rows if (row.codec, row.feedback) == (codec, feedback) and row.algorithm not in ("ring", "tree")]
        if not rows:
            raise KeyError(f"{codec} with feedback {feedback} was not asked about")
        return min(rows, key=lambda row: row.seconds)

    def __str__(self) -> str:
        width = max(len(_name(row)) for row in self.rows)
        lines = [f"{'codec':{width}} reduce {'step':>10} {'80 %':>19} {'gain':>7} {'sent':>8}  bound by"]
        for row in self.rows:
            interval = f"{1e3 * row.low:.1f} - {1e3 * row.high:.1f} ms"
            step = f"{1e3 * row.seconds:7.1f} ms"
            gain = f"{row.speed_up:6.2f}x {_size(row.bytes_sent):>8}"
            lines.append(f"{_name(row):{width}} {row.algorithm:6} {step} {interval:>19} {gain}  {row.bound_by}")
        by = "" if self.recommended.algorithm == "ring" else f" by {self.recommended.algorithm}"
        lines += [f"recommended for {self.world} ranks: {_name(self.recommended)}{by}", self.reason]
        lines.append("This predicts time, not accuracy: train with the codec to see that.")
        lines += [f"- {note}" for note in self.inputs]
        return "\n".join(lines)


def _name(row: Row) -> str:
    return row.codec if row.feedback == "none" else f"{row.codec}+{row.feedback}"


def _size(count: float) -> str:
    """1.23 MB."""
    units = ["B", "kB", "MB", "GB", "TB"]
    while count >= 999.5 and len(units) > 1:
        count /= 1000
        del units[0]
    digits = 0 if units[0] == "B" or count >= 99.95 else 1 if count >= 9.995 else 2
    return f"{count:.{digits}f} {units[0]}"


class _Clock:
    """Moments of the host or of a card's stream, as seconds after the first."""

    def __init__(self, device: torch.device) -> None:
        self._card = device.type == "cuda"

    def now(self) -> Any:
        if not self._card:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def between(self, first: Any, then: Any) -> float:
        if not self._card:
            return float(then - first)
        then.synchronize()
        return float(first.elapsed_time(then)) / 1e3


def _one_step(model: nn.Module, loss: Callable[[], torch.Tensor], named: Sequence[tuple[str, nn.Parameter]]) -> Timeline:
    clock, moments, hooks = _Clock(named[0][1].device), {}, []
    ddp = wrapper(model)
    quiet: ContextManager[Any] = contextlib.nullcontext() if ddp is None else ddp.no_sync()
    for name, parameter in named:

        def note(_: torch.Tensor, name: str = name) -> None:
            moments[name] = clock.now()

        hooks.append(parameter.register_post_accumulate_grad_hook(note))  # type: ignore[no-untyped-call]
    try:
        with quiet:
            start = clock.now()
            value = loss()
            turn = clock.now()
            value.backward()  # type: ignore[no-untyped-call]
            end = clock.now()
    finally:
        for hook in hooks:
            hook.remove()
    if not moments:
        raise ValueError("no gradient was made: loss() must return what the model's parameters lead to")
    ready = {name: clock.between(turn, moment) for name, moment in moments.items()}
    order = sorted(ready, key=lambda name: ready[name])
    counts = {name: parameter.numel() for name, parameter in named}
    return Timeline(
        names=tuple(order),
        counts=tuple(counts[name] for name in order),
        ready=tuple(ready[name] for name in order),
        forward=clock.between(start, turn),
        backward=clock.between(turn, end),
    )


def timeline(model: nn.Module, loss: Callable[[], torch.Tensor], *, repeats: int = 5) -> Timeline:
    """Times forward and backward passes of `loss`, a function without arguments that computes the loss of one batch.

    The median of the repeats counts, after one that does not. Gradients are put back as they were.
    """
    if repeats < 1:
        raise ValueError(f"repeats is {repeats}: time at least one step")
    named = [(name, parameter) for name, parameter, _ in parameters_of(model)]
    before = [(parameter, parameter.grad) for _, parameter in named]
    try:
        runs = []
        for _ in range(repeats + 1):
            for parameter, _ in before:
                parameter.grad = None
            runs.append(_one_step(model, loss, named))
    finally:
        for parameter, grad in before:
            parameter.grad = grad
    runs = sorted(runs[1:], key=lambda run: run.backward)
    return runs[len(runs) // 2]


def plan(
    model: nn.Module,
    loss: Callable[[], torch.Tensor],
    *,
    probe: str | Path | None = None,
    world: int | None = None,
    per_node: int | None = None,
    rate: str | None = None,
    latency: str | None = None,
    codecs: Sequence[str | Spec] = (),
    feedback: str | FeedbackSpec | None = None,
    min_size: int = 10_000,
    kappa: float | None = None,
    repeats: int = 5,
    insist: bool = False,
    levels: bool | None = None,
) -> Plan:
    """Predicts how long a training step takes with each codec, from this model's own forward and backward passes.

    >>> print(tersegrad.torch.plan(model, lambda: criterion(model(x), y), rate="1gbit", world=8))   # doctest: +SKIP

    The network is that of a probe (`tersegrad.torch.probe`, or `tersegrad plan --probe` under mpirun), or links of a
    `rate` and `latency`; other options are those of the command `tersegrad plan`. Needs no process group.

    Where there are several hosts of several ranks (`per_node`), the ranks of each add up their gradients first, as they do
    by default under `compress`. With `levels=False` every rank exchanges with every other, as with `hosts=None`.
    """
    times = timeline(model, loss, repeats=repeats)
    if kappa is None and next(iter(model.parameters())).device.type == "cuda":
        kappa = 1.0  # a card computes while the host codes
    arguments = ["plan", f"--min-size={min_size}"]
    given: dict[str, Any] = {"--probe": probe, "--world": world, "--per-node": per_node}
    given.update({"--rate": rate, "--latency": latency, "--feedback": feedback, "--kappa": kappa})
    arguments += [f"{name}={value}" for name, value in given.items() if value is not None]
    arguments += [f"--codec={codec}" for codec in codecs] + (["--insist"] if insist else [])
    arguments += ["--flat"] if levels is False else []
    arguments += [f"--forward={times.forward:.9f}s", f"--backward={max(times.backward, times.ready[-1]) + 1e-9:.9f}s"]
    with tempfile.TemporaryDirectory() as folder:
        layout = Path(folder) / "model.layout.json"
        layout.write_text(json.dumps(times.layout()))
        answer, doubts = _command.ask(*arguments, f"--layout={layout}")
    for doubt in doubts:
        warnings.warn(doubt, stacklevel=2)
    rows = tuple(Row(**{name: row[name] for name in Row.__dataclass_fields__}) for row in answer["rows"])
    chosen = answer["recommended"]
    wanted = chosen["codec"], chosen["feedback"], chosen["algorithm"]
    recommended = next(row for row in rows if (row.codec, row.feedback, row.algorithm) == wanted)
    world, per_node = answer["world"], answer["per_node"]
    # The command was told what was measured here.
    inputs = [note for note in answer["inputs"] if not note.startswith("stated: backward pass")]
    passes = f"backward pass {1e3 * times.backward:.2f} ms, forward {1e3 * times.forward:.2f} ms"
    return Plan(
        rows=rows,
        recommended=recommended,
        reason=chosen["reason"],
        world=world,
        timeline=times,
        per_node=per_node,
        levels=levels is not False and 1 < per_node < world,
        inputs=(f"measured: {passes}, on this machine", *inputs),
    )


def spread(values: Sequence[float]) -> tuple[float, float, float]:
    """Median, and the quantiles between which 80 % lie."""
    if len(values) == 1:
        return values[0], values[0], values[0]
    tenths = statistics.quantiles(values, n=10, method="inclusive")
    return statistics.median(values), tenths[0], tenths[-1]
