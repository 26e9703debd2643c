# SPDX-License-Identifier: Apache-2.0
"""Real ranks for tests: processes with a gloo group, started once, that run functions of a module and answer.

Nothing here fails because a machine is busy: timeouts are far beyond what any test needs, and end what hangs.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import sys
import tempfile
import traceback
from datetime import timedelta
from typing import Any, Callable

HANG = 1500.0  # seconds


def _serve(rank: int, world: int, store: str, path: list[str], pipe: Any) -> None:
    sys.path[:] = path
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=world, timeout=timedelta(seconds=HANG)
    )
    while (order := pipe.recv()) is not None:
        module, name, arguments = order
        try:
            answer = (True, getattr(importlib.import_module(module), name)(rank, *arguments))
        except BaseException:
            answer = (False, traceback.format_exc())
        pipe.send(answer)
    dist.destroy_process_group()


class Ranks:
    """`world` processes; `run` calls function(rank, *arguments) on each and gives the list of what they return."""

    def __init__(self, world: int) -> None:
        self._folder = tempfile.TemporaryDirectory()
        context = multiprocessing.get_context("spawn")
        self._pipes, self.processes = [], []
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        for rank in range(world):
            ours, theirs = context.Pipe()
            store = os.path.join(self._folder.name, "store")
            process = context.Process(target=_serve, args=(rank, world, store, list(sys.path), theirs), daemon=True)
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self.processes.append(process)

    def start(self, function: Callable[..., Any], *arguments: Any) -> None:
        for pipe in self._pipes:
            pipe.send((function.__module__, function.__name__, arguments))

    def answer(self, rank: int) -> tuple[bool, Any]:
        """(it returned, what), (it raised, the traceback), or (False, 'died')."""
        if not self._pipes[rank].poll(HANG):
            raise AssertionError(f"rank {rank} does not answer")
        try:
            result: tuple[bool, Any] = self._pipes[rank].recv()
        except (EOFError, ConnectionResetError):
            return False, "died"
        return result

    def run(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        self.start(function, *arguments)
        answers = [self.answer(rank) for rank in range(len(self._pipes))]
        for rank, (good, what) in enumerate(answers):
            assert good, f"rank {rank}:\n{what}"
        return [what for _, what in answers]

    def close(self) -> None:
        for pipe, process in zip(self._pipes, self.processes):
            try:
                pipe.send(None)
            except OSError:
                pass
        for process in self.processes:
            process.join(60)
            if process.is_alive():
                process.kill()
        self._folder.cleanup()
