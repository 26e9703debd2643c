# SPDX-License-Identifier: Apache-2.0
"""Which parameters are compressed, and how. What must not be compressed is left alone by default."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Union

import torch
from torch import nn

from .._library import Dtype
from ..reducer import TensorSpec
from ..spec import FeedbackSpec, Spec

DTYPES = {torch.float32: Dtype.FLOAT32, torch.float16: Dtype.FLOAT16, torch.bfloat16: Dtype.BFLOAT16}
NONE, NO_FEEDBACK = Spec("none"), FeedbackSpec("none")

Rule = Union[None, str, Spec, "tuple[Union[str, Spec], Union[str, FeedbackSpec, None]]"]


def default_feedback(spec: Spec) -> FeedbackSpec:
    """Sparsifiers and 1-bit codes leave out so much that they need their error back; the others do without."""
    return FeedbackSpec("ef" if spec.codec.sparse or spec.name == "onebit" else "none")


@dataclass(frozen=True)
class Choice:
    """How one parameter is sent, and why."""

    name: str
    count: int
    dtype: torch.dtype
    spec: Spec
    feedback: FeedbackSpec
    reason: str

    @property
    def compressed(self) -> bool:
        """It is not sent as it is."""
        return self.spec.name != "none"

    def tensor(self, insist: bool) -> TensorSpec:
        """For a reducer."""
        return TensorSpec(self.name, self.count, DTYPES[self.dtype], self.spec, self.feedback, insist)


@dataclass(frozen=True)
class Policy:
    """Settings that decide how each parameter is sent.

    spec, feedback   for all that nothing below speaks of; feedback None: 'ef' for sparsifiers and onebit, else 'none'
    rules            name pattern (as of the shell: 'encoder.*.weight') to a spec, a pair (spec, feedback), or None for
                     "as it is"; the first that matches decides, before exclusions and the minimum size
    min_size         parameters of fewer elements travel as they are
    exclude          name patterns of parameters that travel as they are
    exclude_norms    biases, and all parameters of normalisation layers, travel as they are
    """

    spec: Spec
    feedback: FeedbackSpec
    rules: tuple[tuple[str, Rule], ...] = ()
    min_size: int = 10_000
    exclude: tuple[str, ...] = ()
    exclude_norms: bool = True

    @classmethod
    def of(
        cls,
        spec: str | Spec,
        feedback: str | FeedbackSpec | None,
        rules: Mapping[str, Rule] | Sequence[tuple[str, Rule]] = (),
        min_size: int = 10_000,
        exclude: Iterable[str] = (),
        exclude_norms: bool = True,
    ) -> Policy:
        """From what a user types."""
        codec, loop = _pair((spec, feedback))
        pairs = tuple(rules.items()) if isinstance(rules, Mapping) else tuple(rules)
        for _, rule in pairs:
            _pair(rule)  # a mistake is found now, not at the first parameter that it matches
        if isinstance(exclude, str):
            raise TypeError(f"exclude must be a list of patterns: ['{exclude}']")
        return cls(codec, loop, pairs, min_size, tuple(exclude), exclude_norms)

    def choose(self, name: str, parameter: torch.Tensor, norm: bool) -> Choice:
        """How this parameter is sent."""
        dtype = parameter.dtype
        if dtype not in DTYPES:
            raise TypeError(f"{name} has gradients of {dtype}: only float32, float16 and bfloat16 can be compressed")

        def choice(spec: Spec, feedback: FeedbackSpec, reason: str) -> Choice:
            return Choice(name, parameter.numel(), dtype, spec, feedback, reason)

        for pattern, rule in self.rules:
            if fnmatch.fnmatchcase(name, pattern):
                return choice(*_pair(rule), f"rule {pattern!r}")
        for pattern in self.exclude:
            if fnmatch.fnmatchcase(name, pattern):
                return choice(NONE, NO_FEEDBACK, f"excluded by {pattern!r}")
        if self.exclude_norms and norm:
            return choice(NONE, NO_FEEDBACK, "normalisation")
        if self.exclude_norms and name.rsplit(".", 1)[-1].startswith("bias"):
            return choice(NONE, NO_FEEDBACK, "bias")
        if parameter.numel() < self.min_size:
            return choice(NONE, NO_FEEDBACK, f"fewer than {self.min_size} elements")
        return choice(self.spec, self.feedback, "")


def _pair(rule: Any) -> tuple[Spec, FeedbackSpec]:
    if rule is None:
        return NONE, NO_FEEDBACK
    spec, feedback = rule if isinstance(rule, tuple) else (rule, None)
    codec = Spec(spec)
    return codec, default_feedback(codec) if feedback is None else FeedbackSpec(feedback)


def _is_norm(module: nn.Module) -> bool:
    return "norm" in type(module).__name__.lower()


def bare(model: nn.Module) -> nn.Module:
    """The user's model, without DistributedDataParallel and torch.compile around it."""
    while True:
        if isinstance(model, nn.parallel.DistributedDataParallel):
            model = model.module
        elif isinstance(getattr(model, "_orig_mod", None), nn.Module):
            model = model._orig_mod  # type: ignore[assignment]
        else:
            return model


def wrapper(model: nn.Module) -> nn.parallel.DistributedDataParallel | None:
    """The DistributedDataParallel in it, which may be inside of torch.compile; None if there is none."""
    inner = getattr(model, "_orig_mod", model)
    return inner if isinstance(inner, nn.parallel.DistributedDataParallel) else None


def parameters_of(model: nn.Module) -> list[tuple[str, nn.Parameter, bool]]:
    """(name, parameter, whether it is of a normalisation layer): those that are trained, in the order of reducing.

    That is the reverse order of registration, in which gradients become ready, about. It depends on the model alone,
    never on the buckets of DistributedDataParallel: those change after the first step, and with their size.
    """
    ignored: set[str] = set(getattr(bare(model), "_ddp_params_and_buffers_to_ignore", ()))
    result: list[tuple[str, nn.Parameter, bool]] = []
    seen: set[int] = set()
    for prefix, module in bare(model).named_modules():
        for local, parameter in module.named_parameters(recurse=False):
            name = f"{prefix}.{local}" if prefix else local
            name = name.replace("_orig_mod.", "")
            if id(parameter) not in seen and parameter.requires_grad and name not in ignored:
                seen.add(id(parameter))
                result.append((name, parameter, _is_norm(module)))
    if not result:
        raise ValueError("the model has no parameters that are trained: there is nothing to compress")
    return result[::-1]


def choices_of(model: nn.Module, policy: Policy) -> list[Choice]:
    """How every parameter of a model is sent, in the order of reducing."""
    return [policy.choose(name, p, norm) for name, p, norm in parameters_of(model)]
