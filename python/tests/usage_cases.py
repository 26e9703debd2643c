# SPDX-License-Identifier: Apache-2.0
"""What ranks do in test_usage.py: every function here runs on each of two real ranks."""

from __future__ import annotations

import contextlib
import copy
import gc
import io
import logging
import pickle
import threading
import time
import warnings
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import tersegrad
import tersegrad.torch as tg
import torch
import torch.distributed as dist
from cases import MARGIN, Products, backward, gradient, gradients, group, in_time, means, wrapped
from ranks import HANG
from tersegrad.torch import exchange, worker
from tersegrad.torch import state as state_module
from torch import nn
from torch.nn.parallel import DistributedDataParallel

WORLD = 2


@contextlib.contextmanager
def refused(kind: type[BaseException], *words: str) -> Iterator[None]:
    """What follows raises this, with all of these words."""
    try:
        yield
    except kind as problem:
        assert all(word in str(problem) for word in words), str(problem)
    else:
        raise AssertionError(f"it was accepted: {words}")


# ---- Options ---------------------------------------------------------------------------------------------------------


def options_are_checked(rank: int) -> None:
    model = wrapped()
    for name, value in (
        ("algorithm", "scatter"),
        ("warmup", -1),
        ("warmup", 2**70),
        ("seed", -1),
        ("seed", 2**64 + 3),
        ("min_size", -1),
        ("timeout", 0),
        ("timeout", -1.5),
        ("timeout", timedelta(0)),
        ("log_every", -1),
        ("schedule", [(-1, 0.5)]),
    ):
        with refused(ValueError, name):
            tg.compress(model, "topk:density=0.05", process_group=group(), **{name: value})
    with refused(TypeError, "warmup", "float"):
        tg.compress(model, "topk:density=0.05", process_group=group(), warmup=1.5)  # type: ignore[arg-type]
    with refused(ValueError, "schedule", "density"):
        tg.compress(model, "qsgd", process_group=group(), schedule=[(0, 0.1)])
    with refused(ValueError, "rules", "'module.fir*'", "'first'"):
        tg.compress(model, "qsgd", process_group=group(), rules={"module.fir*": None})


def settings_that_differ(rank: int) -> None:
    """What one rank would do alone is refused on all of them, where it would wait for the others."""
    for name, value in (("check", True), ("nonfinite", "raise"), ("scaler", Scaler())):
        options: dict[str, Any] = {name: value} if rank == 1 else {}
        with refused(ValueError, f"rank 1 was given other {name} than rank 0"):
            tg.compress(wrapped(), "qsgd", process_group=group(), **options)

    def outer(parameters: list[torch.Tensor]) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=0.7)

    for name, values in (("every", (2, 3)), ("check", (True, False)), ("nonfinite", ("skip", "raise"))):
        options = {"every": 2, name: values[rank]}
        with refused(ValueError, f"rank 1 was given other {name} than rank 0"):
            tg.LocalSGD(Products(), outer, spec="qsgd", process_group=group(), **options)


def scalers_are_checked(rank: int) -> None:
    for wrong in (True, 1024.0, object()):
        with refused(TypeError, "scaler must be the GradScaler in use", type(wrong).__name__):
            tg.compress(wrapped(), "qsgd", scaler=wrong, process_group=group())
        with refused(TypeError, "scaler must be"):
            tg.explain(wrapped(), "qsgd", scaler=wrong)


def groups_of_others(rank: int) -> None:
    """A thread exchanges over the group: the user's own collectives must not be there."""
    own = dist.new_group(backend="gloo")
    model = DistributedDataParallel(Products(), process_group=own)
    for shared in (dist.group.WORLD, own):
        with refused(ValueError, "process_group", "dist.new_group"):
            tg.compress(model, "qsgd", process_group=shared)
    with refused(ValueError, "process_group"):
        tg.compress(wrapped(), "qsgd", process_group=dist.group.WORLD)


def one_group_for_two_states(rank: int) -> None:
    """One after the other they may have it; in one backward pass their messages would be mixed up."""
    shared = dist.new_group(backend="gloo")
    models = [wrapped(), wrapped()]
    states = [tg.compress(model, "qsgd", process_group=shared) for model in models]
    for step in range(2):
        for model in models:
            backward(model, gradients(rank, step))
    plain = Products()
    free = tg.CompressionState(plain, "qsgd", process_group=shared)
    backward(plain, gradients(rank, 0))
    tg.reduce_gradients(None, free)
    assert [state.stats().applied for state in (*states, free)] == [2, 2, 1]
    with refused(RuntimeError, "another CompressionState", "a process group of its own"):
        (models[0](gradients(rank, 2)) + models[1](gradients(rank, 2))).backward()


