# SPDX-License-Identifier: Apache-2.0
"""What the examples share: options, the loop over specs and steps, a progress bar, a table, a log.

They use the package of this clone where its library is built, else the installed one.
"""

from __future__ import annotations

import argparse
import json
import math
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
    batch: Callable[[torch.Generator, int], Batch]
    """Draws so many training samples."""
    test: Batch
    """All samples for testing."""
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
    result.add_argument("--warmup", type=int, default=0, metavar="N", help="steps at the start that are sent as they are")
    result.add_argument("--schedule", type=density_schedule, default=[], metavar="STEP:DENSITY,...", help=(
        "densities of sparsifiers from given steps on; DGC's warm-up is 0:0.25,100:0.0625,200:0.0156,300:0.004,400:0.001"))
    result.add_argument("--min-size", type=int, default=10_000, metavar="N", help="parameters of fewer elements are sent as they are")
    result.add_argument("--lr", type=float, help="learning rate")
    result.add_argument("--lr-schedule", choices=LR_SCHEDULES, default="constant", help=(
        "how it changes over the steps; hold: it falls to 0 in the last three tenths, which suits error feedback: what is sent "
        "late is still worth as much"))
    result.add_argument("--lr-warmup", type=int, default=0, metavar="N", help="steps in which it rises from 0")
    result.add_argument("--optimizer", choices=["sgd", "adamw"], default="sgd")
    result.add_argument("--momentum", type=float, default=0.9, help="of sgd; use 0 where feedback dgc has one")
    result.add_argument("--last", type=int, default=100, metavar="N", help="the training loss in the table is the mean of so many steps")
    result.add_argument("--device", default="cpu", help="cpu, or cuda: ranks share the cards of a machine")
    result.add_argument("--seed", type=int, default=1)
    result.add_argument("--algorithm", default="auto", choices=["auto", "gather", "shard"])
    # torchrun takes --log for one of its own options, even behind the script's name, unless there is -- before that.
    result.add_argument("--log", "--log-file", dest="log", type=Path, metavar="FILE.jsonl", help="a JSON object for every step")
    result.add_argument("--log-every", type=int, default=1, metavar="N", help="or for every so many: losses are means of N steps, over all ranks")
    result.add_argument("--checkpoint", type=Path, metavar="FOLDER", help="save every rank's state there, and go on from what is there")
    result.add_argument("--checkpoint-every", type=int, default=1000, metavar="N", help="so many steps lie between; default: 1000")
    result.add_argument("--json", action="store_true", help="print a JSON object for each spec instead of the table")
    return result


LR_SCHEDULES: dict[str, Callable[[float], float]] = {
    "constant": lambda done: 1.0,
    "linear": lambda done: 1.0 - done,
    "hold": lambda done: min(1.0, (1.0 - done) / 0.3),
    "cosine": lambda done: 0.5 + 0.5 * math.cos(math.pi * done),
    "step": lambda done: 1.0 if done < 0.5 else 0.1 if done < 0.75 else 0.01,
}


def density_schedule(text: str) -> list[tuple[int, float]]:
    """0:0.25,100:0.01: a quarter of all elements at first, from step 100 on one in a hundred."""
    return [(int(step), float(density)) for step, density in (part.split(":") for part in text.split(","))]


def learning_rates(options: argparse.Namespace, optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LambdaLR:
    """The factor of the learning rate in every step."""
    shape = LR_SCHEDULES[options.lr_schedule]
    return torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1.0, (step + 1) / (options.lr_warmup + 1)) * shape(min(1.0, step / options.steps))
    )


def make_optimizer(task: Task, options: argparse.Namespace, model: nn.Module) -> torch.optim.Optimizer:
    """The one that was asked for."""
    if options.optimizer == "adamw":
        return torch.optim.AdamW(model.parameters(), lr=options.lr or 1e-3)
    return torch.optim.SGD(model.parameters(), lr=options.lr or task.learning_rate, momentum=options.momentum)


def _loss(model: nn.Module, batch: Batch) -> torch.Tensor:
    inputs, targets = batch
    outputs = model(inputs)
    return nn.functional.cross_entropy(outputs.reshape(-1, outputs.shape[-1]), targets.reshape(-1))


