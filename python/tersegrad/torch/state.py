# SPDX-License-Identifier: Apache-2.0
"""CompressionState: everything that compressing one model's gradients needs on this rank."""

from __future__ import annotations

import logging
import math
import warnings
import zlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from .._library import Status, tg_tensor
from ..errors import Error, LayoutMismatch
from ..reducer import Reducer
from ..spec import FeedbackSpec, Spec
from .exchange import Wire, open_wire
from .policy import DTYPES, Choice, Policy, Rule, choices_of, parameters_of, wrapper
from .staging import Held, open_reducer
from .stats import Stats, collect, log_line
from .worker import Given, Job, Worker

_log = logging.getLogger("tersegrad")
VERSION = 1


def _own_group(parent: Any, timeout: timedelta | None) -> dist.ProcessGroup:
    """A group of the same ranks. Ours alone: collectives from another thread would reorder those of the user's."""
    ranks = dist.get_process_group_ranks(parent if parent is not None else dist.group.WORLD)
    everyone = len(ranks) == dist.get_world_size()
    # Bytes to be exchanged are in host memory, so it is gloo also where the model's group is NCCL.
    return dist.new_group(ranks, timeout=timeout, backend="gloo", use_local_synchronization=not everyone)


class _Piece:
    """The gradients of one hook call. `held` where they are on a card."""

    def __init__(self, future: Any, buffer: torch.Tensor, held: Held | None) -> None:
        self.future, self.buffer, self.held = future, buffer, held

    def complete(self, means: bool) -> None:
        """With the means, or with NaN in all of them."""
        if self.held is not None:
            self.held.complete(self.future, means)
        else:
            self.future.set_result(self.buffer if means else self.buffer.fill_(math.nan))


