# SPDX-License-Identifier: Apache-2.0
"""FSDP2 (`fully_shard`): gradients are scattered compressed, module by module, in torch's own backward pass.

torch hands each module's gradients to `FSDPModule.set_custom_reduce_scatter` as one flat tensor: for every rank its part
of each parameter, padded to the same length, without names. Here they are put together again, parameter by parameter,
so that codecs see what they would see without sharding and residuals belong to names.
"""

from __future__ import annotations

import atexit
import logging
import math
import time
import weakref
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import accumulate
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from .._library import tg_tensor
from ..checked import whole
from ..errors import Error
from ..reducer import Reducer, TensorSpec
from ..spec import FeedbackSpec, Spec
from .behind import Behind
from .checkpoint import template
from .exchange import Wire, alike, check_unshared, open_wire
from .log import say, warn_once
from .options import check_common, densities, duration, name_options
from .policy import DTYPES, Choice, Policy, Rule, parameters_of
from .staging import pinned
from .state import VERSION, CompressionState, _own_group, follow_scale, state_list
from .stats import Stats, collect, log_line, together
from .turns import claim_for_pass, release
from .worker import MOST_UNDER_WAY, RECOVERABLE, leave

_log = logging.getLogger("tersegrad")
DEFAULT_SPEC = "qsgd"
"""Unbiased, so that it does without feedback, whose residuals are as large as the whole gradient on every rank."""

_states: weakref.WeakSet[ShardedCompression] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    # A thread that the interpreter ends inside of torch takes the process with it.
    for state in list(_states):
        if state._behind.close() and state._broken is None:
            state._wire.close()
        else:
            leave(state._wire)


def is_sharded(model: nn.Module) -> bool:
    """`fully_shard` was applied to it, or to a part of it."""
    try:
        from torch.distributed.fsdp import FSDPModule
    except ImportError:  # torch before 2.6
        return False
    return any(isinstance(module, FSDPModule) for module in model.modules())


def _require(name: str) -> None:
    from torch.distributed.fsdp import FSDPModule

    if not hasattr(FSDPModule, name):
        raise RuntimeError(
            f"torch {torch.__version__} has no FSDPModule.{name}, which compressing the gradients of fully_shard needs: "
            "torch 2.13 has it"
        )


def _known(thing: Any, name: str) -> Any:
    """What torch has for its own use alone: another version may not have it."""
    if not hasattr(thing, name):
        raise RuntimeError(
            f"torch {torch.__version__} is not known to tersegrad's FSDP2 support: its {type(thing).__name__} has no {name}. "
            "torch 2.13 is known"
        )
    return getattr(thing, name)


@dataclass(frozen=True)
class Part:
    """One parameter in the flat tensors of its module."""

    choice: Choice
    padded: int
    """Elements that each rank has of it, with padding."""
    boundaries: tuple[int, ...]
    """Where the parts of the ranks begin, without padding, and the end."""

    def tensor(self, insist: bool, count: int | None = None) -> TensorSpec:
        """For a reducer: all of it, cut at the boundaries; or `count` elements of it."""
        whole = self.choice.tensor(insist)
        return replace(whole, boundaries=self.boundaries) if count is None else replace(whole, count=count)


@dataclass(frozen=True)
class _Options:
    seed: int
    nonfinite: str
    insist: bool
    scaler: Any
    reducer: dict[str, Any]


def _groups(module: Any) -> list[Any]:
    """torch's own record of what a module exchanges together."""
    state = _known(module, "_get_fsdp_state")()
    groups = getattr(state, "_fsdp_param_groups", None)
    if groups is None:
        group = _known(state, "_fsdp_param_group")
        groups = [] if group is None else [group]
    return list(groups)


