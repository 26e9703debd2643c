# SPDX-License-Identifier: Apache-2.0
"""torch.distributed.checkpoint loads into what it is given. So it must be given places for what ranks saved."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch


def template(checkpoint: Any, key: str, needed: Callable[[Sequence[str], bool], Sequence[str]]) -> dict[str, Any]:
    """A state dict like the saved one, with places for the ranks that are needed of those that saved.

    `needed` is told their keys, and whether they shared hosts.
    """
    from torch.distributed.checkpoint.filesystem import FileSystemReader
    from torch.distributed.checkpoint.metadata import TensorStorageMetadata
    from torch.distributed.checkpoint.storage import StorageReader

    reader = checkpoint if isinstance(checkpoint, StorageReader) else FileSystemReader(checkpoint)
    metadata = reader.read_metadata()
    start = tuple(key.split("."))
    saved = {
        tuple(map(str, path))[len(start) :]: metadata.state_dict_metadata[name]
        for name, path in (metadata.planner_data or {}).items()
        if tuple(map(str, path))[: len(start)] == start
    }
    ranks = list(dict.fromkeys(path[1] for path in saved if path[0] == "ranks"))
    if not ranks:
        tops = sorted({str(path[0]) for path in (metadata.planner_data or {}).values()})
        raise ValueError(f"the checkpoint has no state of compression under {key!r}; it has {', '.join(tops)}")
    # With more ranks now some take over nothing: for these, what all have alike.
    wanted = set(needed(ranks, ("hosts",) in saved)) or {ranks[0]}
    result: dict[str, Any] = {}
    for path, entry in saved.items():
        if path[0] == "ranks" and path[1] not in wanted:
            continue
        place = result
        for name in path[:-1]:
            place = place.setdefault(name, {})
        if isinstance(entry, TensorStorageMetadata):
            place[path[-1]] = torch.empty(entry.size, dtype=entry.properties.dtype)
        else:
            place[path[-1]] = 0
    return result
