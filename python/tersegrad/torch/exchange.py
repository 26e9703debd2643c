# SPDX-License-Identifier: Apache-2.0
"""Exchanges of the reducer over a process group of torch.distributed.

How much will come is not known beforehand, unless frames stay on a card: then their messages are two exchanges, a head
from host to host, which says how much follows, and a body from card to card. Over gloo a receive may be posted for the
most that can come, and the library finds the end of a message by itself. Other back ends want equal sizes on both sides:
there a first collective exchanges the sizes.

Ranks agree on the outcome of a step by messages over gloo, while all of them fit into one exchange; else by one
all_reduce, the least of all ranks' numbers.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import platform
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Protocol

import torch
import torch.distributed as dist

from .._library import TG_NO_MESSAGE, TG_UNKNOWN_SIZE, ExchangeKind, tg_exchange, view


TAG = 0
CPU = torch.device("cpu")
MOST_AT_ONCE = 8
"""Ranks that tell each other a verdict in one exchange of messages (ALL_AT_ONCE in src/reduce/agreement.c): an
all_reduce of gloo would pass it on from rank to rank."""
PAUSE = 50e-6  # seconds between two looks at what is under way between cards


class Pending(Protocol):
    """An exchange that was started."""

    raw: Any

    def wait(self) -> None:
        """Until everything has come; raises what went wrong."""


class Wire(Protocol):
    """Carries out exchanges."""

    @property
    def minimum(self) -> bool:
        """Whether ranks agree sooner by ALL_MINIMUM than by messages."""

    def start(self, raw: Any) -> Pending:
        """Starts one; its buffers stay as they are until `wait` has returned."""

    def gather(self, values: Sequence[int]) -> list[list[int]]:
        """Every rank's list of integers, all of the same length."""

    def spread(self, tensor: torch.Tensor) -> None:
        """Leaves rank 0's values in this tensor of every rank."""

    def close(self) -> None:
        """Lets go of the group: torch does not bear one that lives as long as the interpreter."""


class _Least:
    """The least of all ranks' integers, under way to where the library expects them."""

    def __init__(self, raw: Any, group: dist.ProcessGroup, device: torch.device) -> None:
        exchange: tg_exchange = raw.contents
        self.raw, self._size = raw, exchange.send_size[0]
        self._place = memory(exchange.receive[0], self._size).view(torch.int64)
        self._numbers = memory(exchange.send[0], self._size).view(torch.int64).to(device, copy=True)
        self._work = dist.all_reduce(self._numbers, dist.ReduceOp.MIN, group=group, async_op=True)

    def wait(self) -> None:
        self._work.wait()
        self._place.copy_(self._numbers)
        self.raw.contents.received[0] = self._size


def new_group(
    ranks: list[int], timeout: timedelta | None = None, backend: str = "gloo", *, members_only: bool = False
) -> dist.ProcessGroup:
    """A group of these ranks. All ranks of the job call it, or with `members_only` those of the group."""
    options: dict[str, Any] = {} if timeout is None else {"timeout": timeout}  # torch 2.1 refuses None
    if members_only:
        if "use_local_synchronization" not in inspect.signature(dist.new_group).parameters:
            raise RuntimeError(
                f"the model has ranks {ranks} of {dist.get_world_size()}, and torch {torch.__version__} makes a group only "
                "where all ranks call it: use torch 2.1 or later, or let all ranks make one with dist.new_group(ranks, "
                "backend='gloo'), and give it as process_group"
            )
        options["use_local_synchronization"] = True
    with meeting("made a group to compress gradients over"):
        return dist.new_group(ranks, backend=backend, **options)


def timeout_of(group: Any) -> timedelta | None:
    """How long exchanges of a group may take, as far as torch tells it."""
    for device in ("cpu", "cuda"):
        try:
            found = group._get_backend(torch.device(device)).options._timeout
        except (AttributeError, RuntimeError):
            continue
        if isinstance(found, timedelta):
            return found
    return None


@contextlib.contextmanager
def meeting(what: str) -> Iterator[None]:
    """Where a rank waits for one that has failed by itself, torch speaks only of the time that it has waited."""
    try:
        yield
    except RuntimeError as problem:
        raise RuntimeError(
            f"while ranks {what}: {problem}. If another rank has failed, what it said is the cause"
        ) from problem


def memory(address: int, size: int) -> torch.Tensor:
    """Bytes of the library as a tensor, not copied."""
    return torch.frombuffer(view(address, size), dtype=torch.uint8)


def open_wire(group: dist.ProcessGroup, hosts: Sequence[int] | None = None, timeout: timedelta | None = None) -> Wire:
    """The way to exchange over this group, whose ranks call it together. `hosts`: of each rank, its host."""
    backend = back_end(group) or back_end(group, "cuda") or dist.get_backend(group)
    return GlooWire(group, hosts, timeout) if backend == "gloo" else CollectiveWire(group, backend)


