#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Does compressed training reach the dense loss? Long runs on a card, all workers of all codecs in one process.

    python3 bench/convergence_card.py TASK[:SEED[:STEPS[:RATE]]]... [--seconds S] [--device cuda] [--data FOLDER] [--out FOLDER]

A process for each of the given, all at once; with --split one for each of their codecs. TASK: chargpt, lstm, mnist, cifar. FOLDER gets rows.jsonl, a line for each
run, and curves.jsonl, its losses on the way; a run that the time did not suffice for says at which step it was stopped.
DATA has tinyshakespeare.txt, mnist/ and cifar10.tar.xz (PART/CLASS/NUMBER.jpg). It needs `make bench`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from stacked import ROOT, Run, Stack
from stacked_tasks import TASKS

RUNS = [
    Run("dense", "none"),
    Run("Top-k 1 %, ef", "topk:density=0.01/ef"),
    Run("Top-k 0.1 %, ef", "topk:density=0.001/ef"),
    Run("Top-k 0.1 %, dgc", "topk:density=0.001/dgc:momentum=0.9"),
    Run("Gaussian-k 0.1 %, ef", "gaussiank:density=0.001/ef"),
    Run("Gaussian-k 0.1 %, ef, warm-up x 3", "gaussiank:density=0.001/ef", 3.0),
    Run("Gaussian-k 0.1 %, dgc", "gaussiank:density=0.001/dgc:momentum=0.9"),
    Run("QSGD 4-bit", "qsgd:levels=7,bucket=512"),
    Run("ECQ 4-bit", "qsgd:levels=7,bucket=512/ecq:alpha=0.2,beta=0.9"),
    Run("ECQ L2 s=40, coded", "qsgd:levels=40,norm=l2,bucket=0,coding=entropy/ecq:alpha=0.1,beta=1", algorithm="gather", frames=True, threads=8),
]
EVERY = {"dense", "Top-k 1 %, ef", "Gaussian-k 0.1 %, ef", "QSGD 4-bit", "ECQ 4-bit"}
CIFAR = {"dense", "Top-k 0.1 %, dgc", "Gaussian-k 0.1 %, dgc", "QSGD 4-bit", "ECQ L2 s=40, coded"}
CODECS = {"chargpt": EVERY | {"Top-k 0.1 %, ef"}, "lstm": EVERY, "mnist": EVERY, "cifar": CIFAR}
WORLDS = {"chargpt": 8, "lstm": 4, "mnist": 4, "cifar": 8}
POINTS, MEASURED = 200, 80


def runs_of(options: argparse.Namespace, name: str) -> list[Run]:
    """What one process trains."""
    if options.only_this:
        return [run for run in [*RUNS, *tried(options)] if run.name == options.only_this]
    chosen = set(options.only) | {"dense"} if options.only else CODECS[name]
    return [run for run in RUNS if run.name in chosen] + tried(options)


def tried(options: argparse.Namespace) -> list[Run]:
    """SPEC/FEEDBACK@ALGORITHM of the command line."""
    return [Run(text, text.partition("@")[0], algorithm=text.partition("@")[2] or "auto") for text in options.tries]


