# SPDX-License-Identifier: Apache-2.0
"""Work that goes on behind a backward pass, and is done when the pass returns."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

import torch

from .worker import PATIENCE


class _Task:
    def __init__(self, work: Callable[[], None]) -> None:
        self.work = work
        self.done = threading.Event()
        self.problem: BaseException | None = None


class Behind:
    """A thread that does what it is given, in this order."""

    def __init__(self, name: str) -> None:
        self._tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._pending: list[_Task] = []
        self._thread = threading.Thread(target=_run, args=(self._tasks,), name=name, daemon=True)
        self._thread.start()

    def start(self, work: Callable[[], None]) -> None:
        """Begins it. Before the backward pass that is under way returns, `finish` is called; if there is none, now."""
        task = _Task(work)
        self._pending.append(task)
        self._tasks.put(task)
        try:
            # Each time: after a pass that failed, its callback has not come, and this may be another pass.
            torch.autograd.Variable._execution_engine.queue_callback(self.finish)
        except RuntimeError:
            self.finish()

    def wait(self) -> None:
        """Until all is done; `finish` will raise what went wrong."""
        for task in self._pending:
            task.done.wait()

    def finish(self) -> None:
        """Waits until all is done, and raises what went wrong first."""
        self.wait()
        pending, self._pending = self._pending, []
        for task in pending:
            if task.problem is not None:
                raise task.problem

    def close(self) -> bool:
        """Ends the thread, after what it is doing; false if that waits for bytes that will not come."""
        self._tasks.put(None)
        self._thread.join(PATIENCE)
        return not self._thread.is_alive()

    def __del__(self) -> None:
        self._tasks.put(None)  # this may be the thread itself


def _run(tasks: queue.SimpleQueue[_Task | None]) -> None:
    while (task := tasks.get()) is not None:
        try:
            task.work()
        except BaseException as problem:  # whoever waits must hear of it
            task.problem = problem
        task.done.set()
        del task
