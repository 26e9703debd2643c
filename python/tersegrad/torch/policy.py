# SPDX-License-Identifier: Apache-2.0
"""Which parameters are compressed, and how. What must not be compressed is left alone by default."""

from __future__ import annotations

import difflib
import fnmatch
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Union

import torch
from torch import nn

from .._library import Dtype
from ..checked import whole
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

    def tensor(self, insist: bool, order: Sequence[int] = ()) -> TensorSpec:
        """For a reducer. The order of dimensions in memory is part of the name, where it is not that of the shape:
        ranks that differ in it, and states of another order, are then refused."""
        name = self.name + (f" (in memory: {', '.join(map(str, order))})" if list(order) != sorted(order) else "")
        return TensorSpec(name, self.count, DTYPES[self.dtype], self.spec, self.feedback, insist)


@dataclass(frozen=True)
class Policy:
    """Settings that decide how each parameter is sent.

    spec, feedback   for all that nothing below speaks of; feedback None: 'ef' for sparsifiers and onebit, else 'none'
    rules            name pattern (as of the shell: 'encoder.*.weight') to a spec, a pair (spec, feedback), or None for
                     "as it is"; the first that matches decides, before exclusions and the minimum size
    min_size         parameters of fewer elements travel as they are
    exclude          name patterns of parameters that travel as they are
    exclude_norms    biases, and all parameters of normalisation layers, travel as they are. A bias has at most one
                     dimension, and a name that is `bias`, begins with `bias_` or ends with `_bias`. A normalisation
                     layer is one of torch's, or has `Norm` as a word of its class's name: RMSNorm, LayerNorm2d
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
        codec, loop = spec_and_feedback((spec, feedback))
        pairs = tuple(rules.items()) if isinstance(rules, Mapping) else tuple(rules)
        for _, rule in pairs:
            spec_and_feedback(rule)  # a mistake is found now, not at the first parameter that it matches
        if isinstance(exclude, str):
            raise TypeError(f"exclude must be a list of patterns: ['{exclude}']")
        return cls(codec, loop, pairs, whole("min_size", min_size), tuple(exclude), exclude_norms)

    def specs(self) -> list[Spec]:
        """Every spec that a parameter may be sent by."""
        return [self.spec, *(spec_and_feedback(rule)[0] for _, rule in self.rules)]

    def check_patterns(self, model: nn.Module) -> None:
        """Each must match a parameter, trained or not: one that matches nothing has a mistake in it."""
        names = [clean(name) for name, _ in bare(model).named_parameters(remove_duplicate=False)]
        patterns = [("rules", pattern) for pattern, _ in self.rules]
        patterns += [("exclude", pattern) for pattern in self.exclude]
        for option, pattern in patterns:
            if names and not any(fnmatch.fnmatchcase(name, pattern) for name in names):
                like = difflib.get_close_matches(pattern, names, 1, 0.0) or names
                raise ValueError(
                    f"{option} has the pattern {pattern!r}, which matches no parameter: names are those of the bare "
                    f"model, such as {like[0]!r}"
                )

    def choose(self, name: str, parameter: torch.Tensor, norm: bool) -> Choice:
        """How this parameter is sent."""
        dtype = parameter.dtype
        if dtype not in DTYPES:
            raise TypeError(
                f"{name} has gradients of {dtype}, and only those of float32, float16 and bfloat16 can be reduced here, "
                "compressed or not. Convert it; or name it in DistributedDataParallel's "
                "_set_params_and_buffers_to_ignore_for_model(model, names), which sets "
                "model._ddp_params_and_buffers_to_ignore, and reduce its gradient yourself"
                + ("" if "." in name else f". There its name is '.{name}', with a dot, as it is in no module of the model")
            )

        def choice(spec: Spec, feedback: FeedbackSpec, reason: str) -> Choice:
            return Choice(name, parameter.numel(), dtype, spec, feedback, reason)

        for pattern, rule in self.rules:
            if fnmatch.fnmatchcase(name, pattern):
                return choice(*spec_and_feedback(rule), f"rule {pattern!r}")
        for pattern in self.exclude:
            if fnmatch.fnmatchcase(name, pattern):
                return choice(NONE, NO_FEEDBACK, f"excluded by {pattern!r}")
        if self.exclude_norms and norm:
            return choice(NONE, NO_FEEDBACK, "normalisation")
        if self.exclude_norms and is_bias(name, parameter):
            return choice(NONE, NO_FEEDBACK, "bias")
        if parameter.numel() < self.min_size:
            return choice(NONE, NO_FEEDBACK, f"fewer than {self.min_size} elements")
        return choice(self.spec, self.feedback, "")


def spec_and_feedback(rule: Any) -> tuple[Spec, FeedbackSpec]:
    """From a rule."""
    if rule is None:
        return NONE, NO_FEEDBACK
    spec, feedback = rule if isinstance(rule, tuple) else (rule, None)
    codec = Spec(spec)
    return codec, default_feedback(codec) if feedback is None else FeedbackSpec(feedback)


_BIAS = re.compile(r"bias|bias_.*|.*_bias")
_NORM = re.compile(r"[Nn]orm(ali[sz]ation)?(?![a-z])")  # a word of its own: not that of NormalHead
# _NormBase is that of batches and instances; RMSNorm came with torch 2.4.
_NORMS: tuple[type[nn.Module], ...] = (nn.LayerNorm, nn.GroupNorm, nn.modules.batchnorm._NormBase)
_NORMS += (nn.RMSNorm,) if hasattr(nn, "RMSNorm") else ()


def is_bias(name: str, parameter: torch.Tensor) -> bool:
    """By its name: `bias`, `bias_ih_l0` of an LSTM, `in_proj_bias` of attention. A matrix is none."""
    return parameter.dim() <= 1 and _BIAS.fullmatch(name.rsplit(".", 1)[-1]) is not None


def is_norm(module: nn.Module) -> bool:
    """One of torch's normalisation layers, or called one."""
    return isinstance(module, _NORMS) or _NORM.search(type(module).__name__) is not None


