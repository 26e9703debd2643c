# SPDX-License-Identifier: Apache-2.0
"""CompressionState: everything that compressing one model's gradients needs on this rank."""

from __future__ import annotations

import logging
import math
import warnings
import weakref
import zlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from .._library import Status, tg_tensor
from ..checked import whole
from ..codec import Device
from ..errors import BadResidual, Error, InvalidArgument, LayoutMismatch
from ..reducer import Reducer
from ..spec import FeedbackSpec, Spec
from .checkpoint import template
from .exchange import CardWire, Wire, agreed, back_end, check_unshared, layout_of, new_group, open_wire, timeout_of
from .log import announce, say
from .options import check_algorithm, check_common, check_hosts, densities, duration, name_options, suits_levels
from .policy import DTYPES, Choice, Policy, Rule, check_whole, choices_of, memory_order, parameters_of, unpermuted, wrapper
from .staging import Held, OnCard, open_reducer
from .stats import Stats, collect, log_line
from .turns import claim, claim_for_pass, release
from .worker import Given, Job, Worker

_log = logging.getLogger("tersegrad")
VERSION = 1
MOST_CHANGES = 4096
"""Entries of a log of bypass, which the library keeps with the residuals."""


def _own_group(parent: Any, timeout: timedelta | None, backend: str = "gloo") -> dist.ProcessGroup:
    """A group of the same ranks. Ours alone: collectives from another thread would reorder those of the user's."""
    parent = parent if parent is not None else dist.group.WORLD
    ranks = dist.get_process_group_ranks(parent)
    everyone = len(ranks) == dist.get_world_size()
    # What the host reads is in host memory, so it is gloo also where the model's group is NCCL.
    return new_group(ranks, timeout or timeout_of(parent), backend, members_only=not everyone)


