# SPDX-License-Identifier: Apache-2.0
"""What ranks do in test_fsdp.py: every function here runs on each of four real ranks."""

from __future__ import annotations

import io
import os
import re
import threading
from typing import Any

import cases
import tersegrad
import tersegrad.torch as tg
import torch
import torch.distributed as dist
from tersegrad.torch import fsdp
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Shard

WORLD = 4
# Rows that four ranks cannot share evenly: 2, 2, 1, none; 3, 3, 3, 1; and 1, 1, none, none.
SHAPES = {"five": (5, 3000), "ten": (10, 7, 33), "two": (2, 999), "many": (1001, 64), "bias": (7,)}
NAMES = {"inner": ("five", "ten", "bias"), "": ("two", "many")}
_meshes: dict[tuple[int, ...], Any] = {}


def mesh(*shape: int) -> Any:
    """Made once: a mesh has process groups."""
    if shape not in _meshes:
        _meshes[shape] = init_device_mesh("cpu", shape, mesh_dim_names=("hosts", "cards")[-len(shape) :])
    return _meshes[shape]


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        for name in NAMES["inner"]:
            setattr(self, name, nn.Parameter(torch.zeros(SHAPES[name])))

    def forward(self, given: dict[str, torch.Tensor]) -> torch.Tensor:
        return torch.stack([(getattr(self, name) * given[name]).sum() for name in NAMES["inner"] if name in given]).sum()


class Products(nn.Module):
    """The gradient of each parameter is exactly what is given for it; the inner module is reduced by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Inner()
        for name in NAMES[""]:
            setattr(self, name, nn.Parameter(torch.zeros(SHAPES[name])))

    def forward(self, given: dict[str, torch.Tensor]) -> torch.Tensor:
        outer = torch.stack([(getattr(self, name) * given[name]).sum() for name in NAMES[""]]).sum()
        return outer + self.inner(given)


def gradient(rank: int, step: int, name: str) -> torch.Tensor:
    seed = 1000 * step + 10 * rank + list(SHAPES).index(name)
    return 0.01 * torch.randn(SHAPES[name], generator=torch.Generator().manual_seed(seed))


def gradients(rank: int, step: int) -> dict[str, torch.Tensor]:
    return {name: gradient(rank, step, name) for name in SHAPES}


def sharded(over: Any = None, **options: Any) -> Any:
    model = Products()
    over = mesh(WORLD) if over is None else over
    fully_shard(model.inner, mesh=over, **options)
    fully_shard(model, mesh=over, **options)
    return model


def backward(model: nn.Module, given: dict[str, torch.Tensor]) -> None:
    model.zero_grad(set_to_none=True)
    model(given).backward()


def shards(model: nn.Module) -> dict[str, torch.Tensor]:
    """This rank's part of every gradient."""
    return {
        name.split(".")[-1]: p.grad.to_local().clone() for name, p in model.named_parameters() if isinstance(p.grad, DTensor)
    }


def part(whole: torch.Tensor, rank: int, world: int = WORLD) -> torch.Tensor:
    """What fully_shard gives a rank of a tensor."""
    parts = list(torch.chunk(whole, world, dim=0))
    return parts[rank] if rank < len(parts) else whole[:0]


def mean(step: int, name: str) -> torch.Tensor:
    return torch.stack([gradient(rank, step, name) for rank in range(WORLD)]).mean(0)


# ---- The same bits as the C reducer ----------------------------------------------------------------------------------


def unit_bits(rank: int, spec: str, feedback: str, dtype: str, steps: int) -> dict[str, Any]:
    kind = getattr(torch, dtype)
    model = sharded(mp_policy=MixedPrecisionPolicy(reduce_dtype=kind))
    state = tg.compress(model, spec, feedback=feedback, seed=7, insist=True, min_size=1000, process_group=cases.group())
    assert isinstance(state, tg.ShardedCompression)
    found: list[dict[str, bytes]] = []
    for step in range(steps):
        backward(model, gradients(rank, step))
        found.append({name: cases.bits(value) for name, value in shards(model).items()})
    tensors = {name: (unit.seed, [p.tensor(True) for p in unit.parts]) for name, unit in state._units.items()}
    return {"found": found, "tensors": {name: (seed, [pickable(t) for t in own]) for name, (seed, own) in tensors.items()}}


