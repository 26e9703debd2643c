# SPDX-License-Identifier: Apache-2.0
"""Data-parallel training with all workers in one process, and several runs at once: for bench/convergence_card.py.

Runs that differ in their codec are stacked: their parameters are rows of one tensor, one pass over the model gives every
worker's gradient in every run, on a card in one CUDA graph. Convolutions are better off as branches of such a graph, a
branch for each worker of each run. Gradients are then reduced by the library itself: a Reducer
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

import numpy as np
import torch
from torch import nn
from torch.func import functional_call, grad_and_value, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "python"))
from tersegrad._library import Dtype, tg_error, tg_reducer, tg_tensor  # noqa: E402
from tersegrad.codec import Encoder, Feedback, decode  # noqa: E402
from tersegrad.reducer import Reducer  # noqa: E402
from tersegrad.torch.policy import Choice, Policy, choices_of, parameters_of, spec_and_feedback  # noqa: E402

Batch = tuple[torch.Tensor, torch.Tensor]


def _compiled() -> Any:
    path = ROOT / "build" / "bench" / "stacked.so"
    if not path.exists():
        sys.exit(f"{path} does not exist: run make bench")
    function = ctypes.CDLL(str(path)).stacked_reduce
    ranks = POINTER(POINTER(tg_reducer)), c_uint32, POINTER(POINTER(tg_tensor))
    function.argtypes = [*ranks, c_uint64, c_uint32, POINTER(tg_error)]
    return function


stacked_reduce = _compiled()
ALIGNMENT = 64  # elements: every parameter begins where the card likes to; 4 where the gaps are sent with the rest


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
    fused: bool = False
    """All parameters are one vector, and none is sent as it is."""
    branches: bool = False
    """A branch of the graph for each worker, in place of one pass for all."""


@dataclass
class Run:
    """A codec with its feedback."""

    name: str
    spec: str
    stretch: float = 1.0
    """The warm-up of the density takes so many times the steps."""
    algorithm: str = "auto"
    frames: bool = False
    """Without reducers, see Frames."""
    threads: int = 0
    """Of the library; 0: as the program was told."""

    @property
    def dense(self) -> bool:
        return self.spec == "none"

    @property
    def corrects(self) -> bool:
        """Momentum is the workers' own (`dgc`), and the optimiser has none."""
        return "/dgc" in self.spec


