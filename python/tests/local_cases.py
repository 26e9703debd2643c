# SPDX-License-Identifier: Apache-2.0
"""What ranks do in test_local.py: every function here runs on each of four real ranks."""

from __future__ import annotations

import copy
import logging
import math
from typing import Any, Callable

import cases
import tersegrad.torch as tg
import torch
import torch.distributed as dist
from cases import WORLD, Products, backward, bits, gradients, group
from tersegrad.errors import LayoutMismatch, NonFinite
from torch import nn

EVERY = 3


def outer(parameters: list[torch.Tensor]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.7, momentum=0.9, nesterov=True)


class Run:
    """A model that trains with local steps."""

    def __init__(self, **options: Any) -> None:
        options = {"spec": "topk:density=0.05", "process_group": group(), **options}
        self.model = Products()
        self.local = tg.LocalSGD(self.model, options.pop("outer", outer), every=EVERY, **options)
        self.inner = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.place = dist.get_rank()

    def train(self, first: int, last: int) -> list[bool]:
        common = []
        for step in range(first, last):
            backward(self.model, gradients(self.place, step))
            self.inner.step()
            common.append(self.local.step())
        return common

    def bits(self) -> dict[str, bytes]:
        return {name: bits(p) for name, p in self.model.named_parameters()}

    def agree(self) -> bool:
        """All ranks of the world have the same parameters, and these are finite."""
        every: list[Any] = [None] * WORLD
        dist.all_gather_object(every, self.bits())
        return all(one == every[0] for one in every) and all(p.isfinite().all() for p in self.model.parameters())


def refused(call: Callable[[], Any], kind: type[BaseException], *words: str) -> None:
    """It raises this on every rank, in these words."""
    try:
        call()
    except kind as problem:
        assert all(word in str(problem) for word in words), problem
        return
    raise AssertionError("it was accepted")


# ---- The end ---------------------------------------------------------------------------------------------------------


def synchronizes(rank: int) -> None:
    """Local steps that are left at the end are agreed on too, and a run may go on from there."""
    run = Run(check=True)
    assert run.train(0, EVERY + 1) == [False, False, True, False]
    assert not run.agree()
    assert run.local.synchronize()
    assert run.agree()
    before = run.bits()
    assert not run.local.synchronize() and run.bits() == before  # momentum alone moves nothing
    saved = copy.deepcopy(run.local.state_dict())
    assert saved["steps"] == EVERY + 1
    assert run.train(EVERY + 1, 2 * EVERY + 1) == [False, False, True]
    again = Run(check=True)
    again.local.load_state_dict(saved)
    assert again.bits() == before
    assert again.train(EVERY + 1, 2 * EVERY + 1) == [False, False, True]
    assert again.agree() and again.bits() == run.bits()


# ---- Values that are not finite --------------------------------------------------------------------------------------


def spoil(run: Run, value: float = math.nan) -> None:
    """One value of one rank, in the last local step before a common one."""
    run.train(EVERY, 2 * EVERY - 1)
    if run.place == 1:
        with torch.no_grad():
            run.model.first[17, 5] = value


def raises(rank: int) -> None:
    run = Run()
    assert run.train(0, EVERY) == [False, False, True]
    before, momentum = run.bits(), copy.deepcopy(run.local.state_dict()["outer"])
    residual = run.local.state.residual("first")
    spoil(run, math.inf)
    gradient = run.model.first.grad
    moved = (run.local._common[run.local.state._index[run.model.first]] - run.model.first).detach()
    refused(run.local.step, NonFinite, "first", "rank 1", "last common step", "'skip' or 'drop'")
    assert run.bits() == before, "every rank is back at the last common step"
    assert run.model.first.grad is gradient
    after = run.local.state_dict()["outer"]
    for i, state in momentum["state"].items():
        assert torch.equal(after["state"][i]["momentum_buffer"], state["momentum_buffer"])
    # What the others had moved is not lost: it comes later. To the rounding of float32, of values below 1.
    kept = residual if rank == 1 else residual + moved
    assert torch.allclose(run.local.state.residual("first"), kept, atol=1e-6)
    assert run.train(6, 9) == [False, False, True]
    assert run.agree() and run.bits() != before


def skips(rank: int) -> None:
    run = Run(nonfinite="skip")
    lines: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("tersegrad").addHandler(handler)
    run.train(0, EVERY)
    before = run.bits()
    spoil(run)
    assert run.local.step() is False and run.local.skipped == 1
    assert run.bits() == before
    assert run.train(6, 9) == [False, False, True] and run.local.skipped == 1
    logging.getLogger("tersegrad").removeHandler(handler)
    assert len(lines) == 1 and "first" in lines[0] and "rank 1" in lines[0], lines
    assert run.agree() and run.bits() != before


def drops(rank: int) -> None:
    run = Run(nonfinite="drop")
    run.train(0, EVERY)
    spoil(run)
    assert run.local.step()
    assert run.agree()
    if rank == 1:  # a whole rank may be lost
        with torch.no_grad():
            for parameter in run.model.parameters():
                parameter.fill_(math.nan)
    before = run.bits()
    assert run.train(6, 9) == [False, False, True]
    assert run.agree() and run.bits() != before


