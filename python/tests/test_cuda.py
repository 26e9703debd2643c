# SPDX-License-Identifier: Apache-2.0
"""Gradients on a card, compressed there or staged through host memory: the bits of the same gradients on the host.

Two ranks share one card over gloo; NCCL, which wants a card for each rank, is tested in a world of one. What it would
carry between cards is carried by way of hosts.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import cases
import tersegrad.torch as tg
import tersegrad.torch.state as state_module
import torch
import torch.distributed as dist
from ranks import Ranks
from tersegrad._library import tg_exchange
from tersegrad.torch.exchange import CardWire
from torch.nn.parallel import DistributedDataParallel


class ByWayOfHosts(CardWire):
    """Stands in for NCCL where ranks share a card: bodies are copied to the host, and go over gloo."""

    def start(self, raw: Any) -> Any:
        exchange = raw.contents
        if not exchange.on_device:
            return self._hosts.start(raw)
        works, arrivals = [], []
        with torch.cuda.stream(self._stream):
            for peer in range(self._world):
                if len(incoming := self._bytes(exchange.receive[peer], exchange.capacity[peer], peer)):
                    arrivals.append((incoming, torch.empty(len(incoming), dtype=torch.uint8)))
                    works.append(self._cards.recv([arrivals[-1][1]], peer, 1))
            for peer in range(self._world):
                if len(outgoing := self._bytes(exchange.send[peer], exchange.send_size[peer], peer)):
                    works.append(self._cards.send([outgoing.cpu()], peer, 1))
        return ByHosts(raw, works, arrivals, self._stream)


class ByHosts:
    """Bodies under way over gloo."""

    def __init__(self, raw: Any, works: list[Any], arrivals: list[Any], stream: Any) -> None:
        self.raw, self._works, self._arrivals, self._stream = raw, works, arrivals, stream

    def wait(self) -> None:
        for work in self._works:
            work.wait()
        with torch.cuda.stream(self._stream):
            for incoming, arrival in self._arrivals:
                incoming.copy_(arrival)


@contextlib.contextmanager
def stand_in() -> Iterator[None]:
    """Frames stay on the card, as with NCCL."""
    own, between = state_module._own_group, state_module.CompressionState._between_cards
    state_module.CardWire = ByWayOfHosts
    state_module._own_group = lambda parent, timeout, backend="gloo": own(parent, timeout)
    state_module.CompressionState._between_cards = lambda self, parent: True
    try:
        yield
    finally:
        state_module.CardWire, state_module._own_group = CardWire, own
        state_module.CompressionState._between_cards = between


def stays_on_card(rank: int, spec: str, algorithm: str) -> None:
    every = []
    for place in ("cpu", "cuda"):
        model = DistributedDataParallel(cases.Products().to(place), bucket_cap_mb=0.1)
        with stand_in() if place == "cuda" else contextlib.nullcontext():
            state = tg.compress(model, spec, algorithm=algorithm, seed=7, device=place)
        assert isinstance(state._wire, ByWayOfHosts) == (place == "cuda")
        steps = []
        for step in range(4):
            cases.backward(model, {name: g.to(place) for name, g in cases.gradients(rank, step).items()})
            steps.append(cases.means(model))
        every.append(steps)
    assert every[0] == every[1]


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


def nccl_alone(rank: int) -> None:
    """What CardWire asks of NCCL, in a world of one: memory of another library, on a stream of its own."""
    own = dist.new_group([rank], backend="nccl", use_local_synchronization=True)
    stream = torch.cuda.Stream()
    wire = CardWire(None, own, stream)
    sent = torch.arange(100, dtype=torch.uint8, device="cuda")
    assert wire._bytes(sent.data_ptr(), 100, 1).tolist() == list(range(100))
    raw = tg_exchange(kind=1, world=1, on_device=True)
    for name, kind in (("send", ctypes.c_void_p), ("receive", ctypes.c_void_p)):
        setattr(raw, name, (kind * 1)(sent.data_ptr()))
    for name in ("send_size", "capacity", "received"):
        setattr(raw, name, (ctypes.c_size_t * 1)(0))
    wire.start(ctypes.pointer(raw)).wait()


def over_nccl(rank: int) -> None:
    own, ours = (dist.new_group([rank], backend="nccl", use_local_synchronization=True) for _ in range(2))
    model = DistributedDataParallel(cases.Products().cuda(), process_group=own)
    state = tg.compress(model, "topk:density=0.05", process_group=ours, check=True)
    assert isinstance(state._wire, CardWire)
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
                    size = sum(part.padded for part in unit.parts)
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
                pool.run(stays_on_card, spec, algorithm)
        pool.run(not_finite_on_card)
        pool.run(nccl_alone)
        pool.run(over_nccl)
        pool.run(fsdp_on_card)
    finally:
        pool.close()


if __name__ == "__main__":  # where there is no pytest
    test_on_card()
    print("on a card: as on the host")