def pickable(tensor: Any) -> tuple[Any, ...]:
    return tensor.name, tensor.count, int(tensor.dtype), str(tensor.spec), str(tensor.feedback), tensor.boundaries


# ---- Training --------------------------------------------------------------------------------------------------------


def small_model(over: Any = None) -> nn.Module:
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(20, 130), nn.Tanh(), nn.Linear(130, 131), nn.Tanh(), nn.Linear(131, 3))
    for layer in (model[0], model[2]):
        fully_shard(layer, mesh=mesh(WORLD) if over is None else over)
    fully_shard(model, mesh=mesh(WORLD) if over is None else over)
    return model


def train(rank: int, model: nn.Module, steps: int = 60) -> list[float]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    losses = []
    for step in range(steps):
        draw = torch.Generator().manual_seed(1000 * step + rank)
        x = torch.randn(16, 20, generator=draw)
        loss = nn.functional.cross_entropy(model(x), (x[:, 0] > 0).long() + (x[:, 1] > 0.5).long())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total = loss.detach().clone()
        dist.all_reduce(total)
        losses.append(float(total) / WORLD)
    return losses


def training(rank: int) -> None:
    dense = train(rank, small_model())
    model = small_model()
    state = tg.compress(model, min_size=1000, process_group=cases.group())  # two lines, the default spec
    losses = train(rank, model)
    assert dense[-1] < 0.7 * dense[0], dense
    assert abs(losses[-1] - dense[-1]) < 0.1 * dense[-1], (losses[-1], dense[-1])
    assert losses != dense
    stats = state.stats()
    assert stats.ratio > 4 and stats.bytes_sent < stats.dense_bytes / 3, stats
    assert stats.algorithm == "scatter" and stats.applied == 2 * 60, stats  # torch has the last layer
    assert stats.parameters["2.weight"].spec.startswith("qsgd") and stats.parameters["2.weight"].feedback == "none"
    assert stats.parameters["2.bias"].spec == "none"


def hosts(rank: int) -> None:
    """Two hosts of two cards: torch reduces within a host, and what goes between hosts is compressed."""
    both = mesh(2, 2)
    dense = train(rank, small_model())
    model = small_model(both["cards"])
    state = tg.compress(model, "topk:density=0.25", hosts=both["hosts"], min_size=1000)
    losses = train(rank, model)
    assert abs(losses[-1] - dense[-1]) < 0.15 * dense[-1], (losses[-1], dense[-1])
    stats = state.stats()
    assert stats.algorithm == "gather" and stats.ratio > 2, stats
    assert state.residual("2.weight").numel() == (66, 65)[both["cards"].get_local_rank()] * 130
    assert state.residual("2.weight").norm() > 0
    for name, parameter in model.named_parameters():  # also of the layer that is too small to be compressed
        copies: list[Any] = [None] * WORLD
        dist.all_gather_object(copies, cases.bits(parameter.full_tensor()))  # type: ignore[attr-defined]
        assert len(set(copies)) == 1, name
    saved = state.state_dict()
    state.load_state_dict(saved)
    (key,) = saved["ranks"]
    assert key == f"{both['hosts'].get_local_rank()}, shard {both['cards'].get_local_rank()} of 2"


def hosts_get_the_mean(rank: int) -> None:
    """Uncompressed, it is the mean of all four ranks."""
    both = mesh(2, 2)
    model = sharded(both["cards"])
    tg.compress(model, "none", hosts=both["hosts"], rules={"*": "fp16"})
    assert isinstance(model, FSDPModule)
    backward(model, gradients(rank, 0))
    for name, found in shards(model).items():
        expected = part(mean(0, name), both["cards"].get_local_rank(), 2)
        torch.testing.assert_close(found, expected, rtol=2e-3, atol=2e-5)


def native_hsdp_is_refused(rank: int) -> None:
    try:
        tg.compress(sharded(mesh(2, 2)), "qsgd")
    except TypeError as problem:
        assert "hosts=mesh['hosts']" in str(problem)
    else:
        raise AssertionError("it was accepted")


# ---- What torch asks for ---------------------------------------------------------------------------------------------