def propagates(rank: int) -> None:
    refused(lambda: Run(nonfinite="propagate"), ValueError, "'raise', 'skip' or 'drop'")


# ---- Options ---------------------------------------------------------------------------------------------------------


def options(rank: int) -> None:
    scaler = torch.amp.GradScaler("cpu")
    refused(lambda: Run(scaler=scaler), TypeError, "scaler", "local optimizer")
    for wrong in (0, -1):
        refused(lambda: tg.LocalSGD(Products(), outer, every=wrong, spec="qsgd"), ValueError, f"every is {wrong}")
    refused(lambda: tg.LocalSGD(Products(), outer, every=2.5, spec="qsgd"), TypeError, "every must be a whole number")
    for wrong, words in ((torch.optim.SGD(Products().parameters()), "not SGD"), (lambda parameters: None, "NoneType")):
        given: Any = wrong
        make = lambda: tg.LocalSGD(Products(), given, every=2, spec="qsgd", process_group=group())  # noqa: E731
        refused(make, TypeError, "outer_optimizer", words)


def checked(rank: int) -> None:
    plain, run = Run(), Run(check=True)
    for one in (plain, run):
        assert one.train(0, 2 * EVERY) == [False, False, True] * 2
    assert plain.bits() == run.bits()
    if rank == 2:  # as a broken memory would
        run.local._common[-1].view(-1)[7] += 1
    name = run.local.state.choices[-1].name
    refused(lambda: run.train(6, 9), LayoutMismatch, f"{name} differs between rank 0 and rank 2", "common step")


# ---- Starts ----------------------------------------------------------------------------------------------------------


class Various(nn.Module):
    """Every kind of tensor that a model may have, and other values on every rank."""

    def __init__(self, rank: int, hidden: int = 30) -> None:
        super().__init__()
        made = torch.Generator().manual_seed(rank)
        self.weight = nn.Parameter(torch.randn(hidden, 20, generator=made))
        self.short = nn.Parameter(torch.randn(50, generator=made).bfloat16())
        self.strided = nn.Parameter(torch.randn(4, 3, 5, 5, generator=made).to(memory_format=torch.channels_last))
        self.same = nn.Parameter(torch.ones(3))
        self.frozen = nn.Parameter(torch.randn(7, generator=made), requires_grad=False)
        self.scalar = nn.Parameter(torch.randn((), generator=made))
        self.register_buffer("seen", torch.tensor(rank))
        self.register_buffer("mask", torch.tensor([rank % 2 == 0, True]))
        self.register_buffer("nothing", torch.empty(0))


def starts(rank: int) -> None:
    for options in ({}, {"wire": "collective"}):
        model, first = Various(rank + 5), Various(5)
        before = tg.state.open_wire
        if options:
            tg.state.open_wire = lambda *_: tg.exchange.CollectiveWire(group(), "gloo")
        local = tg.LocalSGD(model, outer, every=1, spec="none", process_group=group())
        tg.state.open_wire = before
        for (name, mine), (_, wanted) in zip(model.state_dict().items(), first.state_dict().items()):
            assert bits(mine) == bits(wanted), name
        assert model.strided.is_contiguous(memory_format=torch.channels_last)
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter) if parameter.requires_grad else None
        assert local.step()
        assert all(torch.equal(mine, wanted) for mine, wanted in zip(model.parameters(), first.parameters()))


def other_models(rank: int) -> None:
    def make(hidden: int) -> tg.LocalSGD:
        return tg.LocalSGD(Various(0, hidden), outer, every=1, spec="none", process_group=group())

    refused(lambda: make(31 if rank == 2 else 30), LayoutMismatch, "weight", "rank 2")

    class Larger(Various):
        def __init__(self) -> None:
            super().__init__(0)
            self.more = nn.Parameter(torch.ones(2))

    model = Larger() if rank == 3 else Various(0)
    local = lambda: tg.LocalSGD(model, outer, every=1, spec="none", process_group=group())  # noqa: E731
    refused(local, LayoutMismatch, "rank 3", "tensors")


# ---- State -----------------------------------------------------------------------------------------------------------


def bad_states(rank: int) -> None:
    run = Run()
    run.train(0, EVERY)
    saved, before = run.local.state_dict(), run.bits()  # what was saved stays as it is
    residual = run.local.state.residual("first")
    run.train(EVERY, 2 * EVERY)

    def without(key: str) -> dict[str, Any]:
        return {name: value for name, value in saved.items() if name != key}

    def common(**changes: Any) -> dict[str, Any]:
        every = {**saved["common"], **changes}
        return {**saved, "common": {name: value for name, value in every.items() if value is not None}}

    fresh = Run()
    start, load = fresh.bits(), fresh.local.load_state_dict
    refused(lambda: load({}), ValueError, "LocalSGD.state_dict", "steps")
    refused(lambda: load([]), ValueError, "no state was given")
    refused(lambda: load(None), ValueError, "LocalSGD.state_dict")  # type: ignore[arg-type]
    refused(lambda: load(saved["compression"]), ValueError, "LocalSGD.state_dict")
    for key in saved:
        refused(lambda key=key: load(without(key)), ValueError, "LocalSGD.state_dict", key)
    refused(lambda: load(common(first=None)), ValueError, "first")
    refused(lambda: load(common(stranger=torch.ones(2))), ValueError, "stranger")
    refused(lambda: load(common(first=torch.ones(3))), ValueError, "first", "[3]", "[300, 250]")
    refused(lambda: load([saved, {**saved, "steps": 6}]), ValueError, "steps")
    assert fresh.bits() == start and not fresh.local.state.residual("first").any()
    for _ in range(2):
        load(saved)
    assert fresh.bits() == before and torch.equal(fresh.local.state.residual("first"), residual)
    fresh.train(EVERY, 2 * EVERY)
    assert fresh.bits() == run.bits()


