# SPDX-License-Identifier: Apache-2.0
"""Local steps for slow links: ranks train alone for a while, then agree on a compressed step."""

from __future__ import annotations

import copy
import logging
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from .. import checked
from ..errors import Error, LayoutMismatch, NonFinite, Skipped
from ..spec import Spec
from .checkpoint import template
from .exchange import Wire, alike
from .hook import reduce_gradients
from .policy import bare
from .state import CompressionState

_log = logging.getLogger("tersegrad")
_KEYS = ("steps", "common", "outer", "compression")


class LocalSGD:
    """Every `every` local steps, ranks exchange how far they have moved, compressed with feedback.

        def outer(parameters):
            return torch.optim.SGD(parameters, lr=0.7, momentum=0.9, nesterov=True)

        local = LocalSGD(model, outer, every=50, spec="topk:density=0.01")
        for batch in data:
            loss(model, batch).backward()
            optimizer.step()                 # the rank's own optimizer, on its own gradients
            optimizer.zero_grad()
            local.step()

    model            a plain module, not DistributedDataParallel. All ranks start from the parameters and buffers of
                     rank 0, as with DistributedDataParallel: what differs is replaced, with a warning
    outer_optimizer  makes the optimizer for the common step from a list of parameters: its gradient is the mean over
                     ranks of (parameters at the last common step - parameters now)
    every            local steps between common ones
    nonfinite        what happens where a rank's parameters are not finite. 'raise': NonFinite on every rank, with all
                     parameters as they were after the last common step, from which the run may go on; what the other
                     ranks have moved since stays in residuals, where there is feedback, and comes later. 'skip': the
                     same with a warning instead of the error, and `skipped` counts it. 'drop': such elements count as
                     not moved, and the common step is made. In no case does such a value reach another rank or a
                     residual; but the rank's own optimizer may hold it (in its momentum), and is to be made anew
    check            compare the parameters of the last common step of all ranks before every common one

    Other options are those of CompressionState, but for `scaler`: what is exchanged is no gradient, and not scaled.
    `hosts` is None unless it is given.
    After a common step all ranks have the same trained parameters, to the bit; buffers stay with each rank. Save
    `state_dict` right after one: a run with another number of ranks goes on from there. At the end of training call
    `synchronize`, which makes a common step of the local ones that are left. What a rank's own optimizer
    keeps (momentum) stays with the rank.
    """

    skipped: int
    """Common steps that were given up under nonfinite='skip'."""

    def __init__(
        self,
        model: nn.Module,
        outer_optimizer: Callable[[list[torch.Tensor]], torch.optim.Optimizer],
        *,
        every: int,
        spec: str | Spec,
        nonfinite: str = "raise",
        check: bool = False,
        **options: Any,
    ) -> None:
        if isinstance(model, nn.parallel.DistributedDataParallel):
            raise TypeError("LocalSGD takes a plain module: DistributedDataParallel would exchange gradients each step")
        if not callable(outer_optimizer):
            kind = type(outer_optimizer).__name__
            raise TypeError(f"outer_optimizer must be a function that makes an optimizer from parameters, not {kind}")
        if nonfinite not in ("raise", "skip", "drop"):
            raise ValueError(f"nonfinite is {nonfinite!r}: with local steps it must be 'raise', 'skip' or 'drop'")
        if options.pop("scaler", None) is not None:
            raise TypeError(
                "LocalSGD takes no scaler: changes of parameters are exchanged, which no loss scale is in. Use the "
                "GradScaler with the local optimizer alone"
            )
        self.every = checked.whole("every", every)
        if self.every < 1:
            raise ValueError(f"every is {every}: it must be 1 or more")
        options.setdefault("hosts", None)
        self.state = CompressionState(model, spec, nonfinite="drop" if nonfinite == "drop" else "raise", **options)
        self.skipped = 0
        self._skip, self._check = nonfinite == "skip", check
        self._loaded = False  # states of other rounds may have been given: compare once
        self._parameters = self.state._parameters
        self.state._others = "'skip' or 'drop'"
        alike(self.state._wire, {"every": self.every, "nonfinite": nonfinite, "check": bool(check)})
        _start_alike(self.state._wire, model)
        self._common = [parameter.detach().clone() for parameter in self._parameters]
        self._outer = outer_optimizer(self._common)
        if not isinstance(self._outer, torch.optim.Optimizer):
            raise TypeError(f"outer_optimizer has made no optimizer, but {type(self._outer).__name__}")
        self._steps = 0
        self._alone = 0  # steps since the last common one

    def step(self) -> bool:
        """Call it after every local step; true if this was followed by a common one."""
        self._steps += 1
        self._alone += 1
        return self.synchronize() if self._alone == self.every else False

    def synchronize(self) -> bool:
        """A common step now, if there was a local one since the last; true if it was made. All ranks call it together,
        after as many local steps: at the end of training, or before parameters are evaluated or saved. The next common
        step comes `every` local steps later."""
        if self._alone == 0:
            return False
        self._alone = 0
        if self._check or self._loaded:
            self._compare()
            self._loaded = False
        with torch.no_grad(), self._gradients_kept():
            for parameter, common in zip(self._parameters, self._common):
                parameter.grad = common - parameter
            try:
                reduce_gradients(None, self.state)
            except (NonFinite, Skipped) as problem:  # on all ranks alike
                self._go_back(problem)
                return False
            for parameter, common in zip(self._parameters, self._common):
                common.grad = parameter.grad
            self._outer.step()
            self._take_common()
        return True

    @contextmanager
    def _gradients_kept(self) -> Iterator[None]:
        """A step passes its differences as gradients; those of the user are there again at its end."""
        kept = [parameter.grad for parameter in self._parameters]
        try:
            yield
        finally:
            for parameter, common, gradient in zip(self._parameters, self._common, kept):
                common.grad, parameter.grad = None, gradient

    def _take_common(self) -> None:
        with torch.no_grad():
            for parameter, common in zip(self._parameters, self._common):
                parameter.copy_(common)

    def _go_back(self, problem: Error) -> None:
        # Keeping the local steps would let ranks drift apart for another round, and a value that is not finite is there
        # to stay: every rank gives its local steps up.
        self._take_common()
        words = (
            f"{problem}. (The gradient is the change of its parameters since the last common step.) All ranks have the "
            "parameters of the last common step again. The local optimizer of that rank may hold such a value too: "
            "create it again before continuing"
        )
        if not self._skip:
            raise type(problem)(words) from problem
        self.skipped += 1
        _log.warning("%s", words)

    def _compare(self) -> None:
        """Whether all ranks have the last common step in common."""
        self.state._live()
        every = self.state._wire.gather([self._steps, *map(_digest, self._common)])
        for rank, (steps, *_) in enumerate(every):
            if steps != every[0][0]:
                raise LayoutMismatch(
                    f"rank {rank} has made {steps} local steps, and rank 0 {every[0][0]}: every rank must load the "
                    "state of the same common step"
                )
        for i, choice in enumerate(self.state.choices, 1):
            for rank, digests in enumerate(every):
                if digests[i] != every[0][i]:
                    raise LayoutMismatch(
                        f"after the last common step, {choice.name} differs between rank 0 and rank {rank}: every rank "
                        "must load the state of the same common step, and use the same outer optimizer"
                    )

    def state_dict(self) -> dict[str, Any]:
        """The parameters of the last common step, the outer optimizer, residuals, and the number of steps."""
        names = [choice.name for choice in self.state.choices]
        return {
            "steps": self._steps - self._alone,
            "common": {name: tensor.clone() for name, tensor in zip(names, self._common)},
            "outer": _named(copy.deepcopy(self._outer.state_dict())),  # torch's own tensors go on changing
            "compression": self.state.state_dict(),
        }

    def load_state_dict(self, saved: Mapping[str, Any] | Sequence[Mapping[str, Any]], compression: Any = None) -> None:
        """Goes on from a common step: from what this rank saved; where the number of ranks has changed, from a list of
        what all ranks saved. `compression`: only their parts of that name, where `saved` is that of one rank.

        Before the next common step ranks compare what they have loaded.
        """
        every = [saved] if not isinstance(saved, Sequence) else list(saved)
        if not every:
            raise ValueError("no state was given")
        for one in every:
            self._verify(one)
        if any(one["steps"] != every[0]["steps"] for one in every):
            steps = sorted({int(one["steps"]) for one in every})
            raise ValueError(f"states after different numbers of local steps do not belong together: {steps}")
        first = every[0]
        parts = first["compression"] if not isinstance(saved, Sequence) else [one["compression"] for one in every]
        self.state.load_state_dict(parts if compression is None else compression)  # first: it may be refused
        self._outer.load_state_dict(_numbered(copy.deepcopy(first["outer"])))  # torch works in what it is given
        with torch.no_grad():
            for choice, common in zip(self.state.choices, self._common):
                common.copy_(first["common"][choice.name])
        self._take_common()
        self._steps, self._alone = int(first["steps"]), 0
        self._loaded = True

    def checkpoint_template(self, checkpoint: Any, key: str = "local") -> dict[str, Any]:
        """What torch.distributed.checkpoint.load fills in for `load_state_dict`, whatever the number of ranks was. It has
        places for the outer optimizer's momentum, which `state_dict` has only after the first common step.

        checkpoint  the folder, or a StorageReader
        key         where the state was in what was saved: dcp.save({"local": local.state_dict()}, ...)
        """
        self.state._live()
        return template(checkpoint, key, self.state._needed, ("compression",))

    def _verify(self, saved: Any) -> None:
        missing = [key for key in _KEYS if not isinstance(saved, Mapping) or key not in saved]
        if missing:
            raise ValueError(f"this is not a state that LocalSGD.state_dict made: it has no {', '.join(missing)}")
        wanted = {choice.name: list(common.shape) for choice, common in zip(self.state.choices, self._common)}
        found = {name: list(tensor.shape) for name, tensor in saved["common"].items()}
        for name in [*wanted, *found]:
            if name not in found:
                raise ValueError(f"the state has no parameter {name}: it is of another model")
            if name not in wanted:
                raise ValueError(f"the state has a parameter {name}, which the model does not train: it is of another")
            if found[name] != wanted[name]:
                raise ValueError(f"{name} has the shape {found[name]} in the state, and {wanted[name]} in the model")
        there = _entries(saved["outer"])
        lost = [entry for entry in saved["outer"].get("entries", ()) if entry not in there]
        if lost:
            raise ValueError(
                f"the state has no {lost[0].partition('.')[2]} of the outer optimizer, though it was saved: "
                "torch.distributed.checkpoint loads only what it is given a place for. Load into what "
                "LocalSGD.checkpoint_template gives"
            )


