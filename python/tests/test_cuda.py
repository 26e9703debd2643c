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


def fsdp_on_card(rank: int) -> None:
    """What torch gives the reduce-scatter of an FSDP module, on the card and on the host. (Ranks that share a card cannot
    gather parameters over NCCL, so torch does not do it here.)"""
    import fsdp_cases
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FSDPModule

    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("cards",))
    if not hasattr(FSDPModule, "set_custom_reduce_scatter"):
        try:
            tg.compress(fsdp_cases.sharded(mesh), "qsgd")
        except RuntimeError as problem:
            assert "has no FSDPModule.set_custom_reduce_scatter" in str(problem)
            return
        raise AssertionError("it was accepted")
    for spec in ("qsgd", "topk:density=0.05", "fp16"):
        every = []
        for place in ("cpu", "cuda"):
            state = tg.compress(fsdp_cases.sharded(mesh), spec, rules={"*": spec}, seed=7)
            outputs = []
            for step in range(3):
                for unit in state._units.values():
                    size = sum(part.chunk for part in unit.parts)
                    draw = torch.Generator().manual_seed(10 * step + rank)
                    flat = torch.randn(2 * size, generator=draw).to(place)
                    output = unit.allocate((size,), dtype=flat.dtype, device=flat.device)
                    unit(output, flat, dist.group.WORLD, dist.ReduceOp.AVG)
                    assert output.device.type == place
                    outputs.append(cases.bits(output))
            every.append(outputs)
        assert every[0] == every[1] and every[0], spec


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
        pool.run(fsdp_on_card)
    finally:
        pool.close()


if __name__ == "__main__":  # where there is no pytest
    test_on_card()
    print("on a card: as on the host")