def back_end(group: Any, device: str = "cpu") -> str | None:
    """What carries tensors of such a device. A group may have several: 'cpu:gloo,cuda:nccl', or without a name."""
    try:
        return str(group._get_backend(torch.device(device)).name()).lower()
    except (AttributeError, RuntimeError):
        return None


def check_unshared(group: dist.ProcessGroup, *others: Any) -> None:
    """Refuses a group that others use too."""
    if any(group is other for other in (dist.group.WORLD, *others)):
        raise ValueError(
            "process_group is the program's own or the model's: a thread exchanges over it here, between their "
            "collectives. Give one that dist.new_group has made for nothing else, or none"
        )


def alike(wire: Wire, settings: Mapping[str, object], own: Sequence[int] = ()) -> list[list[int]]:
    """Refuses settings that differ between ranks, on all of them alike: one would wait for what the others never send.
    Gives the `own` numbers of every rank. All ranks call it."""
    with meeting("compared their settings"):
        every = wire.gather([*own, *(_digest(repr(value)) for value in settings.values())])
    for rank, numbers in enumerate(every):
        for i, name in enumerate(settings, len(own)):
            if numbers[i] != every[0][i]:
                raise ValueError(f"rank {rank} was given other {name} than rank 0: every rank must give the same")
    return [numbers[: len(own)] for numbers in every]


def agreed(
    wire: Wire, given: Sequence[int] | str | None, suited: bool = True, settings: Mapping[str, object] | None = None
) -> list[int] | None:
    """The host of each rank, numbered in the order of their first ranks; None if each has one rank. 'names': ranks that
    see the same host name share one. 'auto': so they do if there are several hosts and this suits all ranks, else None.
    All ranks call it, and are refused if they were not given the same hosts, with which they would make different
    groups, and `settings`."""
    every = alike(wire, {"hosts": given, **(settings or {})}, [_digest(platform.node()), suited])
    if given is None:
        return None
    names = [name for name, _ in every]
    if given == "auto" and (len(set(names)) == 1 or not all(its for _, its in every)):
        return None
    hosts = names if isinstance(given, str) else given
    if len(hosts) != len(every):
        raise ValueError(f"hosts has {len(hosts)} entries for {len(every)} ranks: give one for each rank")
    first = {host: number for number, host in enumerate(dict.fromkeys(hosts))}
    return [first[host] for host in hosts] if len(first) < len(every) else None


def _digest(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=7).digest(), "big")


def layout_of(hosts: Sequence[int]) -> str:
    """How many ranks the hosts have, in words."""
    ranks = Counter(hosts).values()
    each = f"{min(ranks)}" if min(ranks) == max(ranks) else f"{min(ranks)} to {max(ranks)}"
    return f"{len(ranks)} hosts of {each} ranks"


def teams(hosts: Sequence[int]) -> list[list[int]]:
    """The ranks of each host; and of each share its owners, one on each host. Each list increases, since new_group
    numbers its members in that order."""
    by_host = [[rank for rank, its in enumerate(hosts) if its == host] for host in dict.fromkeys(hosts)]
    shares = min(map(len, by_host))
    return by_host + [sorted(ranks[share] for ranks in by_host) for share in range(shares)]


def _gather(group: dist.ProcessGroup, values: Sequence[int], device: torch.device) -> list[list[int]]:
    own = torch.tensor(list(values), dtype=torch.int64, device=device)
    every = [torch.empty_like(own) for _ in range(dist.get_world_size(group))]
    dist.all_gather(every, own, group=group)
    return [one.tolist() for one in every]