class CompressionState:
    """Compresses the gradients of one model: give it to `comm_hook`, or let `compress` do both.

    model          DistributedDataParallel, or any module together with `reduce_gradients`
    spec           how gradients are sent: 'topk:density=0.01', 'qsgd:levels=7,bucket=512', ...
    feedback       what happens to what is left out: 'ef', 'none', 'ecq:alpha=..,beta=..', 'dgc:momentum=..';
                   None: 'ef' for sparsifiers and onebit, 'none' for the others
    rules, min_size, exclude, exclude_norms
                   which parameters travel how, see `Policy`; `explain` shows what becomes of them
    warmup         so many steps at the start are sent as they are
    schedule       [(from_step, density), ...] for sparsifiers that were given a density
    algorithm      'auto', 'gather' or 'shard'
    bypass         'auto': steps are sent as they are while that is faster, which is tried now and then; nothing in
                   residuals is lost. A list, the `bypass_log` of an earlier run: as that run has decided. Not with dgc
    seed           of all random numbers
    nonfinite      'propagate': if a gradient is not finite on one rank, every rank gets NaN in all of them, so that
                   every GradScaler skips the step and backs off alike. 'raise': NonFinite on every rank. 'drop': such
                   elements count as 0. In no case does such a value enter a residual
    scaler         the GradScaler that is in use: residuals follow its changes of the loss scale
    check          compare the parameters of all ranks before every step (slow; for finding errors)
    log_every      a line to the logger 'tersegrad' every so many steps, on rank 0
    insist         accept feedback that would diverge, see `tersegrad.stability`
    process_group  exchange over this group instead of a new gloo group with the model's ranks. It must be used for
                   nothing else
    timeout        of exchanges: a datetime.timedelta or seconds; None: torch's default
    device         of the library: 'cpu', 'cpu:threads=4', 'cuda'. 'auto': the card where the parameters are, if the
                   library has this card and the codecs for it; else 'cpu', and gradients on a card are staged through
                   pinned host memory. The bytes are the same

    One reduction is made for each step, whatever the buckets of DistributedDataParallel: either all gradients of a step
    are replaced by their means on all ranks, or none.
    """

    def __init__(
        self,
        model: nn.Module,
        spec: str | Spec,
        *,
        feedback: str | FeedbackSpec | None = None,
        rules: Mapping[str, Rule] | Sequence[tuple[str, Rule]] = (),
        min_size: int = 10_000,
        exclude: Iterable[str] = (),
        exclude_norms: bool = True,
        warmup: int = 0,
        schedule: Iterable[tuple[int, float]] = (),
        algorithm: str = "auto",
        bypass: str | Sequence[int] = "off",
        seed: int = 0,
        nonfinite: str = "propagate",
        scaler: Any = None,
        check: bool = False,
        log_every: int = 0,
        insist: bool = False,
        process_group: dist.ProcessGroup | None = None,
        timeout: timedelta | float | None = None,
        device: str = "auto",
    ) -> None:
        if nonfinite not in ("propagate", "raise", "drop"):
            raise ValueError(f"nonfinite is {nonfinite!r}: it must be 'propagate', 'raise' or 'drop'")
        self.policy = Policy.of(spec, feedback, rules, min_size, exclude, exclude_norms)
        self._options: dict[str, Any] = {
            "warmup": warmup,
            "schedule": list(schedule),
            "algorithm": algorithm,
            "bypass": bypass if isinstance(bypass, str) else list(bypass),
            "seed": seed,
            "device": device,
        }
        self._nonfinite, self._check, self._log_every, self._insist = nonfinite, check, log_every, insist
        self._timeout = timeout if timeout is None or isinstance(timeout, timedelta) else timedelta(seconds=timeout)
        self._scaler = scaler
        self._loss_scale = 0.0  # of the residuals; 0: not known yet
        self._step = 0
        self._waiting: dict[str, Any] | None = None  # a pickled state, until it is attached
        self._worker: Worker | None = None
        self._attach(model, process_group)

    # ---- Setting up --------------------------------------------------------------------------------------------------

    def attach(self, model: nn.Module, process_group: dist.ProcessGroup | None = None) -> None:
        """Makes a state that was unpickled usable again, for the same model. All ranks call this together."""
        if self._worker is not None:
            raise RuntimeError("this CompressionState belongs to a model already")
        self._attach(model, process_group)
        if self._waiting is not None:
            saved, self._waiting = self._waiting, None
            self.load_state_dict(saved)

    def _attach(self, model: nn.Module, process_group: dist.ProcessGroup | None) -> None:
        if not dist.is_available() or not dist.is_initialized():
            raise RuntimeError("call torch.distributed.init_process_group before compressing gradients")
        ddp = wrapper(model)
        every = parameters_of(model)
        self.choices: list[Choice] = choices_of(model, self.policy)
        self._parameters = [parameter for _, parameter, _ in every]
        self._index = {parameter: i for i, parameter in enumerate(self._parameters)}
        group = process_group if process_group is not None else _own_group(getattr(ddp, "process_group", None), self._timeout)
        self.rank, self.world = dist.get_rank(group), dist.get_world_size(group)
        self._wire: Wire = open_wire(group)
        options = {**self._options, "nonfinite": "drop" if self._nonfinite == "drop" else "stop"}
        tensors = [choice.tensor(self._insist) for choice in self.choices]

        def make(device: Any) -> Reducer:
            return Reducer(self.rank, self.world, tensors, **{**options, "device": device})

        self._reducer, self._cards = open_reducer(self._options["device"], self._parameters, make)
        self._worker = Worker(self._reducer, self._wire, "tersegrad")
        self._pieces: list[_Piece] = []
        self._watch(ddp)

    def _watch(self, ddp: nn.parallel.DistributedDataParallel | None) -> None:
        """Where parameters may be unused, see which are used: DistributedDataParallel gives zeros for the others, and
        throws away what the hook returns for those that no rank uses. So they must not spend their residual."""
        self._used: set[int] | None = None
        if ddp is not None and (ddp.find_unused_parameters or ddp.static_graph):
            self._used = used = set()
            for i, parameter in enumerate(self._parameters):
                parameter.register_hook(lambda _, i=i: used.add(i))  # type: ignore[no-untyped-call]

    # ---- One step ----------------------------------------------------------------------------------------------------

    def _live(self) -> Worker:
        if self._worker is None:
            raise RuntimeError("this CompressionState was unpickled: call state.attach(model) before it is used")
        if self._worker.broken is not None:
            raise RuntimeError(
                "an earlier exchange failed, so ranks may not know the same any more: restart from a checkpoint "
                f"({self._worker.broken})"
            ) from self._worker.broken
        return self._worker

    def _begin(self, worker: Worker) -> None:
        pieces: list[_Piece] = []
        self._pieces = pieces
        worker.begin(Job(self._step, lambda problem: self._finish(pieces, problem), self._prepare))

    def _take(self, bucket: Any) -> Any:
        """The gradients of a bucket; the future completes after the step's verdict."""
        worker = self._live()
        parameters, gradients, buffer = bucket.parameters(), bucket.gradients(), bucket.buffer()
        indices = [self._find(parameter, gradient) for parameter, gradient in zip(parameters, gradients)]
        if bucket.index() == 0:
            if self._pieces:
                raise RuntimeError("the backward pass before this one did not come to its end: restart from a checkpoint")
            self._begin(worker)
        future = self._give(worker, indices, gradients, buffer, self._used)
        if bucket.is_last():
            self._close(worker)
        return future

    def _give(
        self,
        worker: Worker,
        indices: Sequence[int],
        gradients: Sequence[torch.Tensor],
        buffer: torch.Tensor,
        used: set[int] | None,
    ) -> Any:
        on_card = buffer.device.type != "cpu"
        held = self._cards.take(buffer, gradients) if on_card else None
        future: Any = torch.futures.Future(devices=[buffer.device] if on_card else None)
        self._pieces.append(_Piece(future, buffer, held))
        for place, (i, gradient) in enumerate(zip(indices, gradients)):
            address, arrive = (gradient.data_ptr(), None) if held is None else held.part(place)
            tensor = tg_tensor(address, gradient.numel(), DTYPES[gradient.dtype])
            worker.give(Given(i, tensor, used is not None and i not in used, arrive))
        return future.then(_unwrap)

    def _close(self, worker: Worker) -> None:
        self._step += 1
        self._pieces = []
        if self._used is not None:
            self._used.clear()
        worker.last()

    def _reduce(self, chosen: set[torch.Tensor] | None) -> None:
        """A whole step at once, of the gradients that parameters hold."""
        worker = self._live()
        given: list[tuple[int, torch.Tensor | None]] = []
        used = set()
        for i, parameter in enumerate(self._parameters):
            if chosen is not None and parameter not in chosen:
                given.append((i, None))
                continue
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter, memory_format=torch.contiguous_format)
            else:
                used.add(i)
            if not parameter.grad.is_contiguous():
                parameter.grad = parameter.grad.contiguous()
            self._find(parameter, parameter.grad)
            given.append((i, parameter.grad))
        self._begin(worker)
        futures = []
        for i, gradient in given:
            if gradient is None:
                worker.give(Given(i, None, True))
            else:
                futures.append(self._give(worker, [i], [gradient], gradient, used))
        self._close(worker)
        for future in futures:
            future.wait()

    def _find(self, parameter: torch.Tensor, gradient: torch.Tensor) -> int:
        i = self._index.get(parameter)  # type: ignore[call-overload]
        if i is None:
            raise RuntimeError(
                "a gradient has arrived for a parameter that the model did not have, or did not train, when compress "
                "was called: call it after the model is complete"
            )
        choice = self.choices[i]
        if gradient.layout is not torch.strided:
            raise TypeError(f"the gradient of {choice.name} is sparse: use sparse=False in its nn.Embedding")
        if gradient.dtype is not choice.dtype:
            raise TypeError(f"the gradient of {choice.name} arrives as {gradient.dtype}, and {choice.dtype} was expected")
        return int(i)

    def _prepare(self) -> None:
        """On the coding thread, before a step."""
        if self._check:
            self._compare_parameters()
        if self._scaler is not None and self._scaler.is_enabled():
            scale = float(self._scaler.get_scale())
            if self._loss_scale not in (0.0, scale):
                self._reducer.scale(scale / self._loss_scale)
            self._loss_scale = scale

    def _compare_parameters(self) -> None:
        digests = []
        for parameter in self._parameters:
            flat = parameter.detach().contiguous().reshape(-1).view(torch.uint8).cpu()
            digests.append(zlib.crc32(flat.numpy().tobytes()))
        every = self._wire.gather(digests)
        for i, choice in enumerate(self.choices):
            others = [rank for rank in range(self.world) if every[rank][i] != every[0][i]]
            if others:
                raise LayoutMismatch(
                    f"before step {self._step}, {choice.name} differs between rank 0 and rank {others[0]}: "
                    "every rank must start from the same parameters and apply the same steps"
                )

    def _finish(self, pieces: list[_Piece], problem: BaseException | None) -> None:
        """On the coding thread: completes the futures of a step."""
        refused = isinstance(problem, Error) and problem.status in (Status.NONFINITE, Status.SKIPPED)
        if refused and self._nonfinite == "propagate":
            _log.info("%s", problem)
        for piece in pieces:
            try:
                if problem is not None and not (refused and self._nonfinite == "propagate"):
                    piece.future.set_result(problem)
                else:
                    piece.complete(means=problem is None)
            except RuntimeError as trouble:  # the future's own continuation failed: it has the error
                _log.debug("%s", trouble)
        if problem is None and self._log_every and self.rank == 0:
            done = self._reducer.stats().applied
            if done % self._log_every == 0:
                _log.info("%s", log_line(self.stats()))

    # ---- State -------------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """This rank's residuals and counters, between steps. For torch.save, one file for each rank, and for
        torch.distributed.checkpoint: the keys name the rank."""
        self._live()
        saved = torch.frombuffer(bytearray(self._reducer.save()), dtype=torch.uint8)
        own = {"step": self._step, "loss_scale": self._loss_scale, "state": saved}
        return {"version": VERSION, "world": self.world, "ranks": {str(self.rank): own}}

    def load_state_dict(self, saved: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> None:
        """Takes a state back: what this rank saved, or a list of what all ranks saved.

        With as many ranks as before, the run goes on to the bit, whatever the buckets are now. With another number, all
        old states are needed: residuals are added up and scaled so that they move the parameters by as much.
        """
        self._live()
        ranks, world = merge(saved)
        wanted = [self.rank] if world == self.world else list(range(self.rank, world, self.world))
        missing = [rank for rank in wanted if rank not in ranks]
        if missing:
            raise ValueError(
                f"rank {self.rank} of {self.world} needs the state of rank {missing[0]} of {world}: give load_state_dict a "
                "list of what all ranks saved"
            )
        self._reducer.load([ranks[rank]["state"].cpu().numpy() for rank in wanted])
        any_rank = next(iter(ranks.values()))
        self._step, self._loss_scale = int(any_rank["step"]), float(any_rank["loss_scale"])

    def __getstate__(self) -> dict[str, Any]:
        kept = ("policy", "_options", "_nonfinite", "_check", "_log_every", "_insist", "_timeout")
        return {**{name: getattr(self, name) for name in kept}, "saved": self.state_dict()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        warnings.warn(
            "a CompressionState has neither its process group nor its GradScaler after unpickling: call state.attach(model)",
            stacklevel=2,
        )
        self._waiting = state.pop("saved")
        self.__dict__.update(state)
        self._scaler, self._worker, self._loss_scale, self._step = None, None, 0.0, 0

    # ---- Seeing it work ----------------------------------------------------------------------------------------------

    def residual(self, name: str) -> torch.Tensor:
        """A copy of a parameter's residual on this rank, in the parameter's shape."""
        names = [choice.name for choice in self.choices]
        if name not in names:
            raise KeyError(f"the model has no trained parameter {name!r}")
        i = names.index(name)
        return torch.from_numpy(self._reducer.residual(i)).reshape(self._parameters[i].shape)

    def bypass_log(self) -> list[int]:
        """The steps from which on gradients were sent as they are, and compressed again, by turns: `bypass` takes it."""
        return self._reducer.bypass_log()

    def stats(self) -> Stats:
        """What was sent so far on this rank, per parameter and in total, and where the time went. Between steps."""
        return collect(self._reducer, self.choices, self._live().wait_seconds, self._step)

    def write_to(self, writer: Any, step: int | None = None, prefix: str = "tersegrad") -> None:
        """The totals of `stats` as scalars of a torch.utils.tensorboard.SummaryWriter."""
        for name, value in self.stats().scalars().items():
            writer.add_scalar(f"{prefix}/{name}", value, self._step if step is None else step)


def merge(saved: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> tuple[dict[int, Any], int]:
    """The ranks in one or several state dicts, and the size of their world."""
    every = [saved] if isinstance(saved, Mapping) else list(saved)
    if not every:
        raise ValueError("no state was given")
    ranks: dict[int, Any] = {}
    for one in every:
        if one.get("version") != VERSION or "ranks" not in one:
            raise ValueError(f"this is not a state of version {VERSION} that CompressionState.state_dict made")
        if one["world"] != every[0]["world"]:
            raise ValueError(f"states of worlds of {every[0]['world']} and {one['world']} ranks do not belong together")
        ranks.update({int(rank): state for rank, state in one["ranks"].items()})
    steps = {int(state["step"]) for state in ranks.values()}
    if len(steps) > 1:
        raise ValueError(f"states of different steps do not belong together: {sorted(steps)}")
    return ranks, int(every[0]["world"])


def _unwrap(future: Any) -> Any:
    """An exception set as a result is raised here, so that it reaches whoever waits with its own text."""
    value = future.value()
    if isinstance(value, BaseException):
        raise value
    return value