def operations(rank: int) -> None:
    """AVG, a predivided SUM, and PREMUL_SUM: what torch would leave, to rounding; others are refused."""
    for dtype, factor, due in (
        (torch.float32, None, 1.0),
        (torch.float16, None, 1.0),
        (torch.float32, 8.0, 0.5),
        (torch.bfloat16, 2.0, 2.0),
    ):
        model = sharded(mp_policy=MixedPrecisionPolicy(reduce_dtype=dtype))
        tg.compress(model, "none", rules={"*": "fp16"}, process_group=cases.group())
        if factor is not None:
            for module in model.modules():
                if isinstance(module, FSDPModule):
                    module.set_gradient_divide_factor(factor)
        backward(model, gradients(rank, 0))
        for name, found in shards(model).items():
            assert found.dtype is torch.float32
            within = 2e-2 if dtype is torch.bfloat16 else 4e-3
            torch.testing.assert_close(found, due * part(mean(0, name), rank), rtol=within, atol=due * 1e-4)
    unit = next(iter(tg.compress(sharded(), "qsgd", min_size=1000, process_group=cases.group())._units.values()))
    flat = torch.zeros(WORLD * unit._starts[-1])
    for op in (dist.ReduceOp.MAX, dist.ReduceOp.PRODUCT):
        try:
            unit(flat[: unit._starts[-1]], flat, dist.group.WORLD, op)
        except ValueError as problem:
            assert re.search(r"cannot be compressed: it must be AVG, SUM or PREMUL_SUM", str(problem)), problem
        else:
            raise AssertionError(f"{op} was accepted")


def another_dimension(rank: int) -> None:
    """Parameters that are sharded by columns."""
    model = nn.Linear(64, 48, bias=False)
    fully_shard(model, mesh=mesh(WORLD), shard_placement_fn=lambda p: Shard(1))
    tg.compress(model, "none", rules={"*": "fp16"}, process_group=cases.group())
    x = torch.randn(5, 64, generator=torch.Generator().manual_seed(rank))
    model(x).sum().backward()
    each = [
        torch.ones(48, 5) @ torch.randn(5, 64, generator=torch.Generator().manual_seed(other)) for other in range(WORLD)
    ]
    assert isinstance(model.weight.grad, DTensor)
    expected = torch.stack(each).mean(0).chunk(WORLD, dim=1)[rank]
    torch.testing.assert_close(model.weight.grad.to_local(), expected, rtol=2e-3, atol=1e-3)


def not_finite(rank: int) -> None:
    """Every rank gets NaN in that module, and only there; the residual waits."""
    model = sharded()
    state = tg.compress(model, "topk:density=0.1", min_size=1000, process_group=cases.group())
    backward(model, gradients(rank, 0))
    before = state.residual("inner.five")
    given = gradients(rank, 1)
    if rank == 2:
        given["five"][1, 5] = torch.inf
    backward(model, given)
    found = shards(model)
    assert all(bool(found[name].isnan().all()) for name in NAMES["inner"])
    assert all(bool(found[name].isfinite().all()) for name in NAMES[""])
    after = state.residual("inner.five")
    assert bool(after.isfinite().all())
    if rank != 2:
        torch.testing.assert_close(after, before + given["five"].view(-1), rtol=1e-5, atol=1e-6)
    backward(model, gradients(rank, 2))
    assert all(bool(value.isfinite().all()) for value in shards(model).values())
    state = tg.compress(model := sharded(), "qsgd", min_size=1000, nonfinite="raise", process_group=cases.group())
    try:
        backward(model, given)
    except tersegrad.NonFinite as problem:
        assert "inner.five" in str(problem) and "rank 2" in str(problem)
    else:
        raise AssertionError("nothing was raised")


def accumulation(rank: int) -> None:
    """A backward pass without exchange, then one with the sum."""
    model = sharded()
    tg.compress(model, "none", rules={"*": "fp16"}, process_group=cases.group())
    model.set_requires_gradient_sync(False)
    model(gradients(rank, 0)).backward()
    model.set_requires_gradient_sync(True)
    model(gradients(rank, 1)).backward()
    for name, found in shards(model).items():
        torch.testing.assert_close(found, part(mean(0, name) + mean(1, name), rank), rtol=4e-3, atol=1e-4)


def added_up(rank: int) -> None:
    """Two backward passes with an exchange each: torch adds the second result to the first at once."""
    model = sharded()
    tg.compress(model, "none", rules={"*": "fp16"}, process_group=cases.group())
    for step in range(2):
        model(gradients(rank, step)).backward()
    for name, found in shards(model).items():
        torch.testing.assert_close(found, part(mean(0, name) + mean(1, name), rank), rtol=4e-3, atol=1e-4)