def _part(choice: Choice, record: Any, world: int, dtype: torch.dtype) -> Part:
    """How torch cuts it: by rows, or evenly along another dimension."""
    size = _known(record, "_orig_size")  # of what FSDP shards: where tensor parallelism has cut it before, a part of the parameter
    rows = size[0] if _known(record, "fsdp_placement").dim == 0 else world
    row = size.numel() // rows if rows else 0
    each = -(-rows // world)
    boundaries = tuple(min(rank * each, rows) * row for rank in range(world + 1))
    return Part(replace(choice, count=size.numel(), dtype=dtype), each * row, boundaries)


class _Unit:
    """One FSDP module. Torch calls it where it would call dist.reduce_scatter_tensor."""

    def __init__(
        self, owner: ShardedCompression, name: str, parts: Sequence[Part], records: Sequence[Any], dtype: torch.dtype, number: int
    ) -> None:
        self.name, self.parts, self.dtype = name, list(parts), dtype
        self._records = list(records)
        self.step, self.wait_seconds = 0, 0.0
        self._owner, self._ranks = owner, owner._shard_ranks
        self._shard, self._cards = owner._shard, len(owner._shard_ranks)
        self._starts = [0, *accumulate(part.padded for part in self.parts)]
        self.seed = (owner._options.seed + 0x9E3779B97F4A7C15 * number) % 2**64  # no two modules have the same draws
        self.reducer = self._make(owner)

    def _make(self, owner: ShardedCompression) -> Reducer:
        insist = owner._options.insist
        if owner._hosts is None:
            tensors = [part.tensor(insist) for part in self.parts]
        else:
            sizes = [part.boundaries[self._shard + 1] - part.boundaries[self._shard] for part in self.parts]
            tensors = [part.tensor(insist, size) for part, size in zip(self.parts, sizes)]
        nonfinite = "drop" if owner._options.nonfinite == "drop" else "stop"
        algorithm = "scatter" if owner._hosts is None else "auto"
        fixed: dict[str, Any] = {"algorithm": algorithm, "nonfinite": nonfinite, "seed": self.seed, "minimum": owner._wire.minimum}
        return Reducer(owner.rank, owner.world, tensors, **fixed, **owner._options.reducer)

    # ---- What torch calls --------------------------------------------------------------------------------------------

    def allocate(self, size: Sequence[Any], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """Memory for a flat tensor."""
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, group: Any, op: Any, async_op: bool = False
    ) -> None:
        """Reduce-scatter: this rank's part of the mean of all ranks' gradients, times what `op` makes of a mean."""
        owner = self._owner
        try:
            factor = _factor(op, self._cards)
            ranks = dist.get_process_group_ranks(group)
            if ranks != self._ranks:
                raise RuntimeError(f"the gradients of {self._title} are sharded over ranks {ranks}, and were over {self._ranks}")
            self._check(input_tensor, self._cards * self._starts[-1])
            claim_for_pass(self._live()._given, owner)
            may_follow = self._may_follow(output_tensor, op)
        except BaseException:
            owner._behind.wait()  # the pass ends here, and nothing goes on behind it
            release(owner._given, owner)
            raise

        def work() -> None:
            self._scatter(self._live(), output_tensor, input_tensor, factor)

        if may_follow:
            owner._behind.start(work)
        else:
            owner._behind.finish()  # the wire and the host's memory serve one module at a time
            work()

    def _may_follow(self, output: torch.Tensor, op: Any) -> bool:
        """Nobody looks at the output before the backward pass ends. After SUM torch divides it, and it may add it to a
        gradient or hand it to hooks at once. On cards it would have to be ordered among their streams."""
        if output.device.type != "cpu" or op == dist.ReduceOp.SUM:
            return False
        return all(
            record.sharded_param.grad is None
            and getattr(record, "orig_dtype", None) is output.dtype  # it has one since the first forward
            and not getattr(record, "offload_to_cpu", True)
            and not getattr(record.sharded_param, "_post_accumulate_grad_hooks", None)
            for record in self._records
        )

    def _scatter(self, owner: ShardedCompression, output_tensor: torch.Tensor, input_tensor: torch.Tensor, factor: float) -> None:
        host = owner._staging(input_tensor, input_tensor.numel())
        rows = input_tensor.view(self._cards, -1)
        regions = []
        for part, start in zip(self.parts, self._starts):
            region = host[self._cards * start : self._cards * (start + part.padded)]
            region.view(self._cards, -1).copy_(rows[:, start : start + part.padded])
            regions.append(region)
        if not self._reduce(owner, regions):
            output_tensor.fill_(math.nan)
            return
        for part, start, region in zip(self.parts, self._starts, regions):
            own = region[part.boundaries[self._shard] : part.boundaries[self._shard + 1]]
            output_tensor[start : start + own.numel()].copy_(own)
            output_tensor[start + own.numel() : start + part.padded].zero_()
        if factor != 1.0:
            output_tensor.mul_(factor)

    def between_hosts(self, reduce_output: torch.Tensor) -> None:
        """All-reduce hook: the mean over hosts of what this rank has after the reduce-scatter."""
        self._check(reduce_output, self._starts[-1])
        owner = self._live()
        claim_for_pass(owner._given, owner)
        on_host = reduce_output.device.type == "cpu"
        host = reduce_output if on_host else owner._staging(reduce_output, reduce_output.numel())
        if not on_host:
            host.copy_(reduce_output)
        if not self._reduce(owner, [host[start:] for start in self._starts[:-1]]):
            reduce_output.fill_(math.nan)
        elif not on_host:
            reduce_output.copy_(host)

    # ---- One step ----------------------------------------------------------------------------------------------------

    @property
    def _title(self) -> str:
        return f"module {self.name!r}" if self.name else "the root module"

    def _live(self) -> ShardedCompression:
        self._owner._usable()
        return self._owner

    def _check(self, flat: torch.Tensor, due: int) -> None:
        if flat.numel() != due:
            raise RuntimeError(
                f"{self._title} reduces {flat.numel()} elements where its trained parameters have {due} with padding: some "
                "got no gradient, or were frozen or added after compress. Call "
                "model.set_reduce_scatter_unused_params(True) where parameters may be unused"
            )
        if flat.dtype is not self.dtype:
            raise TypeError(f"the gradients of {self._title} arrive as {flat.dtype}, and {self.dtype} was expected")

    def _reduce(self, owner: ShardedCompression, regions: Sequence[torch.Tensor]) -> bool:
        """False if the step was not applied on any rank, because a gradient is not finite."""
        try:
            owner._follow_scale()
            self._exchange(owner._wire, [region.data_ptr() for region in regions])
        except Error as problem:
            name_options(problem, CompressionState._others)
            if problem.status not in RECOVERABLE:
                owner._broken = problem
            if problem.status not in RECOVERABLE or owner._options.nonfinite != "propagate":
                raise
            _log.info("%s", problem)
            return False
        except BaseException as problem:
            owner._broken = problem
            raise
        finally:
            self.step += 1
        owner._reduced()
        return True

    def _exchange(self, wire: Wire, addresses: Sequence[int]) -> None:
        """A whole reduction, on this thread."""
        reduction = self.reducer.begin(self.step)
        under_way: deque[Any] = deque()
        try:
            for i, (address, tensor) in enumerate(zip(addresses, self.reducer.tensors)):
                reduction.ready(i, tg_tensor(address, tensor.count, tensor.dtype))
            while True:
                raw = reduction.next() if len(under_way) < MOST_UNDER_WAY else None
                if raw is not None:
                    under_way.append(wire.start(raw))
                elif under_way:
                    pending = under_way.popleft()
                    start = time.perf_counter()
                    pending.wait()
                    self.wait_seconds += time.perf_counter() - start
                    reduction.feed(pending.raw)
                else:
                    break
        except BaseException:
            reduction.abandon()
            self.reducer.forget()  # the wire may still write to its memory
            raise
        reduction.end()


def _factor(op: Any, world: int) -> float:
    """What a mean is to be multiplied by."""
    if op == dist.ReduceOp.AVG:
        return 1.0
    if op == dist.ReduceOp.SUM:
        return float(world)
    if op == dist.ReduceOp.PREMUL_SUM and hasattr(op, "__getstate__"):
        premultiplied = op.__getstate__()[1]
        return float(premultiplied) * world
    raise ValueError(f"a reduce-scatter with {op} cannot be compressed: it must be AVG, SUM or PREMUL_SUM")


class ShardedCompression:
    """Compresses the gradients of a model that `fully_shard` was applied to. Made by `compress`.

    model          after all calls of fully_shard, before the first forward
    spec           None: 'qsgd', which is unbiased and needs no feedback
    feedback       as for CompressionState. What it keeps is as large as the whole gradient on every rank, so that memory
                   no longer shrinks with the number of ranks: `explain` says how much it is
    hosts          a process group, or a one-dimensional DeviceMesh: the ranks of other hosts with the same shard. Then
                   torch reduces within a host as usual, and only what goes between hosts is compressed, with residuals of
                   the size of a shard. The model is sharded over the cards of one host:

                       mesh = init_device_mesh("cuda", (2, 8), mesh_dim_names=("hosts", "cards"))
                       fully_shard(model, mesh=mesh["cards"])
                       tersegrad.compress(model, hosts=mesh["hosts"])

    device         'cpu', 'cpu:threads=4'; 'auto' is 'cpu': gradients on cards are staged through pinned host memory
    log_every      as for CompressionState; a line follows the last module of a backward pass
    rules, min_size, exclude, exclude_norms, warmup, schedule, seed, nonfinite, scaler, insist, process_group, timeout
                   as for CompressionState

    Modules in which nothing is compressed are left to torch, unless hosts is given.

    Every module is reduced by itself: 'propagate' gives NaN to all ranks in the module where a gradient is not finite. On
    the CPU a module is reduced while the backward pass goes on to the next, and backward() returns when all are done; but
    the pass waits for a module's exchange where torch looks at the result at once: where gradients are accumulated, are
    of another dtype than the parameters or are summed and then divided (float16), where a parameter has hooks for its
    gradient, between hosts, and on cards.
    """

    def __init__(
        self,
        model: nn.Module,
        spec: str | Spec | None = None,
        *,
        feedback: str | FeedbackSpec | None = None,
        hosts: Any = None,
        rules: Mapping[str, Rule] | Sequence[tuple[str, Rule]] = (),
        min_size: int = 10_000,
        exclude: Iterable[str] = (),
        exclude_norms: bool = True,
        warmup: int = 0,
        schedule: Iterable[tuple[int, float]] = (),
        seed: int = 0,
        nonfinite: str = "propagate",
        scaler: Any = None,
        log_every: int = 0,
        insist: bool = False,
        process_group: dist.ProcessGroup | None = None,
        timeout: timedelta | float | None = None,
        device: str = "auto",
    ) -> None:
        check_common(seed, warmup, nonfinite, scaler)
        if device.startswith("cuda"):
            raise ValueError(f"device is {device!r}: with fully_shard, the host compresses: it must be 'auto' or 'cpu'")
        if not (hosts is None or isinstance(hosts, dist.ProcessGroup) or hasattr(hosts, "get_group")):
            raise TypeError(
                "with fully_shard, hosts is a process group or a one-dimensional DeviceMesh, such as mesh['hosts'], "
                f"with the ranks of other hosts that have the same shard, not {hosts!r}"
            )
        _require("set_custom_reduce_scatter" if hosts is None else "set_all_reduce_hook")
        self.policy = Policy.of(DEFAULT_SPEC if spec is None else spec, feedback, rules, min_size, exclude, exclude_norms)
        wait = duration(timeout)
        reducer = {
            "warmup": warmup,
            "schedule": densities(schedule, self.policy),
            "device": "cpu" if device == "auto" else device,
        }
        self._options = _Options(seed, nonfinite, insist, scaler, reducer)
        self._hosts = hosts if hosts is None or isinstance(hosts, dist.ProcessGroup) else hosts.get_group()
        self._log_every, self._passes = whole("log_every", log_every), 0
        self._loss_scale = 0.0
        self._broken: BaseException | None = None
        self._host: dict[torch.dtype, torch.Tensor] = {}
        found = _modules(model)
        self.policy.check_patterns(model)
        self._shard_ranks = dist.get_process_group_ranks(_shard_group(found))
        self._shard = self._shard_ranks.index(dist.get_rank())
        parent = self._hosts if self._hosts is not None else _shard_group(found)
        if process_group is not None:
            check_unshared(process_group, parent, _shard_group(found))
        self._given = process_group
        group = process_group if process_group is not None else _own_group(parent, wait)
        if dist.get_process_group_ranks(group) != dist.get_process_group_ranks(parent):
            raise ValueError("process_group must have the ranks that the gradients are exchanged among, in their order")
        self.rank, self.world = dist.get_rank(group), dist.get_world_size(group)
        self._wire: Wire = open_wire(group)
        alike(self._wire, {"nonfinite": nonfinite, "scaler": scaler is not None})
        self._behind = Behind("tersegrad")
        _states.add(self)
        self.choices: list[Choice] = []
        self._units: dict[str, _Unit] = {}
        self._install(model, found)

    # ---- Setting up --------------------------------------------------------------------------------------------------

    def _install(self, model: nn.Module, found: Sequence[tuple[str, Any, Any]]) -> None:
        names = {id(parameter): (name, norm) for name, parameter, norm in parameters_of(model)}
        for number, (prefix, module, group) in enumerate(found):
            parts, records, dtype = [], [], None
            for record in _known(group, "fsdp_params"):
                parameter = _known(record, "sharded_param")
                if not parameter.requires_grad:
                    continue
                if id(parameter) not in names:
                    raise RuntimeError("compress was called while parameters are gathered: call it before the first forward")
                name, norm = names[id(parameter)]
                policy = getattr(record, "mp_policy", None) or _known(group, "mp_policy")  # of each one since torch 2.15
                dtype = policy.reduce_dtype or policy.param_dtype or parameter.dtype
                if dtype not in DTYPES:
                    raise TypeError(f"{name} is reduced as {dtype}: only float32, float16 and bfloat16 can be compressed")
                choice = self.policy.choose(name, parameter, norm)
                parts.append(_part(choice, record, len(self._shard_ranks), dtype))
                records.append(record)
            self.choices += [part.choice for part in parts]
            plain = not any(part.choice.compressed for part in parts)
            if dtype is None or (plain and self._hosts is None):  # between hosts, torch reduces nothing by itself
                continue
            unit = _Unit(self, prefix, parts, records, dtype, number)
            if self._hosts is None:
                module.set_custom_reduce_scatter(unit)
            else:
                module.set_all_reduce_hook(unit.between_hosts)
            self._units[prefix] = unit

    def _staging(self, like: torch.Tensor, count: int) -> torch.Tensor:
        """Host memory that all modules use, one after the other."""
        host = self._host.get(like.dtype)
        if host is None or host.numel() < count:
            on_card = like.device.type != "cpu"
            if on_card and host is None:
                warn_once(f"gradients on {like.device} are compressed on the host, through pinned memory")
            host = pinned(count, like.dtype) if on_card else torch.empty(count, dtype=like.dtype)
            self._host[like.dtype] = host
        return host[:count]

    def _follow_scale(self) -> None:
        scaler = self._options.scaler
        if scaler is None or not scaler.is_enabled():
            return
        scale = float(scaler.get_scale())
        if self._loss_scale not in (0.0, scale):
            follow_scale([unit.reducer for unit in self._units.values()], scale / self._loss_scale, self._wire)
        self._loss_scale = scale

    def _reduced(self) -> None:
        """A module is done: a line, where it was the last of its pass."""
        passes = min(unit.step for unit in self._units.values())
        if passes == self._passes:
            return
        self._passes = passes
        if self._log_every and self.rank == 0 and passes % self._log_every == 0:
            say(log_line, self._stats)

    def _usable(self) -> None:
        if self._broken is not None:
            raise RuntimeError(
                "an earlier exchange failed, so ranks may not know the same any more: restart from a checkpoint "
                f"({self._broken})"
            ) from self._broken

    def _between_steps(self) -> None:
        self._behind.wait()
        self._usable()

    # ---- State -------------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """This rank's residuals and counters by module, between steps; each knows the names of its parameters. For
        torch.save, one file for each rank, and for torch.distributed.checkpoint: the keys name the shard and the rank."""
        self._between_steps()
        modules = {
            name: {"step": unit.step, "state": torch.frombuffer(bytearray(unit.reducer.save()), dtype=torch.uint8)}
            for name, unit in self._units.items()
        }
        own = {"loss_scale": self._loss_scale, "modules": modules}
        return {"version": VERSION, "world": self.world, "ranks": {self._key(self.rank): own}}

    def _key(self, rank: int) -> str:
        return str(rank) if self._hosts is None else f"{rank}, shard {self._shard} of {len(self._shard_ranks)}"

    def load_state_dict(self, saved: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> None:
        """Takes a state back: what this rank saved, or a list of what all ranks saved, which is needed where their number
        has changed. Between hosts, the number of shards must be the same."""
        self._between_steps()
        every = state_list(saved)
        if any(one.get("version") != VERSION or "ranks" not in one for one in every):
            raise ValueError(f"this is not a state of version {VERSION} that ShardedCompression.state_dict made")
        world = int(every[0]["world"])
        ranks: dict[str, Any] = {key: own for one in every for key, own in one["ranks"].items()}
        wanted = self._heirs(world)
        missing = [key for key in wanted if key not in ranks]
        if missing:
            raise ValueError(
                f"rank {self.rank} of {self.world} needs the state of rank {missing[0]} of {world}: give load_state_dict a "
                "list of what all ranks saved"
            )
        for name in self._units:
            if any(name not in own["modules"] for own in ranks.values()):
                raise ValueError(f"the state has nothing for module {name!r}")
        self._load([ranks[key]["modules"] for key in wanted])
        for name, unit in self._units.items():
            unit.step = max(int(own["modules"][name]["step"]) for own in ranks.values())
        self._loss_scale = float(next(iter(ranks.values()))["loss_scale"])

    def _load(self, wanted: Sequence[Mapping[str, Any]]) -> None:
        """Into all modules or, where one refuses it, into none."""
        before = [unit.reducer.save() for unit in self._units.values()]
        try:
            for name, unit in self._units.items():
                unit.reducer.load([modules[name]["state"].cpu().numpy() for modules in wanted])
        except BaseException:
            for unit, own in zip(self._units.values(), before):
                unit.reducer.load([own])
            raise

    def _heirs(self, world: int) -> list[str]:
        """What this rank takes over from another world."""
        return [self._key(rank) for rank in range(self.rank, world, self.world)]

    def checkpoint_template(self, checkpoint: Any, key: str = "compression") -> dict[str, Any]:
        """As that of a CompressionState."""
        self._between_steps()
        # Between hosts there are as many keys as ranks and shards.
        shards = len(self._shard_ranks) if self._hosts is not None else 1
        return template(checkpoint, key, lambda ranks, _: self._heirs(len(ranks) // shards))

    # ---- Seeing it work ----------------------------------------------------------------------------------------------

    def residual(self, name: str) -> torch.Tensor:
        """A copy of a parameter's residual on this rank: flat, of the whole parameter, or between hosts of its shard."""
        self._between_steps()
        for unit in self._units.values():
            for i, part in enumerate(unit.parts):
                if part.choice.name == name:
                    return torch.from_numpy(unit.reducer.residual(i))
        raise KeyError(f"no module that is compressed has a trained parameter {name!r}")

    def stats(self) -> Stats:
        """What was sent so far on this rank, per parameter and in total. Between steps."""
        self._between_steps()
        return self._stats()

    def _stats(self) -> Stats:
        return together(
            [
                collect(unit.reducer, [part.choice for part in unit.parts], unit.wait_seconds, unit.step)
                for unit in self._units.values()
            ]
        )

    def write_to(self, writer: Any, step: int | None = None, prefix: str = "tersegrad") -> None:
        """The totals of `stats` as scalars of a torch.utils.tensorboard.SummaryWriter."""
        stats = self.stats()
        for name, value in stats.scalars().items():
            writer.add_scalar(f"{prefix}/{name}", value, stats.steps if step is None else step)


def _modules(model: nn.Module) -> list[tuple[str, Any, Any]]:
    """(name, module, torch's record of its parameters) of all FSDP modules, the last first."""
    from torch.distributed.fsdp import FSDPModule

    result = []
    for name, module in model.named_modules():
        if not isinstance(module, FSDPModule):
            continue
        for group in _groups(module):
            if not hasattr(_known(group, "mesh_info"), "shard_process_group"):
                raise TypeError(
                    "replicate was applied to this model, which is not sharded then, and torch has no hook for its "
                    "gradients that compress could use: wrap it in DistributedDataParallel instead"
                )
            if _known(group, "_is_hsdp"):
                raise TypeError(
                    "this model is sharded over a mesh of two dimensions: torch then reduces between hosts by itself, "
                    "before any hook. Shard over the inner dimension, fully_shard(model, mesh=mesh['cards']), and call "
                    "compress(model, hosts=mesh['hosts'])"
                )
            result.append((name.replace("_orig_mod.", ""), module, group))
    if not result:
        raise ValueError("the model has no parameters that fully_shard has sharded")
    return result[::-1]


def shards_of(model: nn.Module) -> int:
    """Among how many ranks fully_shard has divided the model; 1 if it has not."""
    return len(dist.get_process_group_ranks(_shard_group(_modules(model)))) if is_sharded(model) else 1


def _shard_group(found: Sequence[tuple[str, Any, Any]]) -> Any:
    groups = [_known(_known(group, "mesh_info"), "shard_process_group") for _, _, group in found]
    ranks = {tuple(dist.get_process_group_ranks(group)) for group in groups}
    if len(ranks) > 1:
        raise TypeError(f"modules are sharded over different ranks, {sorted(ranks)}: all must be sharded over the same")
    return groups[0]
