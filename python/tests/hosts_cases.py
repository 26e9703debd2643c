# SPDX-License-Identifier: Apache-2.0
"""What ranks do in test_hosts.py: hosts of several ranks, six ranks in all."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import tersegrad
import tersegrad.torch as tg
import torch
import torch.distributed as dist
from cases import SHAPES, Products, backward, gradient, gradients, group, means, wrapped
from torch import nn

WORLD = 6
# Two hosts of three; the same, by turns; hosts of four and two; three hosts; one.
PLACEMENTS = ([0, 0, 0, 1, 1, 1], [1, 0, 1, 0, 1, 0], [0, 0, 1, 0, 0, 1], [0, 1, 1, 1, 0, 0], [0, 0, 1, 1, 2, 2], [0] * 6)


def compressed(spec: str = "topk:density=0.05", **options: Any) -> tuple[nn.Module, tg.CompressionState]:
    model = wrapped(bucket_cap_mb=0.1)
    return model, tg.compress(model, spec, process_group=group(), seed=7, **options)


def hook_bits(
    rank: int, spec: str, feedback: str, algorithm: str, dtype: str, steps: int, hosts: list[int]
) -> list[dict[str, bytes]]:
    kind: torch.dtype = getattr(torch, dtype)
    model = wrapped(kind, bucket_cap_mb=0.1)
    tg.compress(model, spec, feedback=feedback, algorithm=algorithm, seed=7, insist=True, process_group=group(), hosts=hosts)
    result = []
    for step in range(steps):
        backward(model, gradients(rank, step, kind))
        result.append(means(model))
    return result


def groups_are_those_of_hosts_and_owners(rank: int) -> None:
    hosts = [0, 0, 1, 0, 0, 1]
    _, state = compressed(hosts=hosts)
    wire = state._wire
    sizes = [dist.get_world_size(one) for one, _ in wire._routes]
    ranks = [dist.get_process_group_ranks(one) for one, _ in wire._routes]
    # Two shares: ranks 0 and 2 own the first, 1 and 5 the second, 3 and 4 none.
    host, owners = [r for r in range(WORLD) if hosts[r] == hosts[rank]], {0: [0, 2], 2: [0, 2], 1: [1, 5], 5: [1, 5]}
    for peer in set(range(WORLD)) - {rank}:
        if hosts[peer] == hosts[rank]:
            assert ranks[peer] == host, (peer, ranks[peer])
        elif peer in owners.get(rank, []):
            assert ranks[peer] == owners[rank], (peer, ranks[peer])
        else:
            assert sizes[peer] == WORLD, (peer, ranks[peer])
        assert ranks[peer][wire._routes[peer][1]] == peer


def other_back_ends(rank: int) -> None:
    """Those that want equal sizes on both sides, as NCCL does: all in the group of all ranks, and the same results."""
    every = []
    for back_end in ("gloo", "another"):
        before = tg.state.open_wire
        if back_end == "another":
            tg.state.open_wire = lambda one, *rest: tg.exchange.CollectiveWire(one, "gloo")
        model, _ = compressed(algorithm="shard", hosts=[0, 0, 0, 1, 1, 1])
        tg.state.open_wire = before
        for step in range(2):
            backward(model, gradients(rank, step))
        every.append(means(model))
    assert every[0] == every[1]


def bytes_between_hosts(rank: int) -> tuple[int, int, float, str]:
    """What two levels send to other hosts, and one level to all."""
    sent = []
    for hosts in ([0, 0, 0, 1, 1, 1], None):
        model, state = compressed("qsgd", algorithm="shard", hosts=hosts)
        for step in range(3):
            backward(model, gradients(rank, step))
        sent.append(state.stats())
    return sent[0].bytes_sent, sent[1].bytes_sent, sent[0].ratio, sent[0].algorithm


def one_host(rank: int) -> None:
    """All ranks share a host here: the mean is that of the gradients as they are."""
    model, state = compressed(hosts="names")
    assert state.hosts == [0] * WORLD
    backward(model, gradients(rank, 0))
    for name in SHAPES:
        total = torch.zeros(SHAPES[name])
        for other in range(WORLD):
            total += gradient(other, 0, name)
        assert torch.allclose(getattr(model.module, name).grad, total / WORLD, rtol=1e-6, atol=1e-9), name
    assert not state.residual("last").any()


@contextmanager
def named(rank: int, ranks: int = 2) -> Iterator[None]:
    """So many ranks each say that they have a host of their own."""
    before = tg.exchange.platform.node
    tg.exchange.platform.node = lambda: f"host-{rank // ranks}"
    try:
        yield
    finally:
        tg.exchange.platform.node = before


def auto(rank: int) -> None:
    """Hosts by name, without a word where ranks have any in common, unless two levels do not go with what is wanted."""
    clipped = {"feedback": "dgc:momentum=0.9,clip=1"}
    with named(rank):
        for options in ({}, {"hosts": "auto"}, {"hosts": "names"}, {"hosts": "names", "algorithm": "shard"}):
            assert compressed(**options)[1].hosts == [0, 0, 1, 1, 2, 2], options
        for options in ({"hosts": None}, {"algorithm": "shard"}, {"bypass": "auto"}, {"bypass": [3]}, clipped):
            assert compressed(**options)[1].hosts is None, options
        assert compressed(bypass="auto" if rank == 5 else "off")[1].hosts is None  # not what ranks would hang in
    with named(rank, 4):
        assert compressed()[1].hosts == [0, 0, 0, 0, 1, 1]
    for ranks in (1, WORLD):
        with named(rank, ranks):
            assert compressed()[1].hosts is None, ranks


def auto_is_said(rank: int) -> list[str]:
    """Once, on rank 0."""
    said: list[str] = []
    before, tg.state.announce = tg.state.announce, said.append
    with named(rank, 4):
        _, state = compressed()
    state.load_state_dict(compressed(hosts=None)[1].state_dict())
    tg.state.announce = before
    return said


def auto_goes_on_from_one_level(rank: int, whole: bool) -> None:
    """What was saved in one level: alone it goes on to the bit; with the states of all, in two levels."""
    undisturbed, _ = compressed(hosts=None)
    stopped, state = compressed(hosts=None)
    for step in range(2):
        backward(undisturbed, gradients(rank, step))
        backward(stopped, gradients(rank, step))
    saved = copy.deepcopy(state.state_dict())
    with named(rank):
        again, state = compressed()
    backward(again, gradients(rank, 7))  # something that the state replaces
    state.load_state_dict(of_all(saved) if whole else saved)
    assert state.hosts == ([0, 0, 1, 1, 2, 2] if whole else None)
    for step in (2, 3):
        backward(undisturbed, gradients(rank, step))
        backward(again, gradients(rank, step))
        assert whole or means(again) == means(undisturbed), step
        assert all(one == means(again) for one in of_all(means(again))), step
    assert ("hosts" in state.state_dict()) is whole
    assert state.state_dict()["ranks"][str(rank)]["step"] == 4


def local_steps_stay_at_one_level(rank: int) -> None:
    with named(rank):
        local = tg.LocalSGD(Products(), lambda p: torch.optim.SGD(p, lr=1.0), every=2, spec="qsgd", process_group=group())
    assert local.state.hosts is None


def every_rank_a_host(rank: int) -> None:
    """There are no levels then, to the bit."""
    every = []
    for hosts in ([3, 1, 4, 0, 5, 2], None):
        model, state = compressed(hosts=hosts)
        assert state.hosts is None and "hosts" not in state.state_dict()
        backward(model, gradients(rank, 0))
        every.append(means(model))
    assert every[0] == every[1]


def of_all(value: Any) -> list[Any]:
    every: list[Any] = [None] * WORLD
    dist.all_gather_object(every, value)
    return every


def resumed(rank: int, algorithm: str, spec: str) -> None:
    hosts = [0, 0, 1, 0, 0, 1]
    undisturbed, _ = compressed(spec, algorithm=algorithm, hosts=hosts)
    stopped, state = compressed(spec, algorithm=algorithm, hosts=hosts)
    for step in range(3):
        backward(undisturbed, gradients(rank, step))
        backward(stopped, gradients(rank, step))
    saved = copy.deepcopy(state.state_dict())
    backward(undisturbed, gradients(rank, 3))
    for given in (saved, of_all(saved)):  # the own, or those of all ranks
        again, state = compressed(spec, algorithm=algorithm, hosts=hosts)
        state.load_state_dict(given)
        backward(again, gradients(rank, 3))
        assert means(again) == means(undisturbed)


def moved(rank: int, before: Sequence[int] | None, after: Sequence[int] | None) -> None:
    """Residuals follow their elements to other owners; what they will change the mean by stays."""
    model, state = compressed(algorithm="gather", hosts=before)
    for step in range(2):
        backward(model, gradients(rank, step))
    held = sum(of_all(state.residual("last")))
    every = of_all(state.state_dict())
    model, state = compressed(algorithm="gather", hosts=after)
    try:
        state.load_state_dict(every[rank])
        raise AssertionError("a part was taken for the whole")
    except ValueError as problem:
        assert "what all ranks saved" in str(problem), problem
    state.load_state_dict(every)
    holds = sum(of_all(state.residual("last")))
    assert held.any() and torch.allclose(holds, held, rtol=1e-5, atol=1e-7)  # added up in another order
    backward(model, gradients(rank, 2))
    assert all(one == means(model) for one in of_all(means(model)))


def not_finite(rank: int) -> None:
    """On one rank, in its raw part for another: every rank gets NaN, and no residual does."""
    model, state = compressed(hosts=[0, 0, 0, 1, 1, 1])
    given = gradients(rank, 0)
    if rank == 1:
        given["last"][599, 499] = float("inf")
    backward(model, given)
    assert all(torch.isnan(p.grad).all() for p in model.parameters())
    assert all(torch.isfinite(state.residual(name)).all() for name in SHAPES)
    backward(model, gradients(rank, 1))
    assert all(torch.isfinite(p.grad).all() for p in model.parameters())


def mistakes(rank: int) -> None:
    for options, text in (
        ({"hosts": [0, 1]}, "hosts has 2 entries for 6 ranks"),
        ({"hosts": "every"}, "hosts is 'every': it must be 'auto', 'names', None"),
        ({"hosts": [0, 0, 0, 1, 1, 1], "bypass": "auto"}, "bypass does not support hosts"),
        ({"hosts": [0, 0, 0, 1, 1, 1], "feedback": "dgc:momentum=0.9,clip=1"}, "clip"),
    ):
        try:
            compressed(**options)
            raise AssertionError(f"{options} were taken")
        except (ValueError, tersegrad.Error) as problem:
            assert text in str(problem), problem
    for first in ([0, 0, 1, 1, 2, 2], None, "auto", "names"):
        try:
            compressed(hosts=first if rank == 0 else [0, 0, 0, 1, 1, 1])
            raise AssertionError("ranks with different hosts went on")
        except ValueError as problem:
            assert "rank 1 was given other hosts than rank 0" in str(problem), problem