def overlapped(rank: int) -> None:
    """A module's exchange does not begin before the backward pass has come to the next module, and still it ends."""
    for held in (False, True):
        model = small_model()
        state = tg.compress(model, min_size=1000, process_group=cases.group())
        unit, reached = state._units["2"], threading.Event()
        exchange, seen = unit._exchange, []

        def hold(wire: Any, addresses: Any) -> None:
            seen.append(reached.wait(60.0))
            exchange(wire, addresses)

        if held:
            unit._exchange = hold  # type: ignore[method-assign]
            model[0].register_forward_hook(lambda *given: given[-1].register_hook(lambda _: reached.set()) and None)
        train(rank, model, steps=1)
        found = {name: cases.bits(shard) for name, shard in shards(model).items()}
        if not held:
            expected = found
    assert seen == [True] and found == expected, seen


def unused(rank: int) -> None:
    """A parameter without gradient is named as the reason; torch can be told to send zeros."""
    given = gradients(rank, 0)
    del given["ten"]
    tg.compress(model := sharded(), "qsgd", min_size=1000, process_group=cases.group())
    try:
        backward(model, given)
    except RuntimeError as problem:
        assert "set_reduce_scatter_unused_params(True)" in str(problem) and "'inner'" in str(problem), problem
    else:
        raise AssertionError("it was accepted")
    tg.compress(model := sharded(), "none", rules={"*": "fp16"}, process_group=cases.group())
    model.set_reduce_scatter_unused_params(True)
    backward(model, given)
    assert not shards(model)["ten"].any() and shards(model)["five"].numel() == part(given["five"], rank).numel()


class Scale:
    """A GradScaler, as far as it is asked."""

    def __init__(self) -> None:
        self.value = 1024.0

    def is_enabled(self) -> bool:
        return True

    def get_scale(self) -> float:
        return self.value


def scaler(rank: int) -> None:
    """Residuals follow the loss scale: gradients of another scale give the same shards in that scale."""
    every = []
    for change in (1.0, 0.5):
        scale = Scale()
        model = sharded()
        tg.compress(model, "topk:density=0.05", min_size=1000, scaler=scale, process_group=cases.group())
        backward(model, gradients(rank, 0))
        scale.value *= change
        backward(model, {name: change * g for name, g in gradients(rank, 1).items()})
        every.append({name: cases.bits(value / change) for name, value in shards(model).items()})
    assert every[0] == every[1]


def dies(rank: int, victim: int) -> str:
    """What the others are told when a rank ends within an exchange."""
    model = sharded()
    state = tg.compress(model, "topk:density=0.05", min_size=1000, timeout=600)
    backward(model, gradients(rank, 0))
    if rank == victim:
        state._units["inner"]._exchange = lambda *_: os._exit(1)  # type: ignore[method-assign]
    problem = ""
    try:
        backward(model, gradients(rank, 1))
    except RuntimeError as caught:
        problem = str(caught)
    unit = state._units["inner"]
    flat = torch.zeros(WORLD * unit._starts[-1])
    try:
        unit(flat[: unit._starts[-1]], flat, dist.group.WORLD, dist.ReduceOp.AVG)
    except RuntimeError as caught:
        assert "restart from a checkpoint" in str(caught), caught
        return problem
    raise AssertionError("it goes on")


# ---- State -----------------------------------------------------------------------------------------------------------


def resumed(rank: int) -> None:
    def run(steps: range, model: Any) -> list[dict[str, bytes]]:
        result = []
        for step in steps:
            backward(model, gradients(rank, step))
            result.append({name: cases.bits(value) for name, value in shards(model).items()})
        return result

    def made() -> tuple[Any, Any]:
        model = sharded()
        return model, tg.compress(model, "topk:density=0.05", min_size=1000, seed=3, process_group=cases.group())

    model, state = made()
    run(range(3), model)
    file = io.BytesIO()
    torch.save(state.state_dict(), file)
    expected = run(range(3, 6), model)
    file.seek(0)
    model, state = made()
    state.load_state_dict(torch.load(file, weights_only=True))
    assert run(range(3, 6), model) == expected
    assert set(state.state_dict()["ranks"][str(rank)]["modules"]) == {"inner", ""}
    model, state = made()
    assert run(range(3, 6), model) != expected
    other = state.state_dict()
    other["ranks"] = {"17": other["ranks"][str(rank)]}
    try:
        state.load_state_dict(other)
    except ValueError as problem:
        assert f"needs the state of rank {rank} of 4" in str(problem)
    else:
        raise AssertionError("the state of another rank was taken")