class Workers:
    """The reducers of one run."""

    def __init__(
        self, run: Run, model: nn.Module, task: StackedTask, steps: int, seed: int, memory: torch.Tensor, places: Sequence[int], threads: int
    ) -> None:
        codec, _, feedback = run.spec.partition("/")
        if task.fused:
            places = places[:1]
            choices = [Choice("all", memory.shape[-1], torch.float32, *spec_and_feedback((codec, feedback or None)), "")]
        else:
            choices = choices_of(model, Policy.of(codec, feedback or None, min_size=task.min_size))
        self.compressed = [choice.compressed for choice in choices]
        self._threads = run.threads or threads
        densities = [float(part.split("=")[1]) for part in codec.replace(":", ",").split(",") if part.startswith("density=")]
        falling = {int(run.stretch * part * steps): max(density, *densities) for part, density in task.warmup} if densities else {}
        schedule = sorted(falling.items())
        world = len(memory)
        self.reducers = [
            Reducer(rank, world, [choice.tensor(False) for choice in choices], algorithm=run.algorithm, seed=seed, schedule=schedule)
            for rank in range(world)
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
        if not self.broken and stacked_reduce(self._handles, len(self.reducers), self._gradients, step, self._threads, byref(error)):
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


class Frames:
    """The same for one vector that every rank sends to every other (gather), without reducers: a frame is decoded once,
    and not once on each rank. For codecs whose decoding takes most of the time; the means have the same bits."""

    def __init__(self, run: Run, seed: int, memory: torch.Tensor, threads: int) -> None:
        codec, _, feedback = run.spec.partition("/")
        self._rows = memory.numpy()
        world, self._count = self._rows.shape
        self._decoded = np.zeros_like(self._rows)
        self._encoders = [Encoder(codec, self._count) for _ in range(world)]
        self._feedback = [Feedback(feedback or "none", codec, self._count) for _ in range(world)]
        self._pool = ThreadPoolExecutor(threads)
        self._seed, self._bytes, self._steps, self.broken = seed, 0, 0, ""

    def _encode(self, rank: int, step: int) -> bytes:
        encoder, feedback = self._encoders[rank], self._feedback[rank]
        return encoder.encode(self._rows[rank], feedback=feedback, seed=self._seed, step=step, rank=rank)

    def reduce(self, step: int) -> None:
        world = len(self._rows)
        frames = list(self._pool.map(lambda rank: self._encode(rank, step), range(world)))
        list(self._pool.map(lambda rank: decode(frames[rank], self._decoded[rank], weight=1 / world), range(world)))
        mean = self._rows[0]
        mean[:] = self._decoded[0]
        for one in self._decoded[1:]:
            mean += one
        self._bytes += len(frames[0])
        self._steps += 1

    def sent(self) -> dict[str, float]:
        """By rank 0."""
        ratio = 4 * self._count * self._steps / max(1, self._bytes)
        sent = (len(self._rows) - 1) * self._bytes
        return {"bytes_sent": sent, "frame_bytes": self._bytes, "ratio": ratio, "ratio_compressed": ratio}


class Stack:
    """All runs of one task and seed, step by step."""

    def __init__(self, task: StackedTask, runs: Sequence[Run], seed: int, world: int, steps: int, device: torch.device, threads: int = 1) -> None:
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
            alignment = 4 if task.fused else ALIGNMENT
            end += -(-parameter.numel() // alignment) * alignment
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
        self.workers = [
            Frames(run, seed, memory, run.threads or threads)
            if run.frames
            else Workers(run, self.model, task, steps, seed, memory, self._places, threads)
            for run, memory in zip(compressed, self.host)
        ]
        self._threads = ThreadPoolExecutor(max(1, len(self.workers)))
        generators = [torch.Generator().manual_seed(1000 * seed + rank) for rank in range(world)]  # as the examples draw
        self.draws = torch.stack([torch.randint(task.samples, (steps, task.batch), generator=one) for one in generators], 1).to(device)
        self._drawn = self.draws[0].clone()
        self.rates = [self._rate(step) for step in range(steps)]
        self.seconds = {"gradients": 0.0, "library": 0.0, "all": 0.0}
        own = [run.corrects for run in self.runs]
        self._momentum = torch.tensor([[0.0 if yes else task.momentum] for yes in own], device=device)
        self._decay = torch.tensor([[task.decay] for yes in own], device=device)
        self._decay[own] = 0.0
        self._own_decay = [i for i, yes in enumerate(own) if yes and task.decay]
        self._compute: Callable[[], None] = self._branches if task.branches else self._passes
        if task.branches:
            # A worker has leaves of its own: the gradients of a leaf that several share wait for each other's streams.
            self._leaves = [[self._leaf(row) for _ in range(world)] for row in self.flat]
            self._targets = [[self._views(row) for row in rows] for rows in self.gradients]
            self._sides = [torch.cuda.Stream() for _ in range(count * world)] if device.type == "cuda" else []
        if device.type == "cuda":
            self._capture()

    def _rate(self, step: int) -> float:
        return self.task.rate * min(1.0, (step + 1) / (self.task.rate_warmup + 1)) * min(1.0, (1.0 - step / self.steps) / 0.3)

    def _views(self, flat: torch.Tensor) -> list[torch.Tensor]:
        return [self._view(flat[..., place : place + shape.numel()], shape) for place, shape in zip(self._places, self._shapes)]

    def _view(self, part: torch.Tensor, shape: torch.Size) -> torch.Tensor:
        if not self.task.branches or len(shape) != 4:
            return part.view(*part.shape[:-1], *shape)
        return part.view(*part.shape[:-1], shape[0], *shape[2:], shape[1]).movedim(-1, -3)  # channels last

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

    def _leaf(self, row: torch.Tensor) -> dict[str, torch.Tensor]:
        return {name: view.detach().requires_grad_() for name, view in zip(self._names, self._views(row))}

    def _branches(self) -> None:
        """The same, each worker of each run on a stream of its own."""
        inputs, targets = self.task.batch_of(self._drawn)
        main = torch.cuda.current_stream() if self._sides else None
        for run, leaves in enumerate(self._leaves):
            for worker in range(self.world):
                side = self._sides[run * self.world + worker] if self._sides else None
                if side is not None:
                    side.wait_stream(main)
                with torch.cuda.stream(side):
                    loss = self._loss(leaves[worker], inputs[worker], targets[worker])
                    gradients = torch.autograd.grad(loss, list(leaves[worker].values()))
                    torch._foreach_copy_(self._targets[run][worker], list(gradients))
                    self.losses[run, worker].copy_(loss.detach())
        for side in self._sides:
            main.wait_stream(side)

    def _capture(self) -> None:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self._compute()
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._compute()
        self._compute = graph.replay

    # ---- One step ----------------------------------------------------------------------------------------------------

    def step(self, step: int) -> None:
        start = time.perf_counter()
        self._drawn.copy_(self.draws[step])
        self._compute()
        for run in self._own_decay:
            self.gradients[run].add_(self.flat[run], alpha=self.task.decay)
        self.curve[step] = self.losses.mean(1)
        self.mean[: self._dense] = self.gradients[: self._dense].mean(1)
        if self.workers:
            self.host.copy_(self.gradients[self._dense :], non_blocking=True)
        if self.device.type == "cuda":
            here = torch.cuda.Event(blocking=True)  # the processor is for other runs meanwhile
            here.record()
            here.synchronize()
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
            self.mean.addcmul_(self.flat, self._decay)
        self.speed.mul_(self._momentum).add_(self.mean)
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