def train(options: argparse.Namespace, what: str, deadline: float) -> None:
    """One task and seed, in this process."""
    name, seed, steps, rate = (what.split(":") + ["", "", ""])[:4]
    torch.set_num_threads(1)
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.benchmark = True
    device, world = torch.device(options.device), options.world or WORLDS[name]
    task = TASKS[name](options.data, device, world)
    total = int(steps or task.steps)
    task.rate = float(rate or task.rate)
    runs = runs_of(options, name)

    def made(steps: int) -> Stack:
        return Stack(task, runs, int(seed or 1), world, steps, device, options.threads)

    if options.fit:
        total = min(total, int(0.92 * (deadline - time.monotonic()) / measure(made(MEASURED), options.together)))
    stack = made(total)
    print(f"{what}: {len(runs)} runs, {world} workers, {total} steps in {deadline - time.monotonic():.0f} s", flush=True)
    done, started, shown = 0, time.monotonic(), 0
    while done < total and time.monotonic() < deadline:
        stack.step(done)
        done += 1
        if done in (20, total // 10 * (shown + 1)):
            shown += done != 20
            parts = ", ".join(f"{key} {1e3 * value / done:.2f}" for key, value in stack.seconds.items())
            means = stack.curve[max(0, done - 100) : done].mean(0).tolist()
            print(f"{what}: step {done}, ms a step: {parts}; " + ", ".join(f"{run.name} {loss:.4f}" for run, loss in zip(stack.runs, means)), flush=True)
    seconds = time.monotonic() - started
    common = {"task": name, "seed": int(seed or 1), "workers": world, "rate": task.rate, "batch": task.batch, "seconds": seconds, "parts": stack.seconds}
    rows = [{**common, **row} for row in stack.results(done)]
    write(options.out / "rows.jsonl", rows)
    size = max(1, done // POINTS)
    curve = stack.curve[: done // size * size].view(-1, size, len(stack.runs)).mean(1).tolist()
    points: list[dict[str, Any]] = []
    for i, run in enumerate(stack.runs):
        points += [{"task": name, "name": run.name, "seed": int(seed or 1), "rate": task.rate, "step": (at + 1) * size, "loss": round(values[i], 5)} for at, values in enumerate(curve)]
    write(options.out / "curves.jsonl", points)
    for row in rows:
        print(f"{what} {show(row, rows[0])}", flush=True)


def measure(stack: Stack, together: str) -> float:
    """Seconds of a step, while all processes measure."""
    if together:
        folder, count = together.rsplit(":", 1)
        (Path(folder) / str(os.getpid())).touch()
        while len(list(Path(folder).iterdir())) < int(count):
            time.sleep(0.05)
    for step in range(MEASURED):
        if step == MEASURED // 4:
            start = time.perf_counter()
        stack.step(step)
    return (time.perf_counter() - start) / (MEASURED - MEASURED // 4)


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write("".join(json.dumps(row) + "\n" for row in rows))


def show(row: dict[str, Any], dense: dict[str, Any]) -> str:
    """A line of the table."""
    losses = [f"{row[key]:.4f} {row[key] / dense[key] - 1:+6.1%}" for key in ("train_loss", "loss")]
    sent = f"{row['bytes_sent'] / 1e6:9.1f} MB {row['ratio']:6.1f} {row['ratio_compressed']:6.1f}" if "ratio" in row else ""
    return f"{row['name']:22} {row['done']:6} of {row['steps']} {losses[0]} {losses[1]} {row['accuracy']:7.2%} {sent} {row.get('broken', '')}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="+", metavar="TASK[:SEED[:STEPS[:RATE]]]")
    parser.add_argument("--seconds", type=float, default=250.0, help="after these a run is stopped where it is")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--world", type=int, default=0, help="workers; default: 8 for chargpt and cifar, 4 for the others")
    parser.add_argument("--only", nargs="*", default=[], choices=[run.name for run in RUNS], metavar="CODEC", help="these and dense; default: by task")
    parser.add_argument("--tries", nargs="*", default=[], metavar="SPEC/FEEDBACK[@ALGORITHM]", help="and these")
    parser.add_argument("--split", action="store_true", help="a process for each codec")
    parser.add_argument("--threads", type=int, default=1, help="of the library, for each codec; at most as many as workers")
    parser.add_argument("--only-this", default="", help=argparse.SUPPRESS)
    parser.add_argument("--fit", action="store_true", help="fewer steps where they would take longer than that")
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data", metavar="FOLDER")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "convergence_card", metavar="FOLDER")
    parser.add_argument("--here", type=float, default=0.0, help=argparse.SUPPRESS)  # in one of several processes: its deadline,
    parser.add_argument("--together", default="", help=argparse.SUPPRESS)  # and where they meet
    options = parser.parse_args()
    for what in options.what:
        if what.split(":")[0] not in TASKS:
            parser.error(f"there is no task {what}: it must be one of {', '.join(TASKS)}")
    parts = [(what, run.name if options.split else "") for what in options.what for run in (runs_of(options, what.split(":")[0]) if options.split else [RUNS[0]])]
    if options.here or len(parts) == 1:
        train(options, options.what[0], options.here or time.monotonic() + options.seconds)
        return 0
    deadline = time.monotonic() + options.seconds  # the same clock for all processes of a machine
    with tempfile.TemporaryDirectory() as folder:
        rest = ["--device", options.device, "--world", str(options.world), "--data", str(options.data), "--out", str(options.out)]
        rest += ["--here", str(deadline), "--together", f"{folder}:{len(parts)}"] + ["--fit"] * options.fit
        rest += ["--threads", str(options.threads), "--only", *options.only, "--tries", *options.tries]
        processes = [subprocess.Popen([sys.executable, __file__, what, *rest, "--only-this", codec]) for what, codec in parts]
        status = max(abs(process.wait()) for process in processes)
    if options.split:
        table(options.out / "rows.jsonl", len(parts))
    return status


def table(path: Path, count: int) -> None:
    """The last rows, beside the dense ones of the same task and seed."""
    rows = [json.loads(line) for line in path.read_text().splitlines()[-count:]]
    for row in sorted(rows, key=lambda row: (row["task"], row["seed"], [run.name for run in RUNS].index(row["name"]) if row["name"] in {run.name for run in RUNS} else 99)):
        dense = [other for other in rows if (other["task"], other["seed"], other["spec"]) == (row["task"], row["seed"], "none")]
        print(f"{row['task']}:{row['seed']} {show(row, dense[0] if dense else row)}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
