# SPDX-License-Identifier: Apache-2.0
"""What ranks do in test_torch.py: every function here runs on each of four real ranks."""

from __future__ import annotations

import copy
import logging
import os
import pickle
import tempfile
import time
import warnings
from typing import Any

import tersegrad.torch as tg
import torch
import torch.distributed as dist
from tersegrad.torch import exchange
from torch import nn
from torch.nn.parallel import DistributedDataParallel

WORLD = 4
# The last one fills the first bucket of DistributedDataParallel, 1 MiB, so that there are several.
SHAPES = {"first": (300, 250), "small": (40, 50), "bias": (300,), "last": (600, 500)}


class Products(nn.Module):
    """The gradient of each parameter is exactly what is given for it: loss = sum of p * g."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        for name, shape in SHAPES.items():
            setattr(self, name, nn.Parameter(torch.zeros(shape, dtype=dtype)))

    def forward(self, gradients: dict[str, torch.Tensor]) -> torch.Tensor:
        return torch.stack([(getattr(self, name) * g).sum() for name, g in gradients.items()]).sum()


def gradient(rank: int, step: int, name: str, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    seed = 1000 * step + 10 * rank + list(SHAPES).index(name)
    return (0.01 * torch.randn(SHAPES[name], generator=torch.Generator().manual_seed(seed))).to(dtype)


def gradients(rank: int, step: int, dtype: torch.dtype = torch.float32) -> dict[str, torch.Tensor]:
    return {name: gradient(rank, step, name, dtype) for name in SHAPES}


def bits(tensor: torch.Tensor) -> bytes:
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes()


def means(model: nn.Module) -> dict[str, bytes]:
    return {name: bits(p.grad) for name, p in tg.policy.bare(model).named_parameters() if p.grad is not None}


def wrapped(dtype: torch.dtype = torch.float32, **options: Any) -> DistributedDataParallel:
    return DistributedDataParallel(Products(dtype), **options)


def backward(model: nn.Module, given: dict[str, torch.Tensor]) -> None:
    model.zero_grad(set_to_none=True)
    model(given).backward()


_shared: list[Any] = []


MARGIN = 600.0  # seconds: only what hangs takes so long beyond the time-out of a group


def in_time(start: float, timeout: float) -> None:
    """An error that was due `timeout` seconds after `start` at the latest."""
    assert time.monotonic() - start < timeout + MARGIN


def group() -> Any:
    """A group that states of one test after the other use, since making one takes a while."""
    if not _shared:
        _shared.append(dist.new_group(backend="gloo"))
    return _shared[0]


# ---- The same bits as the C reducer ----------------------------------------------------------------------------------


def hook_bits(rank: int, spec: str, feedback: str, algorithm: str, dtype: str, steps: int) -> list[dict[str, bytes]]:
    kind: torch.dtype = getattr(torch, dtype)
    model = wrapped(kind, bucket_cap_mb=0.1)
    tg.compress(model, spec, feedback=feedback, algorithm=algorithm, seed=7, insist=True, process_group=group())
    result = []
    for step in range(steps):
        backward(model, gradients(rank, step, kind))
        result.append(means(model))
    return result


# ---- What must not matter --------------------------------------------------------------------------------------------


def buckets_do_not_matter(rank: int) -> None:
    every, numbers = [], set()
    for size in (0.01, 0.3, 100):
        model = wrapped(bucket_cap_mb=size)
        state = tg.CompressionState(model, "topk:density=0.05", process_group=group())
        seen: list[int] = []

        def hook(given: Any, bucket: Any, seen: list[int] = seen) -> Any:
            seen.append(bucket.index())
            return tg.comm_hook(given, bucket)

        hook.__annotations__ = tg.comm_hook.__annotations__
        model.register_comm_hook(state, hook)
        steps = []
        for step in range(4):  # buckets are rebuilt after the first
            seen.clear()
            backward(model, gradients(rank, step))
            steps.append(means(model))
        every.append(steps)
        numbers.add(len(seen))
    assert len(numbers) > 1, "the same buckets each time"
    assert every[0] == every[1] == every[2]


def gradients_may_be_views_of_buckets(rank: int) -> None:
    every = []
    for views in (False, True):
        model = wrapped(gradient_as_bucket_view=views, static_graph=views)
        tg.compress(model, "qsgd", process_group=group())
        for step in range(3):
            backward(model, gradients(rank, step))
        every.append(means(model))
    assert every[0] == every[1]


def accumulation(rank: int) -> None:
    once, twice = wrapped(), wrapped()
    for model in (once, twice):
        tg.compress(model, "topk:density=0.05")
    given = gradients(rank, 0)
    backward(once, {name: 2 * g for name, g in given.items()})
    twice.zero_grad()
    with twice.no_sync():
        twice(given).backward()
    twice(given).backward()
    assert means(once) == means(twice)


def several_models(rank: int) -> None:
    models = [wrapped(), wrapped()]
    states = [tg.compress(model, spec) for model, spec in zip(models, ("topk:density=0.05", "qsgd"))]
    for step in range(2):
        for model in models:
            model.zero_grad()
        (models[0](gradients(rank, step)) + models[1](gradients(rank, step))).backward()
    assert [state.stats().applied for state in states] == [2, 2]


def compiled(rank: int) -> None:
    plain = wrapped()
    tg.compress(plain, "topk:density=0.05", process_group=group())
    other = wrapped()
    tg.compress(other, "topk:density=0.05", process_group=group())
    other = torch.compile(other, backend="aot_eager")
    for step in range(2):
        for model in (plain, other):
            backward(model, gradients(rank, step))
    assert means(plain) == means(other)


def compiled_with_unused_parameters(rank: int) -> None:
    plain, inner = wrapped(find_unused_parameters=True), wrapped(find_unused_parameters=True)
    states = [tg.compress(model, "topk:density=0.05", process_group=group()) for model in (plain, inner)]
    other = torch.compile(inner, backend="aot_eager")
    for step in range(3):
        given = gradients(rank, step)
        if step == 1 and rank != 2:
            del given["last"]
        before = states[1].residual("last")
        for model in (plain, other):
            backward(model, given)
        assert means(plain) == means(other)
        assert torch.equal(states[1].residual("last"), before) == (step == 1 and rank != 2)


def joined(rank: int) -> None:
    """Ranks that have no more data take part with zeros."""
    model = wrapped()
    state = tg.compress(model, "none", process_group=group())
    with model.join():
        for step in range(3 if rank == 0 else 2):
            backward(model, gradients(rank, step))
    assert state.stats().applied == 3
    if rank == 0:
        for name in SHAPES:
            torch.testing.assert_close(getattr(model.module, name).grad, gradient(0, 2, name) / WORLD)


def other_back_ends(rank: int) -> None:
    """Those that want equal sizes on both sides, as NCCL does: the same results."""
    every = []
    for wire in (tg.exchange.open_wire(group()), tg.exchange.CollectiveWire(group(), "gloo")):
        before, tg.state.open_wire = tg.state.open_wire, lambda *_, wire=wire: wire
        model = wrapped()
        tg.compress(model, "topk:density=0.05", algorithm="shard", process_group=group())
        tg.state.open_wire = before
        for step in range(2):
            backward(model, gradients(rank, step))
        every.append(means(model))
    assert every[0] == every[1]


def bypass(rank: int) -> None:
    """Steps that are sent as they are, decided by times and then by the log of that: the same bits."""
    every, log, decided = [], [], []
    for how in ("auto", log):
        model = wrapped()
        state = tg.compress(model, "topk:density=0.02", bypass=how)
        for step in range(24):
            backward(model, gradients(rank, step))
            every.append(means(model))
        log[:] = state.bypass_log()
        decided.append(list(log))
        assert not state.residual("last").any() or len(log) % 2 == 0
    assert decided[0] == decided[1] and decided[0][0] == 18  # after a step that does not count, and 16 that do
    assert every[:24] == every[24:]


def warm_up_and_schedule(rank: int) -> None:
    """Dense at first, then the densities of the schedule; other collectives of the user go on beside them."""
    model = wrapped()
    state = tg.compress(model, "topk:density=0.5", warmup=1, schedule=[(0, 0.2), (2, 0.05)])
    sent = [0]
    for step in range(3):
        total = torch.full((1000,), float(rank))
        other = dist.all_reduce(total, async_op=True)
        backward(model, gradients(rank, step))
        other.wait()
        assert total.eq(sum(range(WORLD))).all()
        sent.append(state.stats().parameters["last"].bytes)
        assert state.residual("last").any() == (step > 0)
        if step == 0:
            mean = sum(gradient(r, 0, "last") for r in range(WORLD)) / WORLD
            assert torch.allclose(model.module.last.grad, mean, atol=1e-7)
    dense, early, late = (b - a for a, b in zip(sent, sent[1:]))
    assert dense >= 4 * 600 * 500 and dense > 3 * early and early > 3 * late, (dense, early, late)


# ---- Unused parameters -----------------------------------------------------------------------------------------------


def unused(rank: int) -> None:
    model = wrapped(find_unused_parameters=True)
    state = tg.compress(model, "topk:density=0.05", rules={"last": ("topk:density=0.05", "ef")})
    backward(model, gradients(rank, 0))
    before = state.residual("last")
    assert before.any()
    # No rank uses it: its gradient stays None, its residual as it was.
    backward(model, {name: g for name, g in gradients(rank, 1).items() if name != "last"})
    assert model.module.last.grad is None
    assert torch.equal(state.residual("last"), before)
    # Only rank 2 uses it: the others get its share, and keep their residual.
    given = gradients(rank, 2)
    if rank != 2:
        del given["last"]
    backward(model, given)
    assert model.module.last.grad is not None and model.module.last.grad.any()
    assert torch.equal(state.residual("last"), before) == (rank != 2)
    # Used in a pass under no_sync alone counts as used.
    model.zero_grad()
    with model.no_sync():
        model(gradients(rank, 3)).backward()
    model({"first": gradient(rank, 3, "first")}).backward()
    assert not torch.equal(state.residual("last"), before)


# ---- Values that are not finite --------------------------------------------------------------------------------------


def not_finite(rank: int) -> None:
    model = wrapped(bucket_cap_mb=0.1)
    state = tg.compress(model, "topk:density=0.05")
    backward(model, gradients(rank, 0))
    for name in SHAPES:  # in a compressed tensor, and in one that travels as it is
        given = gradients(rank, 1)
        if rank == 2:
            given[name].view(-1)[17] = float("inf")
        backward(model, given)
        assert all(torch.isnan(p.grad).all() for p in model.parameters())
        assert all(torch.isfinite(state.residual(one)).all() for one in SHAPES)
    backward(model, gradients(rank, 2))
    assert all(torch.isfinite(p.grad).all() for p in model.parameters())
    assert state.stats().applied == 2

    strict = wrapped()
    tg.compress(strict, "topk:density=0.05", nonfinite="raise")
    given = gradients(rank, 1)
    if rank == 1:
        given["first"][0, 0] = float("nan")
    try:
        backward(strict, given)
        raise AssertionError("it was accepted")
    except RuntimeError as problem:
        assert "first" in str(problem) and "rank 1" in str(problem), problem
    backward(strict, gradients(rank, 2))

    lenient = wrapped()
    tg.compress(lenient, "topk:density=0.05", nonfinite="drop")
    backward(lenient, given)
    assert all(torch.isfinite(p.grad).all() for p in lenient.parameters())


def scaler(rank: int) -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=1000)
    model = wrapped()
    state = tg.compress(model, "topk:density=0.05", scaler=scaler)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(number: int, bad: bool) -> None:
        given = gradients(rank, number)
        if bad and rank == 3:
            given["last"][1, 1] = float("inf")
        model.zero_grad()
        scaler.scale(model(given)).backward()
        scaler.step(optimizer)
        scaler.update()

    step(0, bad=False)
    before = state.residual("first")
    weights = copy.deepcopy(model.module.state_dict())
    step(1, bad=True)
    assert scaler.get_scale() == 512.0  # on every rank alike
    assert all(torch.equal(weights[name], value) for name, value in model.module.state_dict().items())
    after = state.residual("first")
    step(2, bad=False)
    assert state.state_dict()["ranks"][str(rank)]["loss_scale"] == 512.0
    # Residuals are in the new scale: the step went on from half of what there was.
    assert state.residual("first").norm() < 0.75 * (after.norm() + 1024 * gradient(rank, 2, "first").norm())
    assert before.any()


# ---- State -----------------------------------------------------------------------------------------------------------


def resumed(rank: int, spec: str, feedback: str | None, algorithm: str) -> None:
    def run(model: nn.Module, first: int, last: int) -> list[dict[str, bytes]]:
        result = []
        for step in range(first, last):
            backward(model, gradients(rank, step))
            result.append(means(model))
        return result

    options: dict[str, Any] = {"algorithm": algorithm, "warmup": 1, "schedule": [(3, 0.02)], "process_group": group()}
    options["feedback"] = feedback
    if not spec.startswith("topk"):
        del options["schedule"]
    undisturbed = wrapped(bucket_cap_mb=0.1)
    tg.compress(undisturbed, spec, **options)
    expected = run(undisturbed, 0, 6)

    stopped = wrapped(bucket_cap_mb=0.1)
    state = tg.compress(stopped, spec, **options)
    assert run(stopped, 0, 3) == expected[:3]
    with tempfile.TemporaryFile() as file:
        torch.save(state.state_dict(), file)
        file.seek(0)
        saved = torch.load(file, weights_only=True)

    again = wrapped(bucket_cap_mb=50)
    state = tg.compress(again, spec, **options)
    state.load_state_dict(saved)
    assert run(again, 3, 6) == expected[3:]


def checkpointed(rank: int, folder: str) -> None:
    """torch.distributed.checkpoint keeps every rank's own part."""
    import torch.distributed.checkpoint as dcp

    model = wrapped()
    state = tg.compress(model, "topk:density=0.05", process_group=group())
    backward(model, gradients(rank, 0))
    residual = state.residual("first")
    dcp.save({"compression": state.state_dict()}, checkpoint_id=folder)
    other = tg.compress(wrapped(), "topk:density=0.05", process_group=group())
    wanted = {"compression": other.state_dict()}
    dcp.load(wanted, checkpoint_id=folder)
    other.load_state_dict(wanted["compression"])
    assert torch.equal(other.residual("first"), residual)


