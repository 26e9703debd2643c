# SPDX-License-Identifier: Apache-2.0
"""torch.distributed.checkpoint loads into what it is given. So it must be given places for what ranks saved."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch


def template(
    checkpoint: Any, key: str, needed: Callable[[Sequence[str], bool], Sequence[str]], inside: tuple[str, ...] = ()
) -> dict[str, Any]:
    """A state dict like the saved one, with places for the ranks that are needed of those that saved.

    `needed` is told their keys, and whether they shared hosts. `inside`: where in the state the ranks are.
    """
    from torch.distributed.checkpoint.filesystem import FileSystemReader
    from torch.distributed.checkpoint.metadata import TensorStorageMetadata
    from torch.distributed.checkpoint.storage import StorageReader

    reader = checkpoint if isinstance(checkpoint, StorageReader) else FileSystemReader(checkpoint)
    metadata = reader.read_metadata()
    start = tuple(key.split("."))
    saved = {
        path[len(start) :]: metadata.state_dict_metadata[name]
        for name, path in (metadata.planner_data or {}).items()
        if tuple(map(str, path))[: len(start)] == start
    }
    of_ranks, depth = (*inside, "ranks"), len(inside) + 1
    ranks = list(dict.fromkeys(str(path[depth]) for path in saved if path[:depth] == of_ranks))
    if not ranks:
        tops = sorted({str(path[0]) for path in (metadata.planner_data or {}).values()})
        raise ValueError(f"the checkpoint has no state of compression under {key!r}; it has {', '.join(tops)}")
    # With more ranks now some take over nothing: for these, what all have alike.
    wanted = set(needed(ranks, (*inside, "hosts") in saved)) or {ranks[0]}
    result: dict[str, Any] = {}
    for path, entry in saved.items():
        if path[:depth] == of_ranks and str(path[depth]) not in wanted:
            continue
        if isinstance(entry, TensorStorageMetadata):
            _put(result, path, torch.empty(entry.size, dtype=entry.properties.dtype))
        else:
            _put(result, path, 0)
    return result


def _put(place: Any, path: Sequence[str | int], value: Any) -> None:
    """Into dicts, and where the path has a number into lists."""
    for at, key in enumerate(path):
        if isinstance(key, int):
            place.extend([None] * (key + 1 - len(place)))
        following = value if at + 1 == len(path) else [] if isinstance(path[at + 1], int) else {}
        if isinstance(key, int) and place[key] is None or not isinstance(key, int) and key not in place:
            place[key] = following
        place = place[key]