class Checkpoints:
    """Those of one run: a file for each rank, named for the step. The last two stay, because a run may be ended when only
    some ranks have saved the last one."""

    def __init__(self, folder: Path | None, run: int, every: int, steps: int) -> None:
        self._folder, self._every, self._steps = folder / str(run) if folder else None, every, steps
        self._saved: list[int] = []
        self._step = 0
        if self._folder:
            self._folder.mkdir(parents=True, exist_ok=True)
            names = {path.name for path in self._folder.iterdir()}
            self._saved = sorted({int(name.split("-")[0]) for name in names if name.endswith(f"-{dist.get_rank()}.pt")})
            ranks = range(dist.get_world_size())
            self._step = max((step for step in self._saved if all(f"{step}-{rank}.pt" in names for rank in ranks)), default=0)
        dist.barrier()  # all look before one writes
        for step in [step for step in self._saved if step > self._step]:  # of this rank alone: it comes again
            self._path(step).unlink()
            self._saved.remove(step)

    def _path(self, step: int) -> Path:
        assert self._folder
        return self._folder / f"{step}-{dist.get_rank()}.pt"

    def last(self) -> dict[str, Any] | None:
        """What this rank saved at the last step that all have saved."""
        return torch.load(self._path(self._step), weights_only=True) if self._step else None

    def save(self, step: int, what: Callable[[], dict[str, Any]]) -> None:
        """If it is time for it, and after the last step."""
        if not self._folder or (step % self._every and step != self._steps):
            return
        part = self._path(step).with_suffix(".part")
        torch.save(what(), part)
        part.rename(self._path(step))  # so there is no half of one
        self._saved = [other for other in self._saved if other != step] + [step]
        for old in self._saved[:-2]:
            self._path(old).unlink(missing_ok=True)
        del self._saved[:-2]


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


def write_line(log: Any, run: int, spec: str, step: int, loss: float, stats: Any) -> None:
    """With the names of `tersegrad train --log`."""
    codec, _, feedback = spec.partition("/")
    line = {"run": run, "codec": codec, "feedback": feedback or "none", "step": step, "batch_loss": loss, "loss": loss}
    line |= {"bytes_sent": stats.bytes_sent, "ratio": stats.ratio, "residual_norm": stats.residual_norm}
    log.write(json.dumps(line) + "\n")
    log.flush()  # a run may be ended at any time


def forget_lines(log: Any, run: int, step: int) -> None:
    """What a run that was ended has written of steps that come again, and half a line at the end."""
    log.seek(0)
    lines = log.readlines()
    whole = [json.loads(line) for line in lines if line.endswith("\n")]
    kept = [text for text, line in zip(lines, whole) if line["run"] != run or line["step"] <= step]
    if kept != lines:
        log.seek(0)
        log.truncate()
        log.writelines(kept)
        log.flush()


def mean_of_ranks(values: list[float]) -> float:
    """The mean of all ranks' means."""
    total = torch.tensor(sum(values) / len(values), dtype=torch.float64)
    dist.all_reduce(total)
    return total.item() / dist.get_world_size()


def evaluate(model: nn.Module, test: Batch, device: torch.device) -> tuple[float, float]:
    """(loss, accuracy) over all samples for testing; each rank takes its share of them."""
    rank, world = dist.get_rank(), dist.get_world_size()
    sums = torch.zeros(3, dtype=torch.float64)
    model.eval()
    with torch.no_grad():
        for inputs, targets in zip(*(part[rank::world].split(250) for part in test)):
            outputs, goals = model(inputs.to(device)).flatten(0, -2), targets.to(device).flatten()
            loss = nn.functional.cross_entropy(outputs, goals, reduction="sum")
            sums += torch.tensor([loss.item(), (outputs.argmax(-1) == goals).sum().item(), goals.numel()])
    dist.all_reduce(sums)
    return float(sums[0] / sums[2]), float(sums[1] / sums[2])