def timeouts_of_groups(rank: int) -> None:
    """Those of the job, unless another is given."""

    def waits(made: Any) -> set[timedelta]:
        routes = {made._wire._group, *(team for team, _ in made._wire._routes)}
        return {team._get_backend(torch.device("cpu")).options._timeout for team in routes}

    parent = dist.new_group(backend="gloo", timeout=timedelta(seconds=1234))
    model = DistributedDataParallel(Products(), process_group=parent)
    assert waits(tg.compress(model, "qsgd")) == {timedelta(seconds=1234)}
    assert waits(tg.CompressionState(Products(), "qsgd")) == {timedelta(seconds=HANG)}
    assert waits(tg.CompressionState(Products(), "qsgd", timeout=77)) == {timedelta(seconds=77)}
    assert exchange.timeout_of(object()) is None


def fails_alone(rank: int) -> None:
    """Where one rank fails in compress, the others are told where they waited for it."""
    short = dist.new_group(backend="gloo", timeout=timedelta(seconds=3))
    if rank == 0:
        with refused(RuntimeError, "while ranks compared their settings", "another rank"):
            tg.CompressionState(Products(), "qsgd", process_group=short)


# ---- Parameters that DistributedDataParallel leaves alone ------------------------------------------------------------


class Nested(nn.Module):
    """With parameters of its own, and of a module in it."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Products()
        self.own = nn.Parameter(torch.zeros(200, 100))

    def forward(self, given: dict[str, torch.Tensor]) -> torch.Tensor:
        return self.inner(given) + (self.own * given["first"][:200, :100]).sum()  # type: ignore[no-any-return]


def reduces(model: nn.Module, left: set[str], rank: int) -> None:
    """All parameters but these, in two steps."""
    state = tg.compress(model, "qsgd", process_group=group())
    assert {choice.name for choice in state.choices} == {
        name for name, _ in tg.policy.bare(model).named_parameters() if name not in left
    }
    for step in range(2):
        backward(model, gradients(rank, step))
    assert state.stats().applied == 2


def parameters_that_are_ignored(rank: int) -> None:
    """Their names are as DistributedDataParallel reads them."""
    ignore = DistributedDataParallel._set_params_and_buffers_to_ignore_for_model
    delayed = Nested()
    first = [("inner.small", delayed.inner.small)]
    hook = delayed.inner.first
    options: dict[str, Any] = {"delay_all_reduce_named_params": first, "param_to_hook_all_reduce": hook}
    reduces(DistributedDataParallel(delayed, **options), {"inner.small"}, rank)
    for names, left in (({"own"}, set()), ({".own", "inner.bias"}, {"own", "inner.bias"})):
        model = Nested()
        ignore(model, names)
        assert {choice.name for choice in tg.explain(model, "qsgd").choices}.isdisjoint(left)
        reduces(DistributedDataParallel(model), left, rank)
    for name, left in (("inner.small", set()), ("_orig_mod.inner.small", {"inner.small"})):
        model = Nested()
        ignore(model, [name])
        reduces(DistributedDataParallel(torch.compile(model, backend="eager")), left, rank)


def static_graph_set_late(rank: int) -> None:
    model = wrapped()
    tg.compress(model, "qsgd", process_group=group())
    model._set_static_graph()
    with refused(RuntimeError, "static graph", "before compress"):
        backward(model, gradients(rank, 0))
    model = wrapped()
    model._set_static_graph()
    state = tg.compress(model, "qsgd", process_group=group())
    for step in range(2):
        backward(model, gradients(rank, step))
    assert state.stats().applied == 2


def unused_with_a_gradient(rank: int) -> None:
    """A parameter that this pass does not use has the gradient of the pass before: it counts, as it does without us."""
    dense, ours = wrapped(find_unused_parameters=True), wrapped(find_unused_parameters=True)
    tg.compress(ours, "none", process_group=group())
    most = {name: g for name, g in gradients(rank, 1).items() if name != "last" or rank == 0}
    for model in (dense, ours):
        backward(model, gradients(rank, 0))
        model(most).backward()
    for name, parameter in dense.module.named_parameters():
        assert torch.allclose(parameter.grad, getattr(ours.module, name).grad, atol=1e-6), name
    # Zeros are no gradient: the residual waits.
    model = wrapped(find_unused_parameters=True)
    state = tg.compress(model, "topk:density=0.05", process_group=group())
    backward(model, gradients(rank, 0))
    before = state.residual("last")
    model.zero_grad(set_to_none=False)
    model(most).backward()
    assert torch.equal(state.residual("last"), before) == (rank == 1)


def back_ends_by_device(rank: int) -> None:
    """What carries tensors of the host counts, whatever a group is called."""
    mixed = dist.new_group(backend="cpu:gloo")
    assert dist.get_backend(mixed) != "gloo"
    assert exchange.back_end(mixed) == "gloo" and exchange.back_end(mixed, "cuda") is None
    assert isinstance(exchange.open_wire(mixed), exchange.GlooWire)
    model = wrapped()
    tg.compress(model, "topk:density=0.05", process_group=mixed)
    backward(model, gradients(rank, 0))
    usual = wrapped()
    tg.compress(usual, "topk:density=0.05", process_group=group())
    backward(usual, gradients(rank, 0))
    assert means(model) == means(usual)


def python_reducer(rank: int) -> None:
    state = tg.CompressionState(wrapped(), "qsgd", process_group=group())
    with refused(TypeError, "python_reducer"):
        tg.comm_hook(state, (torch.zeros(3), torch.zeros(3)))  # type: ignore[arg-type]


def between_steps_only(rank: int) -> None:
    """While the coding thread works, nothing else reads what it writes."""
    model = wrapped()
    state = tg.compress(model, "topk:density=0.05", process_group=group())
    reached, go_on, start = threading.Event(), threading.Event(), state._wire.start

    def held(raw: Any) -> Any:
        reached.set()
        go_on.wait()
        return start(raw)

    state._wire.start = held  # type: ignore[method-assign]
    step = threading.Thread(target=backward, args=(model, gradients(rank, 0)))
    step.start()
    reached.wait()
    try:
        uses = (state.state_dict, state.stats, state.bypass_log, lambda: state.residual("first"))
        for use in (*uses, state.compare_parameters):
            with refused(tersegrad.InvalidArgument, "a reduction is in progress", "between steps"):
                use()
    finally:
        go_on.set()
        step.join()
    assert state.stats().applied == 1


# ---- Checkpoints -----------------------------------------------------------------------------------------------------


def checkpoint_with_bypass(rank: int, folder: str) -> None:
    """The state has one size, however long the log of bypass is."""
    import torch.distributed.checkpoint as dcp

    def made(bypass: Any = "auto") -> Any:
        model = wrapped()
        return model, tg.compress(model, "topk:density=0.05", bypass=bypass, process_group=group())

    model, state = made()
    for step in range(20):
        backward(model, gradients(rank, step))
    log = state.bypass_log()
    assert log, "there is no log to be saved"
    dcp.save({"compression": state.state_dict()}, checkpoint_id=folder)
    other_model, other = made()
    wanted = {"compression": other.state_dict()}
    dcp.load(wanted, checkpoint_id=folder)
    other.load_state_dict(wanted["compression"])
    assert other.bypass_log() == log and torch.equal(other.residual("first"), state.residual("first"))
    file = io.BytesIO()
    torch.save(other.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=True))
    assert other.bypass_log() == log
    # What is replayed is saved too, as far as it has come.
    model, state = made(log)
    for step in range(20):
        backward(model, gradients(rank, step))
    dcp.save({"compression": state.state_dict()}, checkpoint_id=f"{folder}-replayed")
    other_model, other = made(log)
    wanted = {"compression": other.state_dict()}
    dcp.load(wanted, checkpoint_id=f"{folder}-replayed")
    other.load_state_dict(wanted["compression"])
    assert torch.equal(other.residual("first"), state.residual("first"))


def checkpoint_of_another_world(rank: int, folder: str) -> None:
    """One rank goes on where two were, with torch.distributed.checkpoint."""
    import torch.distributed.checkpoint as dcp

    model = wrapped()
    state = tg.compress(model, "topk:density=0.05", process_group=group())
    backward(model, gradients(rank, 0))
    residuals: list[Any] = [None] * WORLD
    dist.all_gather_object(residuals, state.residual("first"))
    dcp.save({"model": model.module.state_dict(), "compression": state.state_dict()}, checkpoint_id=folder)
    alone = dist.new_group([0])
    if rank == 0:
        smaller = DistributedDataParallel(Products(), process_group=alone)
        half = tg.compress(smaller, "topk:density=0.05")
        wanted = {"compression": half.checkpoint_template(folder)}
        dcp.load(wanted, checkpoint_id=folder, no_dist=True)
        half.load_state_dict(wanted["compression"])
        assert torch.allclose(half.residual("first"), sum(residuals) / WORLD)
        backward(smaller, gradients(rank, 1))
        with refused(ValueError, "'other'", "compression"):
            half.checkpoint_template(folder, "other")
        dcp.save({"compression": half.state_dict()}, checkpoint_id=f"{folder}-alone", no_dist=True)
        residual = half.residual("first")
    dist.barrier()
    # Two ranks go on where one was: the second takes over nothing but the number of steps.
    more = tg.compress(wrapped(), "topk:density=0.05", process_group=group())
    wanted = {"compression": more.checkpoint_template(f"{folder}-alone")}
    dcp.load(wanted, checkpoint_id=f"{folder}-alone")
    more.load_state_dict(wanted["compression"])
    assert more.state_dict()["ranks"][str(rank)]["step"] == 2
    if rank == 0:
        assert torch.allclose(more.residual("first"), WORLD * residual)
    else:
        assert not more.residual("first").any()
    # As many ranks as before: a rank's own state, and nothing else.
    wanted = {"compression": state.checkpoint_template(folder)}
    assert list(wanted["compression"]["ranks"]) == [str(rank)]
    dcp.load(wanted, checkpoint_id=folder)
    before = state.residual("first")
    backward(model, gradients(rank, 1))
    state.load_state_dict(wanted["compression"])
    assert torch.equal(state.residual("first"), before)


def bad_states(rank: int) -> None:
    state = tg.compress(wrapped(), "topk:density=0.05", process_group=group())
    for given in (None, [None], 7):
        with refused(TypeError, "state_dict", type(given[0] if isinstance(given, list) else given).__name__):
            state.load_state_dict(given)
    with refused(ValueError, "no state"):
        state.load_state_dict([])


# ---- Memory formats --------------------------------------------------------------------------------------------------


class Images(nn.Module):
    """Gradients of a convolution's weight that are exactly what is given."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(8, 16, 3, bias=False)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        return (self.conv.weight * given).sum()