class _Piece:
    """The gradients of one hook call. `held` where they are on a card."""

    def __init__(self, future: Any, buffer: torch.Tensor, held: Held | None) -> None:
        self.future, self.buffer, self.held = future, buffer, held
        self.result = future.then(_unwrap)  # what torch waits for

    def complete(self, means: bool) -> None:
        """With the means, or with NaN in all of them."""
        if self.held is not None:
            self.held.complete(self.future, means)
        else:
            self.future.set_result(self.buffer if means else self.buffer.fill_(math.nan))

    def fail(self, problem: BaseException) -> None:
        """With an error, after `complete` has failed: before the future was done, or before those who wait for it were
        told, as where a card has no event for it."""
        for future in (self.future, self.result):
            try:
                if not future.done():
                    future.set_result(problem)
            except Exception as error:
                _log.debug("%s", error)


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
    hosts          of each rank of the model's group, a number for its host; or 'names': ranks that see the same
                   host name share a host. Then ranks of a host add up their gradients as they are, and only hosts exchange
                   what is compressed; where all ranks are on one host, nothing is. Not with bypass, nor with a clip of dgc.
                   None: every rank is a host of its own. 'auto': 'names' if algorithm is 'auto', there are several hosts,
                   one of them has several ranks, and neither bypass, a clip of dgc nor frames that stay on cards are in
                   the way; else None
    bypass         'auto': steps are sent as they are while that is faster, which is tried now and then; nothing in
                   residuals is lost. A list, the `bypass_log` of an earlier run: as that run has decided. Not with dgc
    seed           of all random numbers
    nonfinite      'propagate': if a gradient is not finite on one rank, every rank gets NaN in all of them, so that
                   every GradScaler skips the step and backs off alike. 'raise': NonFinite on every rank. 'drop': such
                   elements count as 0. In no case does such a value enter a residual
    scaler         the GradScaler that is in use: residuals follow its changes of the loss scale
    check          compare the parameters of all ranks before every step, and in `state_dict` (slow; for finding errors).
                   What the last step did is seen by `compare_parameters`
    log_every      a line every so many steps, on rank 0: to the logger 'tersegrad' if the program's logging takes its
                   INFO, else to stderr
    insist         accept feedback that would diverge, see `tersegrad.stability`
    process_group  exchange over this group instead of new groups with the model's ranks. It must be used for nothing
                   else; several states may use it one after the other, not in one backward pass. By default it is a gloo
                   group; where the model's group is NCCL and gradients are compressed on cards, there is an NCCL group
                   too, and frames go from card to card
    timeout        of exchanges: a datetime.timedelta or seconds; None: that of the model's group
    device         of the library: 'cpu', 'cpu:threads=4', 'cuda'. 'auto': the card where the parameters are, if the
                   library has this card and the codecs for it; else 'cpu', and gradients on a card are staged through
                   pinned host memory. The bytes are the same

    `error` is what happened in the last step that was not applied, until one is: NonFinite, LayoutMismatch, ... torch makes
    a RuntimeError of what is raised in a backward pass of DistributedDataParallel.

    One reduction is made for each step, whatever the buckets of DistributedDataParallel: either all gradients of a step
    are replaced by their means on all ranks, or none.
    """

    _others = "'propagate' or 'drop'"  # what there is beside nonfinite='raise'

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
        hosts: str | Sequence[int] | None = "auto",
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
        check_common(seed, warmup, nonfinite, scaler)
        check_algorithm(algorithm)
        self.policy = Policy.of(spec, feedback, rules, min_size, exclude, exclude_norms)
        self._options: dict[str, Any] = {
            "warmup": warmup,
            "schedule": densities(schedule, self.policy),
            "algorithm": algorithm,
            "bypass": bypass if isinstance(bypass, str) else list(bypass),
            "seed": seed,
            "device": device,
            "hosts": hosts if hosts is None or isinstance(hosts, str) else list(hosts),
        }
        check_hosts(hosts)
        self._nonfinite, self._check, self._insist = nonfinite, check, insist
        self._log_every, self._timeout = whole("log_every", log_every), duration(timeout)
        self._scaler = scaler
        self.error: BaseException | None = None
        self._loss_scale = 0.0  # of the residuals; 0: not known yet
        self._step = 0
        self._waiting: dict[str, Any] | None = None  # a pickled state, until it is attached
        self._worker: Worker | None = None
        self._watch(self._attach(model, process_group))

    # ---- Setting up --------------------------------------------------------------------------------------------------

    def attach(self, model: nn.Module, process_group: dist.ProcessGroup | None = None, *, scaler: Any = None) -> None:
        """Makes a state that was unpickled usable again, for the same model, with the GradScaler that is in use now. All
        ranks call this together."""
        if self._worker is not None:
            raise RuntimeError("this CompressionState belongs to a model already")
        check_common(self._options["seed"], self._options["warmup"], self._nonfinite, scaler)
        if self._scaled and scaler is None:
            raise ValueError(
                "this CompressionState had a GradScaler when it was pickled, and without one its residuals would not "
                "follow the loss scale: call state.attach(model, scaler=scaler)"
            )
        self._scaler = scaler
        ddp = self._attach(model, process_group)
        try:
            if self._waiting is not None:
                self.load_state_dict(self._waiting)
        except BaseException:
            self._worker = None  # what was pickled still waits for its model
            raise
        self._waiting = None
        self._watch(ddp)

    def _attach(
        self, model: nn.Module, process_group: dist.ProcessGroup | None
    ) -> nn.parallel.DistributedDataParallel | None:
        if not dist.is_available() or not dist.is_initialized():
            raise RuntimeError("call torch.distributed.init_process_group before compressing gradients")
        ddp = wrapper(model)
        every = parameters_of(model)
        check_whole(every)
        self.choices: list[Choice] = choices_of(model, self.policy)
        self._parameters = [parameter for _, parameter, _ in every]
        self._index = {parameter: i for i, parameter in enumerate(self._parameters)}
        parent = process_group if process_group is not None else getattr(ddp, "process_group", None)
        between_cards = self._between_cards(parent)
        if process_group is not None:
            check_unshared(process_group, getattr(ddp, "process_group", None))
        given = None if between_cards else process_group
        group = given if given is not None else _own_group(parent, self._timeout)
        self._given = process_group
        self.rank, self.world = dist.get_rank(group), dist.get_world_size(group)
        settings = {"nonfinite": self._nonfinite, "check": bool(self._check), "scaler": self._scaler is not None}
        feedbacks = [choice.feedback for choice in self.choices]
        suited = suits_levels(self._options["algorithm"], self._options.get("bypass", "off"), feedbacks) and not between_cards
        wanted = self._options.get("hosts")  # a state of an older version has none
        self.hosts = agreed(open_wire(group), wanted, suited, settings)
        if wanted == "auto" and self.hosts is not None and self.rank == 0:
            announce(f"two levels: {layout_of(self.hosts)}")
        between_cards = between_cards and self.hosts is None  # two levels exchange host memory
        self._wire: Wire = open_wire(group, self.hosts, self._timeout)
        # Groups first: a rank that fails later must not leave the others waiting for it here.
        cards = process_group if process_group is not None or not between_cards else _own_group(parent, self._timeout, "nccl")
        self._orders = [memory_order(parameter) for parameter in self._parameters]
        self._strides = [parameter.stride() for parameter in self._parameters]
        self._open(between_cards)
        if cards is not None and isinstance(self._cards, OnCard):
            self._wire = CardWire(self._wire, cards, self._cards.stream)
        self._worker = Worker(self._reducer, self._wire, "tersegrad")
        self._pieces: list[_Piece] = []
        self._busy = False  # the coding thread has the reducer
        return ddp

    def _open(self, between_cards: bool) -> None:
        options = {**self._options, "hosts": self.hosts, "nonfinite": "drop" if self._nonfinite == "drop" else "stop"}
        tensors = [choice.tensor(self._insist, order) for choice, order in zip(self.choices, self._orders)]

        def make(device: Any) -> Reducer:
            on_device = between_cards and isinstance(device, Device)
            return Reducer(self.rank, self.world, tensors, **{**options, "device": device}, on_device=on_device, minimum=self._wire.minimum)

        self._reducer, self._cards = open_reducer(self._options["device"], self._parameters, make)
        self._state_size = self._reducer.state_size()  # while a log of bypass is empty

    def _leave_levels(self, worker: Worker) -> None:
        """To one level. The groups of hosts and owners stay: messages may take them as well."""
        self.hosts = None
        self._open(between_cards=False)
        worker.use(self._reducer)

    def _between_cards(self, parent: Any) -> bool:
        """Whether frames stay on the card and go by NCCL, as the model's own messages would."""
        on_card = all(parameter.device.type == "cuda" for parameter in self._parameters)
        wanted = self._options["device"] == "auto" or self._options["device"].startswith("cuda")
        return on_card and wanted and back_end(parent if parent is not None else dist.group.WORLD, "cuda") == "nccl"

    def _watch(self, ddp: nn.parallel.DistributedDataParallel | None) -> None:
        """Where parameters may be unused, see which are used: DistributedDataParallel gives zeros for the others, and
        throws away what the hook returns for those that no rank uses. So they must not spend their residual."""
        self._used: set[int] | None = None
        self._ddp = None if ddp is None else weakref.ref(ddp)
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

    def _between_steps(self) -> Worker:
        worker = self._live()
        if self._busy:
            raise InvalidArgument("a reduction is in progress; call this between steps")
        return worker

    def _begin(self, worker: Worker) -> None:
        pieces: list[_Piece] = []
        self._pieces = pieces
        self._busy = True
        worker.begin(Job(self._step, lambda problem: self._finish(pieces, problem), self._prepare))

    def _take(self, bucket: Any) -> Any:
        """The gradients of a bucket; the future completes after the step's verdict."""
        worker = self._live()
        self._check_watched()
        parameters, gradients, buffer = bucket.parameters(), bucket.gradients(), bucket.buffer()
        if buffer.layout is not torch.strided:  # of one parameter, in a bucket of its own
            gradients = [buffer]
        indices = [self._find(parameter, gradient) for parameter, gradient in zip(parameters, gradients)]
        if bucket.index() == 0:
            if self._pieces:
                raise RuntimeError("the backward pass before this one did not come to its end: restart from a checkpoint")
            claim_for_pass(self._given, self)
            self._begin(worker)
        absent = [self._is_absent(i, gradient) for i, gradient in zip(indices, gradients)]
        future = self._give(worker, indices, gradients, buffer, absent)
        if bucket.is_last():
            self._close(worker)
        return future

    def _check_watched(self) -> None:
        ddp = None if self._ddp is None else self._ddp()
        if self._used is None and ddp is not None and ddp.static_graph:
            raise RuntimeError(
                "the model was given a static graph after compress, which has not watched which parameters are used: call "
                "_set_static_graph before compress, or give DistributedDataParallel static_graph=True"
            )

    def _is_absent(self, i: int, gradient: torch.Tensor) -> bool:
        """This rank has nothing for the parameter: it was not used in this pass, and has no gradient of one before, which
        DistributedDataParallel would send."""
        if self._used is None or i in self._used:
            return False
        return self._parameters[i].grad is None or not bool(gradient.any())  # the first saves waiting for a card

    def _give(
        self,
        worker: Worker,
        indices: Sequence[int],
        gradients: Sequence[torch.Tensor],
        buffer: torch.Tensor,
        absent: Sequence[bool],
    ) -> Any:
        on_card = buffer.device.type != "cpu"
        held = self._cards.take(buffer, gradients) if on_card else None
        future: Any = torch.futures.Future(devices=None if held is None else held.devices)
        piece = _Piece(future, buffer, held)
        self._pieces.append(piece)
        for place, (i, gradient) in enumerate(zip(indices, gradients)):
            address, arrive = (gradient.data_ptr(), None) if held is None else held.part(place)
            tensor = tg_tensor(address, gradient.numel(), DTYPES[gradient.dtype])
            worker.give(Given(i, tensor, absent[place], arrive))
        return piece.result

    def _close(self, worker: Worker) -> None:
        self._step += 1
        self._pieces = []
        if self._used is not None:
            self._used.clear()
        worker.last()

    def _reduce(self, chosen: set[torch.Tensor] | None) -> None:
        """A whole step at once, of the gradients that parameters hold."""
        worker = self._live()
        given = [self._held(i, parameter, chosen) for i, parameter in enumerate(self._parameters)]
        claim(self._given, self)
        try:
            self._reduce_all(worker, given)
        finally:
            release(self._given, self)

    def _held(self, i: int, parameter: torch.Tensor, chosen: set[torch.Tensor] | None) -> tuple[torch.Tensor | None, bool]:
        """The gradient of a parameter, if it takes part, in the order of memory; and whether it is absent."""
        if chosen is not None and parameter not in chosen:
            return None, True
        absent = parameter.grad is None
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        self._find(parameter, parameter.grad)
        if not parameter.grad.permute(self._orders[i]).is_contiguous():
            parameter.grad = unpermuted(parameter.grad.permute(self._orders[i]).contiguous(), self._orders[i])
        return parameter.grad, absent

    def _reduce_all(self, worker: Worker, given: Sequence[tuple[torch.Tensor | None, bool]]) -> None:
        self._begin(worker)
        ended: Any = torch.futures.Future()  # the step's end, also where no gradient of this rank waits for it
        self._pieces.append(_Piece(ended, torch.empty(0), None))
        for i, (gradient, absent) in enumerate(given):
            if gradient is None:
                worker.give(Given(i, None, True))
            else:
                self._give(worker, [i], [gradient], gradient, [absent])
        pieces = list(self._pieces)
        self._close(worker)
        for piece in pieces:  # not their results: there `then` wraps every error in a RuntimeError
            problem = piece.future.wait()
            if isinstance(problem, BaseException):
                raise problem

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
        # That of a bucket is a flat view of memory that is laid out as the parameter is.
        if parameter.stride() != self._strides[i] and memory_order(parameter) != self._orders[i]:
            raise RuntimeError(
                f"{choice.name} lies in memory in another order than when compress was called: change a model's "
                "memory_format before"
            )
        return int(i)

    def _prepare(self) -> None:
        """On the coding thread, before a step."""
        if self._check:
            self._compare_parameters(f"before step {self._step}")
        if self._scaler is not None and self._scaler.is_enabled():
            scale = float(self._scaler.get_scale())
            if self._loss_scale not in (0.0, scale):
                try:
                    follow_scale([self._reducer], scale / self._loss_scale, self._wire)
                except Error as problem:
                    if self._worker is not None:
                        self._worker.broken = problem  # ranks that were not refused have other residuals now
                    raise
            self._loss_scale = scale

    def compare_parameters(self) -> None:
        """Raises LayoutMismatch on every rank if the parameters of the ranks differ in a bit. Between steps, for
        instance after the last one; all ranks call it together."""
        self._between_steps()
        self._compare_parameters(f"after {self._step} steps")

    def _compare_parameters(self, when: str) -> None:
        digests = []
        for parameter in self._parameters:
            flat = parameter.detach().contiguous().reshape(-1).view(torch.uint8).cpu()
            digests.append(zlib.crc32(flat.numpy().tobytes()))
        every = self._wire.gather(digests)
        for i, choice in enumerate(self.choices):
            others = [rank for rank in range(self.world) if every[rank][i] != every[0][i]]
            if others:
                raise LayoutMismatch(
                    f"{when}, {choice.name} differs between rank 0 and rank {others[0]}: "
                    "every rank must start from the same parameters and apply the same steps"
                )

    def _finish(self, pieces: list[_Piece], problem: BaseException | None) -> None:
        """On the coding thread: completes the futures of a step."""
        refused = isinstance(problem, Error) and problem.status in (Status.NONFINITE, Status.SKIPPED)
        name_options(problem, self._others)
        self.error, self._busy = problem, False  # before anybody goes on
        if refused and self._nonfinite == "propagate":
            _log.info("%s", problem)
        if problem is None and self._log_every and self.rank == 0:
            if self._reducer.stats().applied % self._log_every == 0:  # before anybody goes on to the next step
                say(log_line, self.stats)
        for piece in pieces:
            try:
                if problem is not None and not (refused and self._nonfinite == "propagate"):
                    piece.future.set_result(problem)
                else:
                    piece.complete(means=problem is None)
            except BaseException as error:  # whoever waits for this piece, or for another, would wait for ever
                self._lose(piece, error)
        pieces.clear()  # an error knows this step, and futures would keep the error where nobody finds it

    def _lose(self, piece: _Piece, error: BaseException) -> None:
        """A piece has not got what all ranks have agreed on: this rank cannot go on with them."""
        self.error = error
        if self._worker is not None and self._worker.broken is None:
            self._worker.broken = error
        piece.fail(error)

    # ---- State -------------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """This rank's residuals and counters, between steps. For torch.save, one file for each rank, and for
        torch.distributed.checkpoint: the keys name the rank. With `check` all ranks call it together: what the last step
        left is compared."""
        self._between_steps()
        if self._check:
            self._compare_parameters(f"after {self._step} steps")
        own: dict[str, Any] = {"step": self._step, "loss_scale": self._loss_scale}
        saved = bytearray(self._reducer.save())
        if self._options["bypass"] != "off":
            # The log grows, and torch.distributed.checkpoint loads only tensors of the size that was saved.
            own["bytes"] = len(saved)
            saved += bytes(self._state_size + 8 * MOST_CHANGES - len(saved))
        own["state"] = torch.frombuffer(saved, dtype=torch.uint8)
        hosts = {} if self.hosts is None else {"hosts": list(self.hosts)}
        return {"version": VERSION, "world": self.world, **hosts, "ranks": {str(self.rank): own}}

    def load_state_dict(self, saved: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> None:
        """Takes a state back: what this rank saved, or a list of what all ranks saved.

        With as many ranks as before, on the same hosts, the run goes on to the bit, whatever the buckets are now. With
        another number, or with `hosts` that were not given before or are others now, all old states are needed: residuals
        are added up and scaled so that they move the parameters by as much. Where `hosts` is 'auto', a run of one level
        needs no other states: it goes on in one level, to the bit; with all of them it goes on in two.
        """
        worker = self._between_steps()
        ranks, world, hosts = merge(saved)
        found = self.hosts is not None and self._options.get("hosts") == "auto"
        leaves = found and hosts is None and world == self.world and len(ranks) < world
        now = None if leaves else self.hosts
        alone = world == self.world and hosts == now and (hosts is None or len(ranks) < world)
        wanted = [self.rank] if alone else self._heirs(world, hosts is not None)
        missing = [rank for rank in wanted if rank not in ranks]
        if missing:
            raise ValueError(
                f"rank {self.rank} of {self.world} needs the state of rank {missing[0]} of {world}: give load_state_dict a "
                "list of what all ranks saved"
            )
        if leaves:
            if self.rank == 0:
                announce("one level, as in the state that was loaded: load what all ranks saved for two levels")
            self._leave_levels(worker)
        self._reducer.load([ranks[rank]["state"].cpu().numpy()[: ranks[rank].get("bytes")] for rank in wanted])
        any_rank = next(iter(ranks.values()))
        self._step, self._loss_scale = int(any_rank["step"]), float(any_rank["loss_scale"])

    def _heirs(self, world: int, hosts: bool) -> list[int]:
        """The ranks of another world whose residuals this rank takes over."""
        return list(range(world)) if hosts or self.hosts is not None else list(range(self.rank, world, self.world))

    def checkpoint_template(self, checkpoint: Any, key: str = "compression") -> dict[str, Any]:
        """What torch.distributed.checkpoint.load fills in for `load_state_dict`, whatever the number of ranks was.

        checkpoint  the folder, or a StorageReader
        key         where the state was in what was saved: dcp.save({"compression": state.state_dict()}, ...)
        """
        self._live()
        return template(checkpoint, key, self._needed)

    def _needed(self, ranks: Sequence[str], hosts: bool) -> list[str]:
        return [str(rank) for rank in self._heirs(len(ranks), hosts)]

    def __getstate__(self) -> dict[str, Any]:
        kept = ("policy", "_options", "_nonfinite", "_check", "_log_every", "_insist", "_timeout")
        return {**{name: getattr(self, name) for name in kept}, "saved": self.state_dict(), "scaled": self._scaler is not None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        warnings.warn(
            "a CompressionState has neither its process group nor its GradScaler after unpickling: call state.attach(model)",
            stacklevel=2,
        )
        self._waiting, self._scaled = state.pop("saved"), state.pop("scaled", False)
        self.__dict__.update(state)
        self._scaler, self._worker, self._loss_scale, self._step = None, None, 0.0, 0
        self.error = None

    # ---- Seeing it work ----------------------------------------------------------------------------------------------

    def residual(self, name: str) -> torch.Tensor:
        """A copy of a parameter's residual on this rank, in the parameter's shape. Between steps."""
        self._between_steps()
        names = [choice.name for choice in self.choices]
        if name not in names:
            raise KeyError(f"the model has no trained parameter {name!r}")
        i = names.index(name)
        order, shape = self._orders[i], self._parameters[i].shape
        flat = torch.from_numpy(self._reducer.residual(i))
        return unpermuted(flat.reshape([shape[d] for d in order]), order)

    def bypass_log(self) -> list[int]:
        """The steps from which on gradients were sent as they are, and compressed again, by turns: `bypass` takes it."""
        self._between_steps()
        return self._reducer.bypass_log()

    def stats(self) -> Stats:
        """What was sent so far on this rank, per parameter and in total, and where the time went. Between steps."""
        worker = self._between_steps()
        return collect(self._reducer, self.choices, worker.wait_seconds, self._step)

    def write_to(self, writer: Any, step: int | None = None, prefix: str = "tersegrad") -> None:
        """The totals of `stats` as scalars of a torch.utils.tensorboard.SummaryWriter."""
        for name, value in self.stats().scalars().items():
            writer.add_scalar(f"{prefix}/{name}", value, self._step if step is None else step)


def merge(saved: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> tuple[dict[int, Any], int, list[int] | None]:
    """The ranks in one or several state dicts, the size of their world, and their hosts."""
    every = state_list(saved)
    ranks: dict[int, Any] = {}
    for one in every:
        if one.get("version") != VERSION or "ranks" not in one:
            raise ValueError(f"this is not a state of version {VERSION} that CompressionState.state_dict made")
        if one["world"] != every[0]["world"]:
            raise ValueError(f"states of worlds of {every[0]['world']} and {one['world']} ranks do not belong together")
        if one.get("hosts") != every[0].get("hosts"):
            raise ValueError("states of ranks that were given other hosts do not belong together")
        ranks.update({int(rank): state for rank, state in one["ranks"].items()})
    steps = {int(state["step"]) for state in ranks.values()}
    if len(steps) > 1:
        raise ValueError(f"states of different steps do not belong together: {sorted(steps)}")
    hosts = every[0].get("hosts")
    return ranks, int(every[0]["world"]), None if hosts is None else [int(host) for host in hosts]


def state_list(saved: Any) -> list[Mapping[str, Any]]:
    """One state dict, or several."""
    every = [saved] if isinstance(saved, Mapping) else list(saved) if isinstance(saved, Sequence) else [saved]
    for one in every:
        if not isinstance(one, Mapping):
            kind = type(one).__name__
            raise TypeError(f"load_state_dict takes what state_dict has returned, or a list of that, not {kind}")
    if not every:
        raise ValueError("no state was given")
    return every


def follow_scale(reducers: Iterable[Reducer], factor: float, wire: Wire) -> None:
    """Residuals follow the loss scale. If one of them would overflow on one rank, every rank is told: the others would
    wait for it. All ranks call it together, as their loss scale is the same."""
    problem: Error | None = None
    try:
        for reducer in reducers:
            reducer.scale(factor)
    except Error as caught:
        problem = caught
    refused = [rank for rank, (its,) in enumerate(wire.gather([problem is not None])) if its]
    if problem is not None:
        raise problem
    if refused:
        raise BadResidual(f"on rank {refused[0]} a residual would overflow if it followed the loss scale by {factor:g}")


def _unwrap(future: Any) -> Any:
    """An exception set as a result is raised here, so that it reaches whoever waits with its own text."""
    value = future.value()
    if isinstance(value, BaseException):
        raise value
    return value