def another_world(rank: int) -> None:
    """Two ranks go on where four were: what residuals will move the mean by stays the same."""
    model = sharded()
    state = tg.compress(model, "topk:density=0.05", min_size=1000, process_group=cases.group())
    backward(model, gradients(rank, 0))
    every: list[Any] = [None] * WORLD
    dist.all_gather_object(every, (state.state_dict(), state.residual("inner.five")))
    pair = DeviceMesh("cpu", [0, 1])
    if rank < 2:
        fewer = tg.compress(sharded(pair), "topk:density=0.05", min_size=1000)
        fewer.load_state_dict([saved for saved, _ in every])
        expected = (every[rank][1] + every[rank + 2][1]) * 0.5
        torch.testing.assert_close(fewer.residual("inner.five"), expected)
    dist.barrier()


def checkpointed(rank: int, folder: str) -> None:
    """torch.distributed.checkpoint: the keys of ranks do not collide."""
    import torch.distributed.checkpoint as dcp

    def made() -> Any:
        return tg.compress(sharded(), "topk:density=0.05", min_size=1000, process_group=cases.group())

    model = sharded()
    state = tg.compress(model, "topk:density=0.05", min_size=1000, process_group=cases.group())
    backward(model, gradients(rank, 0))
    dcp.save({"compression": state.state_dict()}, checkpoint_id=folder)
    fresh = made()
    target = {"compression": fresh.state_dict()}
    dcp.load(target, checkpoint_id=folder)
    fresh.load_state_dict(target["compression"])
    assert cases.bits(fresh.residual("many")) == cases.bits(state.residual("many"))
    assert cases.bits(fresh.residual("many")) != cases.bits(made().residual("many"))


def explained(rank: int) -> None:
    model = sharded()
    text = str(tg.explain(model, "qsgd", min_size=1000))
    full = sum(4 * torch.Size(SHAPES[name]).numel() for name in ("five", "ten", "two", "many"))
    assert f"feedback 'ef' keeps {full:,} bytes on each of the 4 ranks" in text, text
    assert f"has {full // 4:,}" in text


def other_versions(rank: int) -> None:
    """torch 2.15 keeps the policy of mixed precision with each parameter; what is not known is named."""
    model = sharded(mp_policy=MixedPrecisionPolicy(reduce_dtype=torch.bfloat16))
    groups = [group for _, _, group in fsdp._modules(model)]
    for group in groups:
        for record in group.fsdp_params:
            record.mp_policy = group.mp_policy
        del group.mp_policy
    state = tg.compress(model, "qsgd", min_size=1000, process_group=cases.group())
    assert {choice.dtype for choice in state.choices} == {torch.bfloat16}
    for group in groups:
        for record in group.fsdp_params:
            del record.mp_policy
    known = f"torch {torch.__version__} is not known to tersegrad's FSDP2 support: "
    for name, missing in (("mp_policy", lambda: None), ("fsdp_params", lambda: delattr(groups[0], "fsdp_params"))):
        missing()
        try:
            tg.compress(model, "qsgd", min_size=1000, process_group=cases.group())
        except RuntimeError as problem:
            assert known in str(problem) and f"has no {name}" in str(problem), problem
        else:
            raise AssertionError("it was accepted")
        for group in groups:
            group.mp_policy = MixedPrecisionPolicy()


def lacking(rank: int) -> None:
    """A torch without the hooks: one sentence says so."""
    kept = FSDPModule.set_custom_reduce_scatter, FSDPModule.set_all_reduce_hook
    del FSDPModule.set_custom_reduce_scatter, FSDPModule.set_all_reduce_hook
    try:
        for options, name in (({}, "set_custom_reduce_scatter"), ({"hosts": dist.group.WORLD}, "set_all_reduce_hook")):
            try:
                tg.compress(sharded(), "qsgd", **options)  # type: ignore[arg-type]
            except RuntimeError as problem:
                assert f"torch {torch.__version__} has no FSDPModule.{name}" in str(problem)
            else:
                raise AssertionError("it was accepted")
    finally:
        FSDPModule.set_custom_reduce_scatter, FSDPModule.set_all_reduce_hook = kept  # type: ignore[method-assign]