def _spread(group: dist.ProcessGroup, tensor: torch.Tensor, device: torch.device) -> None:
    # As bytes: not every back end knows every dtype.
    values = tensor.detach().contiguous()
    flat = values.reshape(-1).view(torch.uint8).to(device)
    dist.broadcast(flat, dist.get_global_rank(group, 0), group=group)
    with torch.no_grad():
        tensor.copy_(flat.view(values.dtype).reshape(values.shape))


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

    With hosts, two ranks of one host talk over a group of their host, and the owners of a share over one of their own;
    what is left for the group of all ranks is greetings and verdicts. Which group a message takes depends on its two
    ends alone, so both know it, and its order among theirs stays. (Not where the model has a part of the job's ranks:
    torch 2.13 names a group that only its members make by how many groups each of them is in, and waits for ever where
    these numbers differ.)

    Compressing leaves nothing in the caches, so every line here costs more than it seems.
    """

    def __init__(self, group: dist.ProcessGroup, hosts: Sequence[int] | None = None, timeout: timedelta | None = None) -> None:
        self._group, self._rank = group, dist.get_rank(group)
        self.minimum = dist.get_world_size(group) > MOST_AT_ONCE
        self._routes: list[tuple[dist.ProcessGroup, int]] = [(group, peer) for peer in range(dist.get_world_size(group))]
        everyone = dist.get_process_group_ranks(group) == list(range(dist.get_world_size()))
        for members in teams(hosts) if hosts is not None and everyone else []:
            if 1 < len(members) < len(self._routes):
                team = new_group(members, timeout or timeout_of(group))  # all ranks make all of them
                for place, member in enumerate(members if self._rank in members else []):
                    self._routes[member] = (team, place)
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
        if exchange.kind == ExchangeKind.ALL_MINIMUM:
            return _Least(raw, self._group, CPU)
        receive, capacity, send, send_size = exchange.receive, exchange.capacity, exchange.send, exchange.send_size
        works, sources, routes = [], [], self._routes
        for peer in self._peers:
            if (room := capacity[peer]) != TG_NO_MESSAGE:
                group, place = routes[peer]
                works.append(group.recv([self._bytes(receive[peer], room)], place, TAG))
                sources.append(peer)
        for peer in self._peers:
            if (size := send_size[peer]) != TG_NO_MESSAGE:
                group, place = routes[peer]
                works.append(group.send([self._bytes(send[peer], size)], place, TAG))
        return _Posted(raw, works, sources)

    def gather(self, values: Sequence[int]) -> list[list[int]]:
        return _gather(self._group, values, CPU)

    def spread(self, tensor: torch.Tensor) -> None:
        _spread(self._group, tensor, CPU)

    def close(self) -> None:
        del self._group, self._routes


class _Address:
    """Bytes on a card, as torch takes them from other libraries."""

    def __init__(self, address: int, size: int) -> None:
        self.__cuda_array_interface__ = {"shape": (size,), "typestr": "|u1", "data": (address, False), "version": 3}


class _Sent:
    """Bodies under way: on the card's streams, which the host only asks."""

    def __init__(self, raw: Any, work: Any, stream: Any) -> None:
        self.raw, self._work, self._stream = raw, work, stream

    def wait(self) -> None:
        while not self._work.is_completed():
            time.sleep(PAUSE)
        with torch.cuda.stream(self._stream):
            self._work.wait()


class CardWire:
    """Heads over gloo, bodies over NCCL: from card to card, in the library's own memory. The two are sequences of their
    own, so each has its group. `stream` is the one that the library's device works on."""

    def __init__(self, hosts: Wire, cards: dist.ProcessGroup, stream: Any) -> None:
        self._hosts, self._cards, self._stream = hosts, cards, stream
        self._rank, self._world = dist.get_rank(cards), dist.get_world_size(cards)

    @property
    def minimum(self) -> bool:
        return self._hosts.minimum

    def _bytes(self, address: int | None, size: int, peer: int) -> torch.Tensor:
        device = self._stream.device
        if peer == self._rank or size == TG_NO_MESSAGE or not size or not address:
            return torch.empty(0, dtype=torch.uint8, device=device)
        return torch.as_tensor(_Address(address, size), device=device)

    def start(self, raw: Any) -> Pending:
        exchange: tg_exchange = raw.contents
        if not exchange.on_device:
            return self._hosts.start(raw)
        with torch.cuda.stream(self._stream):
            outgoing = [self._bytes(exchange.send[p], exchange.send_size[p], p) for p in range(self._world)]
            incoming = [self._bytes(exchange.receive[p], exchange.capacity[p], p) for p in range(self._world)]
            work = dist.all_to_all(incoming, outgoing, group=self._cards, async_op=True)
        return _Sent(raw, work, self._stream)

    def gather(self, values: Sequence[int]) -> list[list[int]]:
        return self._hosts.gather(values)

    def spread(self, tensor: torch.Tensor) -> None:
        self._hosts.spread(tensor)

    def close(self) -> None:
        self._hosts.close()
        del self._cards


class _Done:
    def __init__(self, raw: Any) -> None:
        self.raw = raw

    def wait(self) -> None:
        pass


class CollectiveWire:
    """all_to_all_single with split sizes, and another one before it for the sizes; NCCL's bytes go through the card."""

    minimum = True

    def __init__(self, group: dist.ProcessGroup, backend: str) -> None:
        self._group, self._rank = group, dist.get_rank(group)
        on_card = backend == "nccl"
        self._device = torch.device("cuda", torch.cuda.current_device()) if on_card else CPU

    def start(self, raw: Any) -> Pending:
        exchange: tg_exchange = raw.contents
        if exchange.kind == ExchangeKind.ALL_MINIMUM:
            return _Least(raw, self._group, self._device)
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

    def spread(self, tensor: torch.Tensor) -> None:
        _spread(self._group, tensor, self._device)

    def close(self) -> None:
        del self._group
