# SPDX-License-Identifier: Apache-2.0
"""What the examples share: options, the loop over specs and steps, a progress bar, a table, a log.

They use the package of this clone where its library is built, else the installed one.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

_clone = Path(__file__).resolve().parent.parent
if (_clone / "build" / "libtersegrad.so").exists():  # this clone before an installed package
    sys.path.insert(0, str(_clone / "python"))
import tersegrad.torch as tersegrad  # noqa: E402

Batch = tuple[torch.Tensor, torch.Tensor]


@dataclass
class Task:
    """A model, its data, and how it is trained."""

    make_model: Callable[[], nn.Module]
    make_optimizer: Callable[[nn.Module, float], torch.optim.Optimizer]
    batch: Callable[[torch.Generator, int], Batch]
    """Draws so many training samples."""
    test: Callable[[], Batch]
    learning_rate: float
    clip: float = 0.0


def parser(description: str, steps: int, batch: int) -> argparse.ArgumentParser:
    """The options that all examples have."""
    result = argparse.ArgumentParser(
        description=description,
        epilog="SPEC is a codec, with /FEEDBACK where it has one: none, topk:density=0.01/ef, qsgd:levels=7,bucket=512.",
    )
    result.add_argument("--data", type=Path, help="where the data are")
    result.add_argument("--spec", action="append", metavar="SPEC", help="may be given several times; default: dense and topk 1 %%")
    result.add_argument("--steps", type=int, default=steps)
    result.add_argument("--batch", type=int, default=batch, help="samples of each rank in a step")
    result.add_argument("--warmup", type=int, default=0, help="steps at the start that are sent as they are")
    result.add_argument("--lr", type=float, help="learning rate")
    result.add_argument("--seed", type=int, default=1)
    result.add_argument("--algorithm", default="auto", choices=["auto", "gather", "shard"])
    # torchrun takes --log for one of its own options, unless there is a -- before the script.
    result.add_argument("--log-file", "--log", dest="log", type=Path, metavar="FILE.jsonl", help="write a JSON object for every step")
    return result


def _loss(model: nn.Module, batch: Batch) -> torch.Tensor:
    inputs, targets = batch
    outputs = model(inputs)
    return nn.functional.cross_entropy(outputs.reshape(-1, outputs.shape[-1]), targets.reshape(-1))


class Bar:
    """One line on stderr that is rewritten; none where stderr is not a terminal."""

    def __init__(self, title: str, steps: int) -> None:
        self._title, self._steps, self._shown = title, steps, 0.0
        self._on = sys.stderr.isatty() and dist.get_rank() == 0

    def show(self, step: int, loss: float) -> None:
        now = time.monotonic()
        if self._on and (now - self._shown > 0.1 or step == self._steps):
            self._shown = now
            done = 30 * step // self._steps
            end = "\n" if step == self._steps else ""
            print(f"\r{self._title:40.40} [{'=' * done:30}] {step}/{self._steps}  loss {loss:.4f} ", end=end, file=sys.stderr)


def write_line(log: Any, run: int, codec: str, feedback: str, step: int, loss: float, stats: Any) -> None:
    """With the names of `tersegrad train --log`."""
    line = {"run": run, "codec": codec, "feedback": feedback or "none", "step": step, "batch_loss": loss, "loss": loss}
    line |= {"bytes_sent": stats.bytes_sent, "ratio": stats.ratio, "residual_norm": stats.residual_norm}
    log.write(json.dumps(line) + "\n")


def _train(task: Task, number: int, spec: str, options: argparse.Namespace, log: Any) -> dict[str, Any]:
    rank = dist.get_rank()
    torch.manual_seed(options.seed)  # every rank makes the same model
    model = DistributedDataParallel(task.make_model())
    codec, _, feedback = spec.partition("/")
    state = tersegrad.compress(
        model,
        codec,
        feedback=feedback or None,
        warmup=options.warmup,
        seed=options.seed,
        algorithm=options.algorithm,
    )
    optimizer = task.make_optimizer(model, options.lr or task.learning_rate)
    draws = torch.Generator().manual_seed(1000 * options.seed + rank)
    bar = Bar(spec, options.steps)
    loss, start = torch.zeros(()), time.perf_counter()
    for step in range(1, options.steps + 1):
        optimizer.zero_grad()
        loss = _loss(model, task.batch(draws, options.batch))
        loss.backward()
        if task.clip:
            nn.utils.clip_grad_norm_(model.parameters(), task.clip)
        optimizer.step()
        bar.show(step, loss.item())
        if log is not None:
            write_line(log, number, codec, feedback, step, loss.item(), state.stats())
    seconds = time.perf_counter() - start
    model.eval()
    with torch.no_grad():
        test = task.test()
        outputs = model.module(test[0])
        final = nn.functional.cross_entropy(outputs.reshape(-1, outputs.shape[-1]), test[1].reshape(-1)).item()
        right = (outputs.argmax(-1) == test[1]).float().mean().item()
    stats = state.stats()
    return {
        "spec": spec,
        "loss": final,
        "accuracy": right,
        "sent": stats.bytes_sent,
        "dense": stats.dense_bytes,
        "ratio": stats.ratio,
        "seconds": seconds,
    }


def main(options: argparse.Namespace, make_task: Callable[[argparse.Namespace], Task]) -> None:
    """Trains once for each spec and prints the table."""
    torch.set_num_threads(1)
    if not dist.is_torchelastic_launched():
        sys.exit(f"start it with torchrun: torchrun --nproc-per-node 4 {sys.argv[0]}")
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    task = make_task(options)
    leader = dist.get_rank() == 0
    log = options.log.open("w") if options.log and leader else None
    specs = options.spec or ["none", "topk:density=0.01/ef"]
    rows = [_train(task, number, spec, options, log) for number, spec in enumerate(specs)]
    if leader:
        print(f"{dist.get_world_size()} ranks, {options.steps} steps; bytes are those that rank 0 sent")
        print(f"{'spec':32} {'test loss':>10} {'accuracy':>9} {'bytes':>14} {'dense ring':>14} {'ratio':>7} {'seconds':>8}")
        for row in rows:
            print(
                f"{row['spec']:32} {row['loss']:10.4f} {100 * row['accuracy']:8.2f}% {row['sent']:14,} "
                f"{row['dense']:14,} {row['ratio']:7.1f} {row['seconds']:8.1f}"
            )
    if log is not None:
        log.close()
    dist.barrier()
    dist.destroy_process_group()