def another_world(rank: int) -> None:
    model = wrapped()
    state = tg.compress(model, "topk:density=0.05")
    backward(model, gradients(rank, 0))
    every: list[Any] = [None] * WORLD
    dist.all_gather_object(every, state.state_dict())
    residuals: list[Any] = [None] * WORLD
    dist.all_gather_object(residuals, state.residual("first"))
    pair = dist.new_group([0, 1])
    if rank > 1:
        return
    smaller = DistributedDataParallel(Products(), process_group=pair)
    half = tg.compress(smaller, "topk:density=0.05")
    assert half.world == 2
    try:
        half.load_state_dict(every[rank])
        raise AssertionError("a part was taken for the whole")
    except ValueError as problem:
        assert "what all ranks saved" in str(problem)
    half.load_state_dict(every)
    # What residuals will move the mean by stays the same, but for rounding: their sum over the number of ranks.
    assert torch.allclose(half.residual("first"), (residuals[rank] + residuals[rank + 2]) / 2)
    backward(smaller, gradients(rank, 1))


def pickled(rank: int) -> None:
    model = wrapped()
    state = tg.compress(model, "topk:density=0.05")
    backward(model, gradients(rank, 0))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        copied = pickle.loads(pickle.dumps(state))
    assert any("attach" in str(one.message) for one in caught)
    other = wrapped()
    other.register_comm_hook(copied, tg.comm_hook)
    try:
        backward(other, gradients(rank, 1))
        raise AssertionError("it was used without a group")
    except RuntimeError as problem:
        assert "attach" in str(problem)
    again = wrapped()
    copied.attach(again)
    again.register_comm_hook(copied, tg.comm_hook)
    for one in (model, again):
        backward(one, gradients(rank, 1))
    assert means(model) == means(again)


