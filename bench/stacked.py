# SPDX-License-Identifier: Apache-2.0
"""Data-parallel training with all workers in one process, and several runs at once: for bench/convergence_card.py.

Runs that differ in their codec are stacked: their parameters are rows of one tensor, one pass over the model gives every
worker's gradient in every run, on a card in one CUDA graph. Gradients are then reduced by the library itself: a Reducer
for each worker, with its own residuals, whose messages are copied from one to the other as between ranks (stacked.c).
"""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from ctypes import POINTER, byref, c_uint32, c_uint64
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.func import functional_call, grad_and_value, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "python"))
from tersegrad._library import Dtype, tg_error, tg_reducer, tg_tensor  # noqa: E402
from tersegrad.reducer import Reducer  # noqa: E402
from tersegrad.torch.policy import Policy, choices_of, parameters_of  # noqa: E402

Batch = tuple[torch.Tensor, torch.Tensor]


def _compiled() -> Any:
    path = ROOT / "build" / "bench" / "stacked.so"
    if not path.exists():
        sys.exit(f"{path} does not exist: run make bench")
    function = ctypes.CDLL(str(path)).stacked_reduce
    ranks = POINTER(POINTER(tg_reducer)), c_uint32, POINTER(POINTER(tg_tensor))
    function.argtypes = [*ranks, c_uint64, POINTER(tg_error)]
    return function


stacked_reduce = _compiled()
ALIGNMENT = 64  # elements: every parameter begins where the card likes to


@dataclass
class StackedTask:
    """A model that can be stacked, its data on the device, and how it is trained."""

    make_model: Callable[[], nn.Module]
    samples: int
    """A sample is drawn as a number below this."""
    batch_of: Callable[[torch.Tensor], Batch]
    """Such numbers, of any shape, to inputs and targets of that shape and more dimensions."""
    test: Callable[[nn.Module], tuple[float, float]]
    """(loss, accuracy) of a model like those of make_model."""
    steps: int
    batch: int
    rate: float
    rate_warmup: int = 0
    clip: float = 0.0
    decay: float = 0.0
    min_size: int = 10_000
    momentum: float = 0.9
    warmup: Sequence[tuple[float, float]] = ()
    """Of sparsifiers: (from this part of the steps on, density), until the density that was asked for is reached."""


@dataclass
class Run:
    """A codec with its feedback."""

    name: str
    spec: str
    stretch: float = 1.0
    """The warm-up of the density takes so many times the steps."""

    @property
    def dense(self) -> bool:
        return self.spec == "none"


class Workers:
    """The reducers of one run."""

    def __init__(self, run: Run, model: nn.Module, task: StackedTask, steps: int, seed: int, memory: torch.Tensor, places: Sequence[int]) -> None:
        codec, _, feedback = run.spec.partition("/")
        choices = choices_of(model, Policy.of(codec, feedback or None, min_size=task.min_size))
        self.compressed = [choice.compressed for choice in choices]
        densities = [float(part.split("=")[1]) for part in codec.replace(":", ",").split(",") if part.startswith("density=")]
        falling = {int(run.stretch * part * steps): max(density, *densities) for part, density in task.warmup} if densities else {}
        schedule = sorted(falling.items())
        world = len(memory)
        self.reducers = [
            Reducer(rank, world, [choice.tensor(False) for choice in choices], seed=seed, schedule=schedule) for rank in range(world)
        ]
        self._handles = (POINTER(tg_reducer) * world)(*(reducer._handle for reducer in self.reducers))
        tensors = [
            (tg_tensor * len(choices))(
                *(tg_tensor(row.data_ptr() + 4 * place, choice.count, Dtype.FLOAT32) for place, choice in zip(places, choices))
            )
            for row in memory
        ]
        self._gradients = (POINTER(tg_tensor) * world)(*(ctypes.cast(one, POINTER(tg_tensor)) for one in tensors))
        self._keep = tensors
        self.broken = ""

    def reduce(self, step: int) -> None:
        """The mean takes the place of every worker's gradient."""
        error = tg_error()
        if not self.broken and stacked_reduce(self._handles, len(self.reducers), self._gradients, step, byref(error)):
            self.broken = error.message.decode() or "it failed"

    def sent(self) -> dict[str, float]:
        """By rank 0: bytes in all; how many times smaller than float32, and the same of the compressed tensors alone."""
        reducer = self.reducers[0]
        stats = reducer.stats()
        chosen = [i for i, yes in enumerate(self.compressed) if yes]
        parts = [reducer.tensor_stats(i) for i in chosen]
        raw = 4 * sum(reducer.tensors[i].count * part.steps for i, part in zip(chosen, parts))
        return {
            "bytes_sent": stats.bytes_sent,
            "frame_bytes": stats.frame_bytes,
            "ratio": stats.ratio,
            "ratio_compressed": raw / max(1, sum(part.bytes for part in parts)),
        }


