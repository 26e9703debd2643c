# SPDX-License-Identifier: Apache-2.0
"""Local steps for slow links: ranks train alone for a while, then agree on a compressed step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from ..spec import Spec
from .hook import reduce_gradients
from .state import CompressionState


class LocalSGD:
    """Every `every` local steps, ranks exchange how far they have moved, compressed with feedback.

        local = LocalSGD(model, lambda p: torch.optim.SGD(p, lr=0.7, momentum=0.9, nesterov=True), every=50, spec="topk:density=0.01")
        for batch in data:
            loss(model, batch).backward()
            optimizer.step()                 # the rank's own optimizer, on its own gradients
            optimizer.zero_grad()
            local.step()

    model            a plain module, not DistributedDataParallel; all ranks start from the same parameters
    outer_optimizer  makes the optimizer for the common step from a list of parameters: its gradient is the mean over
                     ranks of (parameters at the last common step - parameters now)
    every            local steps between common ones

    Other options are those of CompressionState. After a common step all ranks have the same parameters, to the bit. Save
    `state_dict` right after one: a run with another number of ranks goes on from there. What a rank's own optimizer keeps
    (momentum) stays with the rank.
    """

    def __init__(
        self,
        model: nn.Module,
        outer_optimizer: Callable[[list[torch.Tensor]], torch.optim.Optimizer],
        *,
        every: int,
        spec: str | Spec,
        **options: Any,
    ) -> None:
        if isinstance(model, nn.parallel.DistributedDataParallel):
            raise TypeError("LocalSGD takes a plain module: DistributedDataParallel would exchange gradients in every step")
        if every < 1:
            raise ValueError(f"every is {every}: it must be 1 or more")
        self.every = every
        self.state = CompressionState(model, spec, **options)
        self._parameters = self.state._parameters
        self._common = [parameter.detach().clone() for parameter in self._parameters]
        self._outer = outer_optimizer(self._common)
        self._steps = 0

    def step(self) -> bool:
        """Call it after every local step; true if this was followed by a common one."""
        self._steps += 1
        if self._steps % self.every != 0:
            return False
        kept = [parameter.grad for parameter in self._parameters]
        with torch.no_grad():
            for parameter, common in zip(self._parameters, self._common):
                parameter.grad = common - parameter
            reduce_gradients(None, self.state)
            for parameter, common in zip(self._parameters, self._common):
                common.grad = parameter.grad
            self._outer.step()
            for parameter, common, gradient in zip(self._parameters, self._common, kept):
                parameter.copy_(common)
                common.grad, parameter.grad = None, gradient
        return True

    def state_dict(self) -> dict[str, Any]:
        """The parameters of the last common step, the outer optimizer, residuals, and the number of steps."""
        names = [choice.name for choice in self.state.choices]
        return {
            "steps": self._steps,
            "common": {name: tensor.clone() for name, tensor in zip(names, self._common)},
            "outer": self._outer.state_dict(),
            "compression": self.state.state_dict(),
        }

    def load_state_dict(self, saved: dict[str, Any], compression: Any = None) -> None:
        """Goes on from a common step. `compression`: a list of what all ranks saved under that key, where the number of
        ranks has changed."""
        with torch.no_grad():
            for choice, parameter, common in zip(self.state.choices, self._parameters, self._common):
                common.copy_(saved["common"][choice.name])
                parameter.copy_(common)
        self._outer.load_state_dict(saved["outer"])
        self.state.load_state_dict(saved["compression"] if compression is None else compression)
        self._steps = int(saved["steps"]) // self.every * self.every
