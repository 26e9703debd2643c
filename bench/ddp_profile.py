# SPDX-License-Identifier: Apache-2.0
"""Where the processor's time of a DistributedDataParallel step goes: two ranks over loopback, waits excluded.

    .venv/bin/python bench/ddp_profile.py [SPEC[/FEEDBACK]]...

Times are of the threads' own processor clocks on rank 0: in the middle one of 40 steps, and in the one with the least in
all, as `tersegrad bench` gives the least of its rounds. They are held against encode and decode as
`tersegrad bench` measures them on as many elements, on the same machine right after it; as many of it at once as there
are ranks, since these share the machine's memory too.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "python"))

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.multiprocessing as multiprocessing  # noqa: E402
from tersegrad import reducer  # noqa: E402
from tersegrad.torch import compress, exchange, state, worker  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

WORLD, LAYERS, WIDTH, STEPS = 2, 3, 2048, 40
SPECS = ["topk:density=0.01/ef", "gaussiank:density=0.001/ef", "qsgd:levels=7,bucket=512"]


def timed(owner: Any, name: str, label: str, spent: dict[str, list[float]]) -> None:
    """Makes a method note the processor time that it takes."""
    method = getattr(owner, name)

    def call(*arguments: Any) -> Any:
        start = time.thread_time()
        try:
            return method(*arguments)
        finally:
            spent[label].append(time.thread_time() - start)

    setattr(owner, name, call)


def by_bench(spec: str, feedback: str) -> float:
    """Milliseconds to encode once, to decode one rank's frame to a vector, and to add those of the others to it: the mean
    of as many processes as there are ranks, all at the same time."""
    command = [str(ROOT / "build" / "tersegrad"), "bench", "-n", str(LAYERS * WIDTH * WIDTH), "--codec", spec, "--json"]
    command += ["--seconds", "1"] + (["--feedback"] if feedback == "ef" else [])
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(WORLD)]
    rows = [json.loads(process.communicate()[0])["rows"][0] for process in processes]
    return sum(row["encode_ms"] + row["decode_ms"] + (WORLD - 1) * row["decode_add_ms"] for row in rows) / WORLD


def run(rank: int, method: str, port: int) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(WORLD))
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    spent: dict[str, list[float]] = defaultdict(list)
    for name in ("begin", "ready", "next", "feed", "end"):
        timed(reducer.Reducer if name == "begin" else reducer.Reduction, name, f"library: {name}", spent)
    timed(exchange.GlooWire, "start", "exchange: start", spent)
    timed(exchange._Posted, "wait", "exchange: wait", spent)
    timed(worker._Step, "run", "coding thread", spent)
    timed(state.CompressionState, "_take", "hook", spent)
    spec, _, feedback = method.partition("/")
    model = DistributedDataParallel(
        nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS))), gradient_as_bucket_view=True
    )
    compress(model, spec, feedback=feedback or None)
    inputs = torch.randn(1, WIDTH)
    steps = []
    for step in range(4 + STEPS):
        spent.clear()
        model(inputs).square().mean().backward()  # it returns after all of these have
        steps.append({label: (len(times), 1e3 * sum(times)) for label, times in spent.items()})
    if rank == 0:
        report(method, sorted(steps[4:], key=own))
    dist.barrier()
    dist.destroy_process_group()


def own(step: dict[str, tuple[int, float]]) -> float:
    """Milliseconds of all threads; what they call is in it."""
    return sum(step[label][1] for label in ("coding thread", "hook", "exchange: wait"))


def report(method: str, steps: list[dict[str, tuple[int, float]]]) -> None:
    least, middle = steps[0], steps[len(steps) // 2]
    print(f"{method}, {LAYERS * WIDTH * WIDTH} elements, {WORLD} ranks: the least and the middle step")
    for label, (calls, milliseconds) in sorted(least.items()):
        print(f"  {label:20} {calls:5} calls  {milliseconds:6.2f} {middle.get(label, (0, 0.0))[1]:6.2f} ms")
    bench = by_bench(*method.split("/") if "/" in method else (method, ""))
    buckets = least["hook"][0]
    print(f"  own time {own(least):.2f} {own(middle):.2f} ms; bench {bench:.2f} ms; 1.3 x bench + 150 us x {buckets:.0f} = {1.3 * bench + 0.15 * buckets:.2f} ms", flush=True)


if __name__ == "__main__":
    for number, chosen in enumerate(sys.argv[1:] or SPECS):
        multiprocessing.spawn(run, (chosen, 29600 + number), nprocs=WORLD)