# ---- The contract of hooks -------------------------------------------------------------------------------------------


def contract(rank: int) -> None:
    model = wrapped(bucket_cap_mb=0.1)
    state = tg.CompressionState(model, "none")
    seen: list[tuple[bool, bool]] = []

    def hook(given: tg.CompressionState, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        future = tg.comm_hook(given, bucket)
        assert isinstance(future, torch._C.Future)  # what torch's own hooks return
        # Nothing is complete before the verdict, and so not before the last bucket was given.
        seen.append((bucket.is_last(), future.done() and not bucket.is_last()))
        return future

    hook.__annotations__ = tg.comm_hook.__annotations__
    model.register_comm_hook(state, hook)
    backward(model, gradients(rank, 1))  # in one bucket; after that they are rebuilt
    seen.clear()
    backward(model, gradients(rank, 0))
    assert len(seen) > 1 and [last for last, _ in seen] == [False] * (len(seen) - 1) + [True], seen
    assert not any(early for _, early in seen)
    for name in SHAPES:  # the mean, in the order of ranks
        total = torch.zeros(SHAPES[name])
        for other in range(WORLD):
            total += gradient(other, 0, name)
        assert torch.equal(getattr(model.module, name).grad, total / WORLD), name


def without_ddp(rank: int) -> None:
    plain, reference = Products(), wrapped()
    state = tg.CompressionState(plain, "topk:density=0.05")
    tg.compress(reference, "topk:density=0.05")
    for step in range(2):
        backward(plain, gradients(rank, step))
        tg.reduce_gradients(None, state)
        backward(reference, gradients(rank, step))
        assert means(plain) == means(reference)
    residual = state.residual("last")
    backward(plain, {name: g for name, g in gradients(rank, 2).items() if name != "last" or rank == 0})
    tg.reduce_gradients(plain.parameters(), state)
    assert plain.last.grad is not None
    assert torch.equal(state.residual("last"), residual) == (rank != 0)
    try:
        tg.reduce_gradients([nn.Parameter(torch.zeros(3))], state)
        raise AssertionError("a stranger was taken")
    except ValueError as problem:
        assert "another model" in str(problem)


def mixed_precision(rank: int) -> None:
    from torch.nn.parallel.distributed import _MixedPrecision

    model = DistributedDataParallel(nn.Linear(200, 100))
    state = tg.compress(model, "qsgd")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        model(torch.full((4, 200), 0.5)).sum().backward()
    assert state.choices[-1].dtype is torch.float32 and state.stats().applied == 1
    mixed = DistributedDataParallel(nn.Linear(200, 100), mixed_precision=_MixedPrecision(param_dtype=torch.bfloat16))
    try:
        tg.compress(mixed, "qsgd")
        raise AssertionError("its own hook would be lost")
    except TypeError as problem:
        assert "torch.autocast" in str(problem)


def local_steps(rank: int) -> None:
    def outer(parameters: list[torch.Tensor]) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=0.7, momentum=0.9, nesterov=True)

    def make() -> tuple[nn.Module, torch.optim.Optimizer, tg.LocalSGD]:
        model = Products()
        local = tg.LocalSGD(model, outer, every=3, spec="topk:density=0.05", process_group=group())
        return model, torch.optim.SGD(model.parameters(), lr=0.1), local

    def train(model: nn.Module, optimizer: torch.optim.Optimizer, local: tg.LocalSGD, first: int, last: int) -> list[bool]:
        common = []
        for step in range(first, last):
            backward(model, gradients(rank, step))
            optimizer.step()
            common.append(local.step())
        return common

    model, optimizer, local = make()
    assert train(model, optimizer, local, 0, 6) == [False, False, True] * 2
    saved = copy.deepcopy(local.state_dict())
    train(model, optimizer, local, 6, 9)
    mine = {name: bits(p) for name, p in model.named_parameters()}
    assert any(p.any() for p in model.parameters())
    every: list[Any] = [None] * WORLD
    dist.all_gather_object(every, mine)
    assert all(one == mine for one in every)
    again, optimizer, local = make()
    local.load_state_dict(saved)
    train(again, optimizer, local, 6, 9)
    assert {name: bits(p) for name, p in again.named_parameters()} == mine


