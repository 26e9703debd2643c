# SPDX-License-Identifier: Apache-2.0
"""Exchanges of the reducer over a process group of torch.distributed.

How much will come is not known beforehand. Over gloo a receive may be posted for the most that can come, and the library
finds the end of a message by itself. Other back ends want equal sizes on both sides: there a first collective exchanges
the sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
import torch.distributed as dist

from .._library import TG_NO_MESSAGE, TG_UNKNOWN_SIZE, tg_exchange, view


TAG = 0


class Pending(Protocol):
    """An exchange that was started."""

    raw: Any

    def wait(self) -> None:
        """Until everything has come; raises what went wrong."""


class Wire(Protocol):
    """Carries out exchanges."""

    def start(self, raw: Any) -> Pending:
        """Starts one; its buffers stay as they are until `wait` has returned."""

    def gather(self, values: Sequence[int]) -> list[list[int]]:
        """Every rank's list of integers, all of the same length."""

    def close(self) -> None:
        """Lets go of the group: torch does not bear one that lives as long as the interpreter."""


def memory(address: int, size: int) -> torch.Tensor:
    """Bytes of the library as a tensor, not copied."""
    return torch.frombuffer(view(address, size), dtype=torch.uint8)


def open_wire(group: dist.ProcessGroup) -> Wire:
    """The way to exchange over this group."""
    backend = dist.get_backend(group)
    return GlooWire(group) if backend == "gloo" else CollectiveWire(group, backend)


def _gather(group: dist.ProcessGroup, values: Sequence[int], device: torch.device) -> list[list[int]]:
    own = torch.tensor(list(values), dtype=torch.int64, device=device)
    every = [torch.empty_like(own) for _ in range(dist.get_world_size(group))]
    dist.all_gather(every, own, group=group)
    return [one.tolist() for one in every]


class _Posted:
    def __init__(self, raw: Any, works: list[Any], sources: list[int]) -> None:
        self.raw, self._works, self._sources = raw, works, sources

    def wait(self) -> None:
        for work in self._works:
            work.wait()
        received = self.raw.contents.received
        for peer in self._sources:
            received[peer] = TG_UNKNOWN_SIZE


class GlooWire:
    """Point-to-point messages. Every rank starts exchanges in the same order, so messages need no number.

    Compressing leaves nothing in the caches, so every line here costs more than it seems.
    """

    def __init__(self, group: dist.ProcessGroup) -> None:
        self._group, self._rank = group, dist.get_rank(group)
        self._memory: dict[int, torch.Tensor] = {}  # buffers are the same in every step, but for the size of a message
        # Those after this rank first, so that not all ranks send to the same one at the same time.
        world = dist.get_world_size(group)
        self._peers = [peer % world for peer in range(self._rank + 1, self._rank + world)]

    def _bytes(self, address: int, size: int) -> torch.Tensor:
        found = self._memory.get(address)
        if found is None or len(found) < size:
            found = self._memory[address] = memory(address, size)
        return found if len(found) == size else found[:size]

    def start(self, raw: Any) -> Pending:
        exchange: tg_exchange = raw.contents
        receive, capacity, send, send_size = exchange.receive, exchange.capacity, exchange.send, exchange.send_size
        works, sources, group = [], [], self._group
        for peer in self._peers:
            if (room := capacity[peer]) != TG_NO_MESSAGE:
                works.append(group.recv([self._bytes(receive[peer], room)], peer, TAG))
                sources.append(peer)
        for peer in self._peers:
            if (size := send_size[peer]) != TG_NO_MESSAGE:
                works.append(group.send([self._bytes(send[peer], size)], peer, TAG))
        return _Posted(raw, works, sources)

    def gather(self, values: Sequence[int]) -> list[list[int]]:
        return _gather(self._group, values, torch.device("cpu"))

    def close(self) -> None:
        del self._group


class _Done:
    def __init__(self, raw: Any) -> None:
        self.raw = raw

    def wait(self) -> None:
        pass


class CollectiveWire:
    """all_to_all_single with split sizes, and another one before it for the sizes; NCCL's bytes go through the card."""

    def __init__(self, group: dist.ProcessGroup, backend: str) -> None:
        self._group, self._rank = group, dist.get_rank(group)
        on_card = backend == "nccl"
        self._device = torch.device("cuda", torch.cuda.current_device()) if on_card else torch.device("cpu")

    def start(self, raw: Any) -> Pending:
        exchange: tg_exchange = raw.contents
        sends = [exchange.send_size[peer] for peer in range(exchange.world)]
        sends = [0 if peer == self._rank or size == TG_NO_MESSAGE else size for peer, size in enumerate(sends)]
        rooms = [exchange.capacity[peer] for peer in range(exchange.world)]
        rooms = [0 if room == TG_NO_MESSAGE else room for room in rooms]
        outgoing = torch.tensor(sends, dtype=torch.int64, device=self._device)
        incoming = torch.empty_like(outgoing)
        dist.all_to_all_single(incoming, outgoing, group=self._group)
        sizes = incoming.tolist()
        for peer, size in enumerate(sizes):
            if peer != self._rank and size > rooms[peer]:
                raise RuntimeError(f"rank {peer} sends {size} bytes where at most {rooms[peer]} can come")
        parts = [memory(exchange.send[peer], size) for peer, size in enumerate(sends) if size]
        payload = torch.cat([torch.empty(0, dtype=torch.uint8), *parts]).to(self._device)
        result = torch.empty(sum(sizes), dtype=torch.uint8, device=self._device)
        dist.all_to_all_single(result, payload, sizes, sends, group=self._group)
        for peer, part in enumerate(torch.split(result.cpu(), sizes)):
            if peer != self._rank and exchange.capacity[peer] != TG_NO_MESSAGE:
                memory(exchange.receive[peer], len(part)).copy_(part)
                exchange.received[peer] = len(part)
        return _Done(raw)

    def gather(self, values: Sequence[int]) -> list[list[int]]:
        return _gather(self._group, values, self._device)

    def close(self) -> None:
        del self._group