def _entries(outer: Mapping[str, Any]) -> list[str]:
    """What an optimizer keeps of each parameter: its number, and the name."""
    return [f"{number}.{name}" for number, own in outer.get("state", {}).items() for name in own]


def _named(outer: dict[str, Any]) -> dict[str, Any]:
    """The state of an optimizer with texts as keys, as torch.distributed.checkpoint wants them, and a list of what is in
    it: what finds no place there when it is loaded would be lost without a word."""
    outer = {**outer, "state": {str(number): own for number, own in outer["state"].items()}}
    return {**outer, "entries": _entries(outer)}


def _numbered(outer: dict[str, Any]) -> dict[str, Any]:
    """The other way; torch ignores states that it does not know."""
    kept = {name: value for name, value in outer.items() if name != "entries"}
    return {**kept, "state": {int(number): own for number, own in outer.get("state", {}).items()}}


def _digest(tensor: torch.Tensor) -> int:
    flat = tensor.detach().contiguous().reshape(-1).view(torch.uint8).cpu()
    return zlib.crc32(flat.numpy().data)


def _start_alike(wire: Wire, model: nn.Module) -> None:
    """Gives all ranks the tensors of rank 0. Those that differ are sent, once, uncompressed; mostly there are none."""
    plain = bare(model)
    tensors = {name: tensor for name, tensor in [*plain.named_parameters(), *plain.named_buffers()] if tensor.numel()}
    numbers = wire.gather([len(tensors)])
    for rank, (number,) in enumerate(numbers):
        if number != numbers[0][0]:
            raise LayoutMismatch(f"the model of rank {rank} has {number} tensors, that of rank 0 {numbers[0][0]}")
    kinds = wire.gather([zlib.crc32(f"{name} {list(t.shape)} {t.dtype}".encode()) for name, t in tensors.items()])
    for i, name in enumerate(tensors):
        for rank, its in enumerate(kinds):
            if its[i] != kinds[0][i]:
                raise LayoutMismatch(
                    f"the model of rank {rank} is another than that of rank 0: {name} has another name, shape or "
                    "dtype there"
                )
    digests = wire.gather([_digest(tensor) for tensor in tensors.values()])
    differing = [name for i, name in enumerate(tensors) if len({its[i] for its in digests}) > 1]
    for name in differing:
        wire.spread(tensors[name])
    if differing:
        some = ", ".join(differing[:3]) + (", ..." if len(differing) > 3 else "")
        words = "ranks started from different values: those of rank 0 are used for %d tensors (%s)"
        _log.warning(words, len(differing), some)