def _train(task: Task, number: int, spec: str, options: argparse.Namespace, log: Any) -> dict[str, Any]:
    rank, device = dist.get_rank(), the_device(options)
    torch.manual_seed(options.seed)  # every rank makes the same model
    model = DistributedDataParallel(task.make_model().to(device))
    codec, _, feedback = spec.partition("/")
    state = tersegrad.compress(
        model,
        codec,
        feedback=feedback or None,
        min_size=options.min_size,
        warmup=options.warmup,
        schedule=options.schedule if "density=" in codec else [],  # of the specs that have one
        seed=options.seed,
        algorithm=options.algorithm,
    )
    optimizer = make_optimizer(task, options, model)
    rates = learning_rates(options, optimizer)
    draws = torch.Generator().manual_seed(1000 * options.seed + rank)
    bar = Bar(spec, options.steps)
    losses: list[float] = []
    checkpoints = Checkpoints(options.checkpoint, number, options.checkpoint_every, options.steps)
    parts = {"model": model, "optimizer": optimizer, "rates": rates, "compression": state}  # whatever has a state_dict
    done, before = 0, 0.0
    if (saved := checkpoints.last()) is not None:
        if saved["spec"] != spec:
            sys.exit(f"{options.checkpoint / str(number)} has checkpoints of {saved['spec']}, not of {spec}: give another --checkpoint")
        for name, part in parts.items():
            part.load_state_dict(saved[name])
        draws.set_state(saved["draws"])
        done, losses, before = saved["step"], saved["losses"], saved["seconds"]
    if log is not None:
        forget_lines(log, number, done)
    start = time.perf_counter() - before
    for step in range(done + 1, options.steps + 1):
        optimizer.zero_grad()
        inputs, targets = task.batch(draws, options.batch)
        loss = _loss(model, (inputs.to(device), targets.to(device)))
        loss.backward()
        if task.clip:
            nn.utils.clip_grad_norm_(model.parameters(), task.clip)
        optimizer.step()
        rates.step()
        losses.append(loss.item())
        bar.show(step, losses[-1])
        if options.log and step % options.log_every == 0:
            mean = mean_of_ranks(losses[-options.log_every :])
            if log is not None:
                write_line(log, number, spec, step, mean, state.stats())
        checkpoints.save(
            step,
            lambda: {
                **{name: part.state_dict() for name, part in parts.items()},
                "draws": draws.get_state(),
                "spec": spec,
                "step": step,
                "losses": losses,
                "seconds": time.perf_counter() - start,
            },
        )
    seconds = time.perf_counter() - start
    test_loss, accuracy = evaluate(model.module, task.test, device)
    stats = state.stats()
    return {
        "spec": spec,
        "seed": options.seed,
        "steps": options.steps,
        "train_loss": mean_of_ranks(losses[-options.last :]),
        "loss": test_loss,
        "accuracy": accuracy,
        "sent": stats.bytes_sent,
        "dense": stats.ring_bytes,
        "ratio": stats.ratio,
        "seconds": seconds,
    }


def the_device(options: argparse.Namespace) -> torch.device:
    """Ranks take the cards of a machine in turn."""
    if options.device != "cuda":
        return torch.device(options.device)
    return torch.device("cuda", dist.get_rank() % torch.cuda.device_count())


def main(options: argparse.Namespace, make_task: Callable[[argparse.Namespace], Task]) -> None:
    """Trains once for each spec and prints the table."""
    torch.set_num_threads(1)
    if not dist.is_torchelastic_launched():
        sys.exit(f"start it with torchrun: torchrun --nproc-per-node 4 {sys.argv[0]}")
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    task = make_task(options)
    leader = dist.get_rank() == 0
    log = options.log.open("a+" if options.checkpoint else "w+") if options.log and leader else None
    specs = options.spec or ["none", "topk:density=0.01/ef"]
    rows = [_train(task, number, spec, options, log) for number, spec in enumerate(specs)]
    if leader and options.json:
        for row in rows:
            print(json.dumps(row))
    elif leader:
        print(f"{dist.get_world_size()} ranks, {options.steps} steps; bytes are those that rank 0 sent")
        print(f"{'spec':28} {'train loss':>10} {'test loss':>9} {'accuracy':>8} {'bytes':>13} {'dense ring':>13} {'ratio':>6} {'seconds':>7}")
        for row in rows:
            print(
                f"{row['spec']:28} {row['train_loss']:10.4f} {row['loss']:9.4f} {100 * row['accuracy']:7.2f}% {row['sent']:13,} "
                f"{row['dense']:13,} {row['ratio']:6.1f} {row['seconds']:7.1f}"
            )
    if log is not None:
        log.close()
    dist.barrier()
    dist.destroy_process_group()