def clean(name: str) -> str:
    """A parameter's name without what torch.compile puts in."""
    return name.replace("_orig_mod.", "")


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


def _ignored(model: nn.Module) -> tuple[nn.Module, set[str]]:
    """The names that DistributedDataParallel leaves alone, as it reads them: in the module that it was given, which may
    be of torch.compile, and with a dot before a parameter of that module itself."""
    ddp = wrapper(model)
    if ddp is not None:
        return ddp.module, set(ddp.parameters_to_ignore)  # also those of delay_all_reduce_named_params
    return model, set(getattr(model, "_ddp_params_and_buffers_to_ignore", ()))


def check_whole(parameters: Iterable[tuple[str, torch.Tensor, bool]]) -> None:
    """Refuses those of which a rank has only a part."""
    try:
        from torch.distributed.tensor import DTensor
    except ImportError:  # torch before 2.5
        return
    for name, parameter, _ in parameters:
        if isinstance(parameter, DTensor):
            raise TypeError(
                f"{name} is a DTensor, and CompressionState and LocalSGD take parameters that every rank has whole. Use "
                "compress(model, spec) for a model of fully_shard; there is nothing for other DTensors"
            )


def parameters_of(model: nn.Module) -> list[tuple[str, nn.Parameter, bool]]:
    """(name, parameter, whether it is of a normalisation layer): those that are trained, in the order of reducing.

    That is the reverse order of registration, in which gradients become ready, about. It depends on the model alone,
    never on the buckets of DistributedDataParallel: those change after the first step, and with their size.
    """
    root, ignored = _ignored(model)
    result: list[tuple[str, nn.Parameter, bool]] = []
    seen: set[int] = set()
    for prefix, module in root.named_modules():
        for local, parameter in module.named_parameters(recurse=False):
            if id(parameter) not in seen and parameter.requires_grad and f"{prefix}.{local}" not in ignored:
                seen.add(id(parameter))
                result.append((clean(f"{prefix}.{local}" if prefix else local), parameter, is_norm(module)))
    if not result:
        raise ValueError("the model has no parameters that are trained: there is nothing to compress")
    return result[::-1]


def memory_order(tensor: torch.Tensor) -> tuple[int, ...]:
    """The dimensions of a tensor from the outermost to the innermost in memory: (0, 2, 3, 1) for channels_last. In this
    order DistributedDataParallel lays out its gradient. As of the shape if its elements do not lie side by side."""
    strides = tensor.stride()
    # A dimension of one element lies anywhere: it stays in its place as far as it can.
    order = sorted(range(tensor.dim()), key=lambda d: -strides[d] if tensor.shape[d] > 1 else -math.inf)
    dense = tensor.permute(order).is_contiguous()
    return tuple(order) if dense and not tensor.is_contiguous() else tuple(range(tensor.dim()))


def unpermuted(tensor: torch.Tensor, order: Sequence[int]) -> torch.Tensor:
    """What `permute(order)` was applied to."""
    return tensor.permute([order.index(d) for d in range(len(order))])


def choices_of(model: nn.Module, policy: Policy) -> list[Choice]:
    """How every parameter of a model is sent, in the order of reducing."""
    policy.check_patterns(model)
    return [policy.choose(name, p, norm) for name, p, norm in parameters_of(model)]