def memory_formats(rank: int) -> None:
    """A residual is read in the parameter's shape, and is not taken for that of another order."""

    def made(channels_last: bool) -> tuple[Images, Any]:
        model = Images()
        if channels_last:
            model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        ddp = DistributedDataParallel(model)
        return ddp, tg.compress(ddp, "topk:density=0.05", min_size=0, process_group=group())

    draw = torch.Generator().manual_seed(rank)
    given = torch.randn(16, 8, 3, 3, generator=draw)
    plain, state = made(False)
    lasting, other = made(True)
    assert not lasting.module.conv.weight.is_contiguous()
    for model in (plain, lasting):
        model.zero_grad()
        model(given).backward()
    assert torch.equal(plain.module.conv.weight.grad, lasting.module.conv.weight.grad)
    assert torch.equal(state.residual("conv.weight"), other.residual("conv.weight"))
    for one, another in ((state, other), (other, state)):
        with refused(tersegrad.LayoutMismatch, "conv.weight", "0, 2, 3, 1"):
            one.load_state_dict(another.state_dict())
    other.load_state_dict(other.state_dict())
    plain.module.to(memory_format=torch.channels_last)
    with refused(RuntimeError, "conv.weight", "memory_format"):
        plain(given).backward()
    # Without DistributedDataParallel gradients may lie in any order.
    alone = Images().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    free = tg.CompressionState(alone, "topk:density=0.05", min_size=0, process_group=group())
    alone.conv.weight.grad = given.clone()
    tg.reduce_gradients(None, free)
    assert torch.equal(alone.conv.weight.grad, lasting.module.conv.weight.grad)
    assert torch.equal(free.residual("conv.weight"), state.residual("conv.weight"))