def states_of_other_rounds(rank: int) -> None:
    run = Run()
    run.train(0, EVERY)
    early = run.local.state_dict()
    run.train(EVERY, 2 * EVERY)
    late = run.local.state_dict()
    fresh = Run()
    fresh.local.load_state_dict(early if rank == 1 else late)
    refused(lambda: fresh.train(6, 9), LayoutMismatch, "rank 1", "local steps")
    fresh = Run()
    if rank == 3:
        late["common"]["small"][1, 1] += 1
    fresh.local.load_state_dict(late)
    refused(lambda: fresh.train(6, 9), LayoutMismatch, "small", "rank 3")


def another_world(rank: int, before: int, after: int) -> None:
    """A restart with more or fewer workers, from what each of the old ones saved."""
    old, new = dist.new_group(list(range(before))), dist.new_group(list(range(after)))
    every: list[Any] = [None] * WORLD
    residuals: list[Any] = [None] * WORLD
    saved, residual = None, None
    if rank < before:
        run = Run(process_group=old)
        run.train(0, 2 * EVERY)
        saved, residual = run.local.state_dict(), run.local.state.residual("first")
    dist.all_gather_object(every, saved)
    dist.all_gather_object(residuals, residual)
    every = every[:before]
    if rank >= after:
        return
    run = Run(process_group=new)
    if after < before:
        refused(lambda: run.local.load_state_dict(every[rank]), ValueError, "what all ranks saved")
    run.local.load_state_dict(every)
    assert all(torch.equal(p, every[0]["common"][name]) for name, p in run.model.named_parameters())
    merged = sum(residuals[old] for old in range(rank, before, after)) if rank < before else torch.zeros(())
    # What residuals will move the mean by stays the same, but for rounding: their sum over the number of ranks.
    assert torch.allclose(run.local.state.residual("first"), merged * after / before)
    again = Run(process_group=new)  # the older way: the first rank's state, and compression by itself
    again.local.load_state_dict(every[0], compression=[one["compression"] for one in every])
    for one in (run, again):
        assert one.train(6, 12) == [False, False, True] * 2
    assert run.bits() == again.bits()
    digests: list[Any] = [None] * after
    dist.all_gather_object(digests, run.bits(), group=new)
    assert all(one == digests[0] for one in digests)


def checkpointed(rank: int, folder: str) -> None:
    """torch.distributed.checkpoint, by which a fresh LocalSGD is given the momentum of the outer optimizer, or refuses."""
    import torch.distributed.checkpoint as dcp

    def adam(parameters: list[torch.Tensor]) -> torch.optim.Optimizer:
        return torch.optim.Adam(parameters, lr=0.1)

    for number, make in enumerate((outer, adam)):
        at = f"{folder}-{number}"
        run = Run(outer=make)
        run.train(0, 2 * EVERY)
        dcp.save({"all": {"local": run.local.state_dict()}}, checkpoint_id=at)
        run.train(2 * EVERY, 4 * EVERY)
        fresh = Run(outer=make)
        wanted = {"all": {"local": fresh.local.checkpoint_template(at, "all.local")}}
        assert list(wanted["all"]["local"]["compression"]["ranks"]) == [str(rank)]
        dcp.load(wanted, checkpoint_id=at)
        fresh.local.load_state_dict(wanted["all"]["local"])
        fresh.train(2 * EVERY, 4 * EVERY)
        assert fresh.bits() == run.bits()
        empty = Run(outer=make)
        wanted = {"all": {"local": empty.local.state_dict()}}
        dcp.load(wanted, checkpoint_id=at)
        kept = "exp_avg" if number else "momentum_buffer"
        before = empty.bits()
        refused(lambda: empty.local.load_state_dict(wanted["all"]["local"]), ValueError, "outer optimizer", "template")
        assert empty.bits() == before and kept in str(fresh.local.state_dict()["outer"]["entries"])
    # Before the first common step there is no momentum.
    at = f"{folder}-early"
    early = Run()
    dcp.save({"local": early.local.state_dict()}, checkpoint_id=at)
    wanted = {"local": Run().local.checkpoint_template(at)}
    dcp.load(wanted, checkpoint_id=at)
    fresh = Run()
    fresh.local.load_state_dict(wanted["local"])
    for one in (early, fresh):
        one.train(0, EVERY)
    assert fresh.bits() == early.bits()
