# SPDX-License-Identifier: Apache-2.0
"""compress, comm_hook and reduce_gradients: the ways in."""

# Annotations are objects here, not text: torch looks at those of a hook.
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Optional, Union, overload

import torch
from torch import nn
from torch._C._distributed_c10d import GradBucket

from ..spec import Spec
from .fsdp import ShardedCompression, is_sharded
from .options import Options, ShardedOptions
from .policy import wrapper
from .state import CompressionState

if TYPE_CHECKING:
    from torch.distributed.fsdp import FSDPModule
    from typing_extensions import Unpack


def comm_hook(state: CompressionState, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    """For `model.register_comm_hook(state, comm_hook)`.

    It marks the bucket's gradients ready and returns at once. The futures of all buckets of a step complete together,
    after all ranks have agreed that the step is applied; they then hold the means.
    """
    if isinstance(bucket, tuple):
        raise TypeError(
            "a hook was given a gradient without its bucket: with torch._dynamo.config.optimize_ddp = 'python_reducer' "
            "gradients cannot be compressed. Leave it at True"
        )
    future: torch.futures.Future[torch.Tensor] = state._take(bucket)
    return future


@overload
def compress(
    model: nn.parallel.DistributedDataParallel, spec: Union[str, Spec], **options: "Unpack[Options]"
) -> CompressionState: ...


@overload
def compress(
    model: "FSDPModule", spec: Union[str, Spec, None] = None, **options: "Unpack[ShardedOptions]"
) -> ShardedCompression: ...


@overload
def compress(
    model: nn.Module, spec: Union[str, Spec], **options: "Unpack[Options]"
) -> Union[CompressionState, ShardedCompression]: ...


@overload
def compress(
    model: nn.Module, spec: Union[str, Spec, None] = None, **options: "Unpack[ShardedOptions]"
) -> Union[CompressionState, ShardedCompression]: ...


def compress(
    model: Any, spec: Union[str, Spec, None] = None, **options: Any
) -> Union[CompressionState, ShardedCompression]:
    """Compresses the gradients of a DistributedDataParallel model, or of one that fully_shard was applied to, from now
    on; all ranks call it together.

    >>> state = tersegrad.torch.compress(ddp_model, "topk:density=0.01", feedback="ef")   # doctest: +SKIP

    Options are those of CompressionState, and with fully_shard of ShardedCompression: there the spec may be left out, and
    is 'qsgd'. Save `state.state_dict()` beside the model's, or a resumed run will not be
    the same: residuals hold what was not sent yet.
    """
    if is_sharded(model):
        unknown = [repr(name) for name in options if name not in ShardedOptions.__annotations__]
        if unknown:
            raise TypeError(
                f"with fully_shard, compress has no {', '.join(unknown)}; its options are "
                f"{', '.join(sorted(ShardedOptions.__annotations__))}"
            )
        return ShardedCompression(model, spec, **options)
    ddp = wrapper(model)
    if ddp is None:
        raise TypeError(
            f"compress takes a DistributedDataParallel model, or one that fully_shard was applied to, not "
            f"{type(model).__name__}: wrap it first, or use CompressionState with reduce_gradients"
        )
    if spec is None:
        raise TypeError("compress needs a spec, such as 'qsgd' or 'topk:density=0.01'")
    if getattr(ddp, "mixed_precision", None) is not None:
        raise TypeError(
            "DistributedDataParallel with mixed_precision= has a hook of its own, and takes no other: use torch.autocast, "
            "or a model in bfloat16"
        )
    state = CompressionState(model, spec, **options)
    ddp.register_comm_hook(state, comm_hook)
    return state


def reduce_gradients(parameters: Optional[Iterable[torch.Tensor]], state: CompressionState) -> None:
    """Replaces `.grad` by the mean of all ranks, without DistributedDataParallel: call it after backward.

    `parameters` are those of the state's model that take part in this step; None means all. Where `.grad` is None, this
    rank has none: it sends nothing, its residual waits, and it gets the mean of the others (zeros if there are none).
    Parameters that are not trained (`requires_grad` is False) are left out.
    """
    state._live()
    chosen = None if parameters is None else {parameter for parameter in parameters if parameter.requires_grad}
    for parameter in chosen or ():
        if parameter not in state._index:
            raise ValueError("a parameter of another model, or one that is not trained, was given to reduce_gradients")
    state._reduce(chosen)