class Stack:
    """All runs of one task and seed, step by step."""

    def __init__(self, task: StackedTask, runs: Sequence[Run], seed: int, world: int, steps: int, device: torch.device) -> None:
        self.task, self.world, self.steps, self.device = task, world, steps, device
        self.runs = sorted(runs, key=lambda run: not run.dense)
        self._dense = sum(run.dense for run in self.runs)
        torch.manual_seed(seed)
        self.model = task.make_model()
        ordered = [(name, parameter) for name, parameter, _ in parameters_of(self.model)]
        self._names = [name for name, _ in ordered]
        self._shapes = [parameter.shape for _, parameter in ordered]
        self._places, end = [], 0
        for _, parameter in ordered:
            self._places.append(end)
            end += -(-parameter.numel() // ALIGNMENT) * ALIGNMENT
        count = len(self.runs)
        self.flat = torch.zeros(count, end, device=device)
        for view, (_, parameter) in zip(self._views(self.flat), ordered):
            view.copy_(parameter.detach())
        self.model = self.model.to(device)
        self.speed = torch.zeros_like(self.flat)
        self.mean = torch.zeros_like(self.flat)
        self.gradients = torch.zeros(count, world, end, device=device)
        self.losses = torch.zeros(count, world, device=device)
        self.curve = torch.zeros(steps, count, device=device)
        self.host = torch.zeros(count - self._dense, world, end, pin_memory=device.type == "cuda")
        compressed = self.runs[self._dense :]
        self.workers = [Workers(run, self.model, task, steps, seed, memory, self._places) for run, memory in zip(compressed, self.host)]
        self._threads = ThreadPoolExecutor(max(1, len(self.workers)))
        generators = [torch.Generator().manual_seed(1000 * seed + rank) for rank in range(world)]  # as the examples draw
        self.draws = torch.stack([torch.randint(task.samples, (steps, task.batch), generator=one) for one in generators], 1).to(device)
        self._drawn = self.draws[0].clone()
        self.rates = [self._rate(step) for step in range(steps)]
        self.seconds = {"gradients": 0.0, "library": 0.0, "all": 0.0}
        self._compute: Callable[[], None] = self._passes
        if device.type == "cuda":
            self._capture()

    def _rate(self, step: int) -> float:
        return self.task.rate * min(1.0, (step + 1) / (self.task.rate_warmup + 1)) * min(1.0, (1.0 - step / self.steps) / 0.3)

    def _views(self, flat: torch.Tensor) -> list[torch.Tensor]:
        return [flat[..., place : place + shape.numel()].view(*flat.shape[:-1], *shape) for place, shape in zip(self._places, self._shapes)]

    # ---- Gradients ---------------------------------------------------------------------------------------------------

    def _loss(self, parameters: dict[str, torch.Tensor], inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        outputs = functional_call(self.model, parameters, (inputs,))
        return nn.functional.cross_entropy(outputs.reshape(-1, outputs.shape[-1]), targets.reshape(-1))

    def _passes(self) -> None:
        """Forward and backward of all workers of all runs, for the samples that were drawn."""
        inputs, targets = self.task.batch_of(self._drawn)
        with sdpa_kernel(SDPBackend.MATH):
            workers = vmap(grad_and_value(self._loss), in_dims=(None, 0, 0), randomness="different")
            parameters = dict(zip(self._names, self._views(self.flat)))
            gradients, losses = vmap(workers, in_dims=(0, None, None), randomness="different")(parameters, inputs, targets)
        for name, view in zip(self._names, self._views(self.gradients)):
            view.copy_(gradients[name])
        self.losses.copy_(losses)

    def _capture(self) -> None:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self._passes()
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._passes()
        self._compute = graph.replay

    # ---- One step ----------------------------------------------------------------------------------------------------

    def step(self, step: int) -> None:
        start = time.perf_counter()
        self._drawn.copy_(self.draws[step])
        self._compute()
        self.curve[step] = self.losses.mean(1)
        self.mean[: self._dense] = self.gradients[: self._dense].mean(1)
        if self.workers:
            self.host.copy_(self.gradients[self._dense :], non_blocking=True)
        if self.device.type == "cuda":
            torch.cuda.current_stream().synchronize()
        coding = time.perf_counter()
        list(self._threads.map(lambda workers: workers.reduce(step), self.workers))
        done = time.perf_counter()
        for i, workers in enumerate(self.workers):
            if not workers.broken:
                self.mean[self._dense + i].copy_(self.host[i, 0], non_blocking=True)
        self._update(self.rates[step])
        self.seconds["gradients"] += coding - start
        self.seconds["library"] += done - coding
        self.seconds["all"] += time.perf_counter() - start

    def _update(self, rate: float) -> None:
        """SGD as torch has it, after clipping as torch does it."""
        if self.task.clip:
            factors = self.task.clip / (self.mean.norm(dim=1, keepdim=True) + 1e-6)
            self.mean.mul_(factors.clamp(max=1.0))
        if self.task.decay:
            self.mean.add_(self.flat, alpha=self.task.decay)
        self.speed.mul_(self.task.momentum).add_(self.mean)
        self.flat.sub_(self.speed, alpha=rate)

    # ---- Results -----------------------------------------------------------------------------------------------------

    def module(self, run: int) -> nn.Module:
        """A model with the parameters of a run."""
        model = self.task.make_model().to(self.device)
        own = dict(model.named_parameters())
        with torch.no_grad():
            for name, view in zip(self._names, self._views(self.flat[run])):
                own[name].copy_(view)
        return model

    def results(self, done: int, last: int = 100) -> list[dict[str, Any]]:
        """A row for each run after `done` steps."""
        rows = []
        for i, run in enumerate(self.runs):
            loss, accuracy = self.task.test(self.module(i))
            row: dict[str, Any] = {"name": run.name, "spec": run.spec, "done": done, "steps": self.steps}
            row |= {"train_loss": float(self.curve[max(0, done - last) : done, i].mean()), "loss": loss, "accuracy": accuracy}
            if not run.dense:
                row |= self.workers[i - self._dense].sent()
                row["broken"] = self.workers[i - self._dense].broken
            rows.append(row)
        return rows
