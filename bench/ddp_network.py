# SPDX-License-Identifier: Apache-2.0
"""One rank of bench/ddp_network: ROUNDS LAYERS WIDTH DEVICE METHOD..."""

from __future__ import annotations

import contextlib
import sys
import time
from pathlib import Path
from statistics import median

import tersegrad.torch as tersegrad
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

STEPS = 5  # of one method in a round, with and without communication


def bytes_sent() -> int:
    """By this host, all headers included."""
    for line in Path("/proc/net/dev").read_text().splitlines():
        name, _, numbers = line.partition(":")
        if name.strip() == "eth0":
            return int(numbers.split()[8])
    return 0


def make_model(method: str, layers: int, width: int, device: str) -> DistributedDataParallel:
    """A model whose gradients are exchanged by this method."""
    torch.manual_seed(1)
    name, _, rest = method.partition(":")
    # PowerSGD starts collectives in callbacks of others. With several buckets over gloo, ranks then start them in
    # different orders, it seems: they hung.
    model = DistributedDataParallel(
        nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(layers))),
        gradient_as_bucket_view=True,
        bucket_cap_mb=10_000 if name == "powersgd" else None,
    )
    if name == "fp16":
        model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    elif name == "powersgd":
        state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=int(rest), start_powerSGD_iter=2)
        model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    elif name != "dense":
        spec, _, feedback = method.partition("/")
        tersegrad.compress(model, spec, feedback=feedback or None, device=device)
    return model


def steps(model: DistributedDataParallel, inputs: torch.Tensor, exchange: bool) -> tuple[float, float]:
    """(seconds, bytes on the wire) of one step."""
    dist.barrier()
    with contextlib.nullcontext() if exchange else model.no_sync():
        before, start = bytes_sent(), time.perf_counter()
        for _ in range(STEPS):
            model(inputs).square().mean().backward()
        return (time.perf_counter() - start) / STEPS, (bytes_sent() - before) / STEPS


def main(rounds: int, layers: int, width: int, device: str, methods: list[str]) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    inputs = torch.randn(1, width, generator=torch.Generator().manual_seed(dist.get_rank()))
    models = {method: make_model(method, layers, width, device) for method in methods}
    with_exchange: dict[str, list[float]] = {method: [] for method in methods}
    without: dict[str, list[float]] = {method: [] for method in methods}
    wire: dict[str, list[float]] = {method: [] for method in methods}
    for turn in range(rounds + 1):
        for method, model in models.items():
            if turn == 0:  # buckets are rebuilt, PowerSGD starts, memory is touched
                for _ in range(4):
                    model(inputs).square().mean().backward()
                continue
            seconds, sent = steps(model, inputs, True)
            with_exchange[method].append(seconds)
            wire[method].append(sent)
            without[method].append(steps(model, inputs, False)[0])
    if dist.get_rank() == 0:
        report(methods, with_exchange, without, wire)
    dist.barrier()
    dist.destroy_process_group()


def report(methods: list[str], step: dict[str, list[float]], alone: dict[str, list[float]], wire: dict[str, list[float]]) -> None:
    """Medians of the rounds; the least and largest speed-up are over the dense steps of the same round."""
    print(f"{'method':28} {'step ms':>9} {'no_sync ms':>10} {'communication ms':>16} {'MB sent':>9} {'over dense':>10} {'(least, largest)':>17}")
    spent = {method: [a - b for a, b in zip(step[method], alone[method])] for method in methods}
    base = methods[0]
    for method in methods:
        factors = [a / b if b > 0 else float("inf") for a, b in zip(spent[base], spent[method])]
        spread = f"({min(factors):.2f}, {max(factors):.2f})"
        print(
            f"{method:28} {1e3 * median(step[method]):9.1f} {1e3 * median(alone[method]):10.1f} {1e3 * median(spent[method]):16.1f} "
            f"{median(wire[method]) / 1e6:9.3f} {median(spent[base]) / median(spent[method]):9.2f}x {spread:>17}",
            flush=True,
        )


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5:])