# ---- Finding errors --------------------------------------------------------------------------------------------------


def differing_parameters(rank: int) -> None:
    model = wrapped()
    state = tg.compress(model, "topk:density=0.05", check=True)
    backward(model, gradients(rank, 0))
    if rank == 2:
        with torch.no_grad():
            model.module.small[3, 3] += 1
    try:
        backward(model, gradients(rank, 1))
        raise AssertionError("it was not noticed")
    except RuntimeError as problem:
        assert "small differs between rank 0 and rank 2" in str(problem), problem
    assert state.world == WORLD


def differing_settings(rank: int) -> None:
    model = wrapped()
    tg.compress(model, "topk:density=0.05" if rank != 1 else "topk:density=0.06")
    try:
        backward(model, gradients(rank, 0))
        raise AssertionError("it was not noticed")
    except RuntimeError as problem:
        assert "codec" in str(problem), problem


def by_one_collective(rank: int) -> None:
    """Verdicts as they are found among many ranks: by an all_reduce."""
    expected = hook_bits(rank, "topk:density=0.05", "ef", "shard", "float32", 2)
    usual, exchange.MOST_AT_ONCE = exchange.MOST_AT_ONCE, 1
    try:
        assert exchange.GlooWire(group()).minimum
        assert hook_bits(rank, "topk:density=0.05", "ef", "shard", "float32", 2) == expected
        not_finite(rank)
    finally:
        exchange.MOST_AT_ONCE = usual