# ---- Gradients -------------------------------------------------------------------------------------------------------


def sparse_gradients(rank: int) -> None:
    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.word = nn.Embedding(1000, 16, sparse=True)
            self.head = nn.Linear(16, 200)

        def forward(self, given: torch.Tensor) -> torch.Tensor:
            return self.head(self.word(given)).sum()  # type: ignore[no-any-return]

    model = DistributedDataParallel(Words())
    tg.compress(model, "qsgd", process_group=group())
    with refused((TypeError, RuntimeError), "word.weight is sparse", "sparse=False"):  # type: ignore[arg-type]
        model(torch.arange(8)).backward()
    plain = Words()
    state = tg.CompressionState(plain, "qsgd", process_group=group())
    plain(torch.arange(8)).backward()
    with refused(TypeError, "word.weight is sparse"):
        tg.reduce_gradients(None, state)


def frozen_and_empty(rank: int) -> None:
    plain = Products()
    plain.small.requires_grad_(False)
    state = tg.CompressionState(plain, "topk:density=0.05", process_group=group())
    backward(plain, {name: gradient(rank, 0, name) for name in ("first", "last")})
    tg.reduce_gradients(plain.parameters(), state)
    assert plain.small.grad is None and plain.first.grad is not None
    for rounds in range(3):
        tg.reduce_gradients([], state)
        # It has ended: what it was is known.
        stats = state.stats()
        assert (stats.steps, stats.applied) == (2 + rounds, 2 + rounds), stats
    if rank == 1:
        state._wire.start = lambda raw: 1 / 0  # type: ignore[assignment]
        with refused(ZeroDivisionError, "division by zero"):
            tg.reduce_gradients([], state)


