# SPDX-License-Identifier: Apache-2.0
"""Gradients on a card, compressed there or staged through host memory: the bits of the same gradients on the host.

Two ranks share one card over gloo; NCCL, which wants a card for each rank, is tested in a world of one.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import cases
import tersegrad.torch as tg
import torch
import torch.distributed as dist
from ranks import Ranks
from torch.nn.parallel import DistributedDataParallel


def on_card(rank: int, spec: str, algorithm: str) -> None:
    every = []
    for place, device in (("cpu", "cpu"), ("cuda", "cpu"), ("cuda", "cuda")):
        model = DistributedDataParallel(cases.Products().to(place), bucket_cap_mb=0.1)
        tg.compress(model, spec, algorithm=algorithm, seed=7, device=device)
        steps = []
        for step in range(4):
            cases.backward(model, {name: g.to(place) for name, g in cases.gradients(rank, step).items()})
            steps.append(cases.means(model))
        every.append(steps)
    assert every[0] == every[1] == every[2]


def not_finite_on_card(rank: int) -> None:
    model = DistributedDataParallel(cases.Products().cuda(), bucket_cap_mb=0.1)
    scaler = torch.amp.GradScaler("cuda", init_scale=1024.0)
    state = tg.compress(model, "topk:density=0.05", scaler=scaler)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        given = {name: g.cuda() for name, g in cases.gradients(rank, step).items()}
        if step == 1 and rank == 1:
            given["small"][0, 0] = float("inf")
        model.zero_grad()
        scaler.scale(model(given)).backward()
        scaler.step(optimizer)
        scaler.update()
    assert scaler.get_scale() == 512.0 and state.stats().applied == 2


def over_nccl(rank: int) -> None:
    own = dist.new_group([rank], backend="nccl", use_local_synchronization=True)
    model = DistributedDataParallel(cases.Products().cuda(), process_group=own)
    state = tg.compress(model, "topk:density=0.05", process_group=own, check=True)
    for step in range(2):
        cases.backward(model, {name: g.cuda() for name, g in cases.gradients(rank, step).items()})
    assert state.stats().applied == 2


def test_on_card() -> None:
    if not torch.cuda.is_available():
        import pytest

        pytest.skip("no card here")
    pool = Ranks(2)
    try:
        for algorithm in ("gather", "shard"):
            for spec in ("topk:density=0.05", "qsgd", "none"):
                pool.run(on_card, spec, algorithm)
        pool.run(not_finite_on_card)
        pool.run(over_nccl)
    finally:
        pool.close()


if __name__ == "__main__":  # where there is no pytest
    test_on_card()
    print("on a card: as on the host")