def statistics(rank: int) -> None:
    model = wrapped()
    state = tg.compress(model, "topk:density=0.05", log_every=2)
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("tersegrad")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    for step in range(3):
        backward(model, gradients(rank, step))
    logger.removeHandler(handler)
    assert [line.split(":")[0] for line in lines] == (["step 2"] if rank == 0 else []), lines
    stats = state.stats()
    assert (stats.steps, stats.applied, stats.skipped) == (3, 3, 0)
    first = stats.parameters["first"]
    assert first.steps == 3 and first.ratio > 10 and first.residual_norm > 0 and first.error > 0
    assert 0 < stats.bytes_sent < stats.dense_bytes and stats.seconds["encode"] > 0

    class Writer:
        names: list[str] = []

        def add_scalar(self, name: str, value: float, step: int) -> None:
            assert step == 3
            self.names.append(name)

    writer = Writer()
    state.write_to(writer)
    assert "tersegrad/ratio" in writer.names


def dies(rank: int, victim: int) -> str:
    """One rank ends in the middle of a step."""
    model = wrapped(bucket_cap_mb=0.1)
    state = tg.compress(model, "topk:density=0.05", timeout=120)
    backward(model, gradients(rank, 0))
    if rank == victim:
        model.module.first.register_hook(lambda _: os._exit(9))
    start = time.monotonic()
    try:
        backward(model, gradients(rank, 1))
    except RuntimeError as problem:
        in_time(start, 120)
        text = str(problem)
        try:
            backward(model, gradients(rank, 2))
        except RuntimeError as second:
            assert "restart from a checkpoint" in str(second), second
            return text
        raise AssertionError("another step was begun") from None
    finally:
        del state
    raise AssertionError("nothing was noticed")