# ---- States that cannot be used --------------------------------------------------------------------------------------


def unpickled(rank: int) -> None:
    model = wrapped()
    state = tg.compress(model, "topk:density=0.05", process_group=group())
    backward(model, gradients(rank, 0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        copied = pickle.loads(pickle.dumps(state))
    uses = (lambda: copied.residual("first"), copied.stats, copied.bypass_log, copied.state_dict)
    for use in (*uses, copied.compare_parameters):
        with refused(RuntimeError, "state.attach(model)"):
            use()
    with refused(tersegrad.LayoutMismatch):
        copied.attach(nn.Linear(200, 200), process_group=group())
    with refused(RuntimeError, "state.attach(model)"):
        copied.stats()
    again = wrapped()
    copied.attach(again, process_group=group())
    assert torch.equal(copied.residual("first"), state.residual("first"))


def scaler_after_unpickling(rank: int) -> None:
    """A GradScaler cannot be pickled; without it residuals would not follow the loss scale."""
    scaler = Scaler()
    model = wrapped()
    state = tg.compress(model, "topk:density=0.05", scaler=scaler, process_group=group())
    backward(model, gradients(rank, 0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        copied = pickle.loads(pickle.dumps(state))
    again = wrapped()
    with refused(ValueError, "had a GradScaler", "state.attach(model, scaler=scaler)"):
        copied.attach(again, process_group=group())
    with refused(TypeError, "scaler must be the GradScaler in use"):
        copied.attach(again, process_group=group(), scaler=object())
    copied.attach(again, process_group=group(), scaler=scaler)
    again.register_comm_hook(copied, tg.comm_hook)
    scaler.scale = 2.0
    for one in (model, again):
        backward(one, gradients(rank, 1))
    assert means(model) == means(again)
    assert torch.equal(copied.residual("first"), state.residual("first"))


def broken(rank: int) -> None:
    """After an exchange has failed, everything that would read the state says so."""
    model = wrapped()
    state = tg.compress(model, "topk:density=0.05", timeout=5)
    backward(model, gradients(rank, 0))
    start = state._wire.start

    def fails(raw: Any) -> Any:
        start(raw)
        raise OSError("the cable is out")

    state._wire.start = fails  # type: ignore[method-assign]
    with refused((OSError, RuntimeError), "the cable is out"):  # type: ignore[arg-type]
        backward(model, gradients(rank, 1))
    for use in (lambda: state.residual("first"), state.stats, state.bypass_log, state.state_dict):
        with refused(RuntimeError, "restart from a checkpoint", "the cable is out"):
            use()


def completing_fails(rank: int) -> None:
    """Where a mean cannot be handed over (a card that is lost, memory that runs out), nobody waits for ever."""
    model = wrapped(bucket_cap_mb=0.1)
    state = tg.compress(model, "topk:density=0.05", process_group=group())
    backward(model, gradients(rank, 0))
    complete, done = state_module._Piece.complete, []

    def fails(piece: Any, means: bool) -> None:
        done.append(piece)
        if len(done) == 1:
            raise MemoryError("no room for a mean")
        complete(piece, means)

    if rank == 1:
        state_module._Piece.complete = fails  # type: ignore[method-assign]
        with refused((MemoryError, RuntimeError), "no room for a mean"):  # type: ignore[arg-type]
            backward(model, gradients(rank, 1))
        while len(done) < 2:  # the others are handed over by another thread
            time.sleep(0.01)
        state_module._Piece.complete = complete  # type: ignore[method-assign]
        assert isinstance(state.error, MemoryError)
        with refused(RuntimeError, "restart from a checkpoint", "no room for a mean"):
            backward(model, gradients(rank, 2))
    else:
        backward(model, gradients(rank, 1))


def leaves_in_the_middle(rank: int) -> None:
    """What raises in a backward pass leaves a step without its end. The threads end all the same, and at once."""
    before = set(worker._threads)
    model = wrapped(bucket_cap_mb=0.1)
    state = tg.compress(model, "topk:density=0.05", timeout=5)
    backward(model, gradients(rank, 0))
    if rank == 1:

        def fails(_: Any) -> None:
            raise KeyError("a mistake in the program")

        model.module.first.register_hook(fails)
    with refused((KeyError, RuntimeError), "mistake" if rank == 1 else ""):  # type: ignore[arg-type]
        backward(model, gradients(rank, 1))
    own = worker._threads - before
    assert own
    worker.PATIENCE = MARGIN
    if rank == 0:
        del model, state  # what lets go of a model ends its threads too
        due = time.monotonic() + MARGIN
        while any(thread.is_alive() for thread in own) and time.monotonic() < due:
            gc.collect()  # again: the coding thread may still have been at its end of the step
            time.sleep(0.01)
    else:
        worker._end_all()
    assert not any(thread.is_alive() for thread in own)


class Scaler:
    def __init__(self) -> None:
        self.scale = 1.0

    def is_enabled(self) -> bool:
        return True

    def get_scale(self) -> float:
        return self.scale


def scale_overflows_on_one_rank(rank: int) -> str:
    """A residual of rank 1 cannot follow the loss scale: both ranks are told, and none waits for the other."""
    scaler = Scaler()
    model = wrapped()
    state = tg.compress(model, "topk:density=0.001", scaler=scaler, process_group=group())
    given = gradients(rank, 0)
    backward(model, {name: 1e30 * g for name, g in given.items()} if rank == 1 else given)
    scaler.scale = 2.0**60
    with refused(RuntimeError, "overflow"):
        backward(model, gradients(rank, 1))
    with refused(RuntimeError, "restart from a checkpoint"):
        state.stats()
    return "told"


def silent(rank: int, victim: int) -> str:
    """One rank stops answering in the middle of a step, but lives."""
    model = wrapped(bucket_cap_mb=0.1)
    state = tg.compress(model, "topk:density=0.05", timeout=5)
    backward(model, gradients(rank, 0))
    if rank == victim:
        model.module.first.register_hook(lambda _: time.sleep(1e6))
    start = time.monotonic()
    try:
        backward(model, gradients(rank, 1))
    except RuntimeError as problem:
        in_time(start, 5)
        with refused(RuntimeError, "restart from a checkpoint"):
            backward(model, gradients(rank, 2))
        return str(problem)
    finally:
        del state
    raise AssertionError("nothing was noticed")


# ---- Seeing it work --------------------------------------------------------------------------------------------------


def compared(rank: int) -> None:
    model = wrapped()
    state = tg.compress(model, "topk:density=0.05", process_group=group())
    backward(model, gradients(rank, 0))
    state.compare_parameters()
    if rank == 1:
        with torch.no_grad():
            model.module.small[3, 3] += 1
    with refused(tersegrad.LayoutMismatch, "after 1 step", "small differs between rank 0 and rank 1"):
        state.compare_parameters()
    state.state_dict()
    model = wrapped()
    state = tg.compress(model, "topk:density=0.05", check=True, process_group=group())
    backward(model, gradients(rank, 0))
    state.state_dict()
    if rank == 1:
        with torch.no_grad():
            model.module.small[3, 3] += 1
    with refused(tersegrad.LayoutMismatch, "after 1 step", "small differs between rank 0 and rank 1"):
        state.state_dict()


def errors_are_known_or_none(rank: int) -> None:
    model = wrapped()
    rules = {"first": ("qsgd", "none"), "small": None}
    state = tg.compress(model, "topk:density=0.05", rules=rules, process_group=group())
    assert state.stats().error is None and state.stats().parameters["last"].error is None
    backward(model, gradients(rank, 0))
    stats = state.stats()
    every = stats.parameters
    assert every["first"].error is None and every["first"].gradient_norm is None
    assert every["small"].error == 0.0 and every["small"].gradient_norm is None
    assert every["last"].error is not None and 0 < every["last"].error < 1
    assert every["last"].gradient_norm is not None
    assert stats.error == every["last"].error and stats.scalars()["error"] == stats.error
    assert stats.dense_bytes == sum(own.dense_bytes for own in every.values())
    assert stats.dense_bytes == 4 * sum(p.numel() for p in model.parameters())
    assert stats.ring_bytes == stats.dense_bytes  # of two ranks: each sends half of it, twice
    dense = tg.compress(wrapped(), "qsgd", process_group=group())
    assert dense.stats().error is None and "error" not in dense.stats().scalars()


def logged(rank: int) -> list[str]:
    """Lines of log_every are seen where logging is not configured, or does not take them; else they go there."""
    told: list[str] = []
    logger = logging.getLogger("tersegrad")

    def run() -> str:
        model = wrapped()
        tg.compress(model, "topk:density=0.05", log_every=2, process_group=group())
        with contextlib.redirect_stderr(io.StringIO()) as seen:
            for step in range(3):
                backward(model, gradients(rank, step))
        return seen.getvalue()

    told.append(run())
    handler = logging.Handler()
    lines: list[str] = []
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logger.addHandler(handler)
    told.append(run())  # the level is WARNING
    logger.setLevel(logging.INFO)
    assert run() == ""
    logger.removeHandler(handler)
    logger.setLevel(logging.NOTSET)
    return told + lines


def raised_errors_name_pythons_option(rank: int) -> None:
    model = wrapped()
    state = tg.compress(model, "qsgd", nonfinite="raise", process_group=group())
    given = gradients(rank, 0)
    given["last"][0, 0] = float("nan")
    with refused(RuntimeError, "last", "nonfinite"):
        backward(model, given)
    with refused(RuntimeError, "set nonfinite to 'propagate' or 'drop'"):
        backward(model, given)
    assert isinstance(state.error, tersegrad.NonFinite) and "'propagate' or 'drop'" in str(state.error)
    backward(model, gradients(rank, 0))
    assert state.error is None


# ---- fully_shard -----------------------------------------------------------------------------------------------------


def sharded() -> Any:
    from torch.distributed.fsdp import fully_shard

    model = nn.Sequential(nn.Linear(100, 120), nn.Linear(120, 3))
    fully_shard(model)
    return model


def sharded_options(rank: int) -> None:
    state = tg.compress(sharded(), device="auto", process_group=group())
    assert isinstance(state, tg.ShardedCompression)
    for hosts in ("auto", [0, 1]):
        with refused(TypeError, "hosts", "mesh['hosts']"):
            tg.compress(sharded(), hosts=hosts)  # type: ignore[call-overload]
    with refused(ValueError, "device", "'cuda'"):
        tg.compress(sharded(), device="cuda")
    for name, value in (("seed", 2**64), ("warmup", -1), ("timeout", 0), ("schedule", [(0, 0.5)])):
        with refused(ValueError, name):
            tg.compress(sharded(), **{name: value})
    with refused(ValueError, "exclude", "'module.*'", "such as"):
        tg.compress(sharded(), exclude=["module.*"])
    with refused(TypeError, "'check'"):
        tg.compress(sharded(), check=True)  # type: ignore[call-overload]
    with refused(TypeError, "fully_shard", "'algorithm', 'bypass'", "log_every"):
        tg.compress(sharded(), algorithm="shard", seed=3, bypass="auto")  # type: ignore[call-overload]
    explained = tg.explain(sharded())
    assert {choice.spec.name for choice in explained.choices if choice.compressed} == {"qsgd"}
    for given in (None, [None]):
        with refused(TypeError, "state_dict"):
            state.load_state_dict(given)


def sharded_elsewhere(rank: int) -> None:
    """What takes models of fully_shard is named where others are given one."""

    def outer(parameters: list[torch.Tensor]) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=0.7)

    with refused(TypeError, "1.bias is a DTensor", "compress(model, spec)", "fully_shard"):
        tg.CompressionState(sharded(), "qsgd", process_group=group())
    with refused(TypeError, "1.bias is a DTensor", "fully_shard"):
        tg.LocalSGD(sharded(), outer, every=2, spec="qsgd", process_group=group())
    try:
        from torch.distributed._composable.replicate_with_fsdp import replicate
    except ImportError:
        return
    with refused(TypeError, "replicate", "DistributedDataParallel"):
        tg.compress(replicate(nn.Linear(100, 120)))


def one_group_for_two_sharded_models(rank: int) -> None:
    shared = dist.new_group(backend="gloo")
    models = [sharded(), sharded()]
    for model in models:
        tg.compress(model, process_group=shared)
    given = torch.randn(4, 100, generator=torch.Generator().manual_seed(rank))
    for model in models:
        model(given).sum().backward()
    with refused(RuntimeError, "another ShardedCompression", "a process group of its own"):
        (models[0](given).sum() + models[1](given).sum()).backward()


def sharded_states_are_taken_whole(rank: int) -> None:
    """Where the state of one module is refused, those of the others are as they were."""
    from torch.distributed.fsdp import fully_shard

    model = nn.Sequential(nn.Linear(100, 120), nn.Linear(120, 200))
    for layer in model:
        fully_shard(layer)
    state = tg.compress(fully_shard(model), "topk:density=0.05", process_group=group())

    def step() -> None:
        model(torch.randn(4, 100, generator=torch.Generator().manual_seed(rank))).sum().backward()

    step()
    saved = copy.deepcopy(state.state_dict())
    step()
    before = {name: state.residual(name) for name in ("0.weight", "1.weight")}
    modules = saved["ranks"][str(rank)]["modules"]
    assert len(modules) == 2
    last = list(state._units)[-1]
    modules[last]["state"] = modules[last]["state"][:-1]
    with refused(tersegrad.Error, ""):
        state.load_state_dict(saved)
    del modules[last]
    with refused(ValueError, f"nothing for module {last!r}"):
        state.load_state_dict(saved)
    assert all(torch.equal(state.residual(name), residual) for name, residual in before.items())
    assert state.stats().steps == 2


def sharded_log(rank: int) -> str:
    model = sharded()
    tg.compress(model, min_size=1000, rules={"1.weight": "qsgd"}, log_every=2, process_group=group())
    with contextlib.redirect_stderr(io.StringIO()) as seen:
        for step in range(5):
            model(torch.randn(4, 100, generator=torch.Generator().manual_seed(rank))).sum().backward()
    return seen.getvalue()


def sharded_checkpoint_of_another_world(rank: int, folder: str) -> None:
    import torch.distributed.checkpoint as dcp
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard

    model = sharded()
    state = tg.compress(model, "topk:density=0.05", process_group=group())
    model(torch.randn(4, 100, generator=torch.Generator().manual_seed(rank))).sum().backward()
    residuals: list[Any] = [None] * WORLD
    dist.all_gather_object(residuals, state.residual("0.weight"))
    dcp.save({"compression": state.state_dict()}, checkpoint_id=folder)
    alone = DeviceMesh("cpu", [0])
    if rank == 0:
        smaller = nn.Sequential(nn.Linear(100, 120), nn.Linear(120, 3))
        fully_shard(smaller, mesh=alone)
        half = tg.compress(smaller, "topk:density=0.05")
        wanted = {"compression": half.checkpoint_template(Path(folder))}
        dcp.load(wanted, checkpoint_id=folder, no_dist=True)
        half.load_state_dict(wanted["compression"])
        torch.testing.assert_close(half.residual("0.weight"), sum(residuals) / WORLD)
    dist.barrier()
