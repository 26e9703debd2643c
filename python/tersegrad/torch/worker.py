# SPDX-License-Identifier: Apache-2.0
"""The threads of a CompressionState: one that codes, one that waits for exchanges.

The backward pass only puts gradients into a queue. The coding thread feeds them to the reducer, starts exchanges and
takes what came; the other waits for exchanges in the order of their start and says so in the same queue, so that one
queue is all that the coding thread ever waits for. Both hold the interpreter lock only between calls.
"""

from __future__ import annotations

import atexit
import ctypes
import queue
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .._library import Status, tg_tensor
from ..errors import Error
from ..reducer import Reducer, Reduction
from .exchange import Pending, Wire

# Exchanges under way at once: enough to keep a wire busy, and few enough for every back end.
MOST_UNDER_WAY = 256

# Outcomes that all ranks have in common, after which they may go on.
RECOVERABLE = frozenset({Status.NONFINITE, Status.SKIPPED})


@dataclass
class Given:
    """A gradient; or, where it is absent, the place for the mean, or None if nobody wants it."""

    index: int
    tensor: tg_tensor | None
    absent: bool
    arrive: Callable[[], None] | None = None
    """Waits until the data are in the tensor: copies from a card are under way."""


@dataclass
class Job:
    """One step. `finish` is called once on the coding thread, with None or what went wrong."""

    step: int
    finish: Callable[[BaseException | None], None]
    prepare: Callable[[], None]
    """Called first, on the coding thread."""
    given: int = 0
    complete: bool = field(default=False)


@dataclass
class _Arrived:
    pending: Pending
    problem: BaseException | None


class _Last:
    """All gradients of the step have been given."""


_cores: weakref.WeakSet[_Core] = weakref.WeakSet()
_threads: set[threading.Thread] = set()
PATIENCE = 5.0  # seconds, for a thread to end


@atexit.register
def _end_all() -> None:
    # A thread that the interpreter ends inside of torch takes the process with it: also one that is freeing the process
    # group as its last owner. So all end before, unless one waits for bytes that will not come.
    for core in list(_cores):
        core.close()
    for thread in _threads:
        thread.join(PATIENCE)
    for core in list(_cores):
        if core.failed or any(thread.is_alive() for thread in core.threads):
            leave(core)
        else:
            core.wire.close()


def leave(thing: Any) -> None:
    """Keeps it to the end of the process. If a wire goes while a thread is in it, or a message under way, that thread
    wakes up in an interpreter that has ended, and takes the process with it."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


class Worker:
    """Both threads. `broken` is what made an exchange fail: after that there is no next step."""

    def __init__(self, reducer: Reducer, wire: Wire, name: str) -> None:
        self.broken: BaseException | None = None
        self.wait_seconds = 0.0
        """Waiting for bytes when all gradients had been given."""
        self._core = core = _Core(reducer, wire)
        code = threading.Thread(target=_code, args=(core, weakref.ref(self)), name=name, daemon=True)
        wait = threading.Thread(target=_await, args=(core,), name=f"{name}-wait", daemon=True)
        _cores.add(core)
        _threads.difference_update([thread for thread in _threads if not thread.is_alive()])
        core.threads = [code, wait]
        for thread in core.threads:
            thread.start()
            _threads.add(thread)

    def use(self, reducer: Reducer) -> None:
        """Another one, between steps."""
        self._core.reducer = reducer

    def begin(self, job: Job) -> None:
        """Starts a step."""
        self._core.events.put(job)

    def give(self, given: Given) -> None:
        """A gradient of the step that was started last."""
        self._core.events.put(given)

    def last(self) -> None:
        """There are no more of them."""
        self._core.events.put(_Last())

    def __del__(self) -> None:
        if hasattr(self, "_core"):
            self._core.close()


class _Core:
    """What the threads share. They do not hold the Worker, so that it can end them when it goes."""

    def __init__(self, reducer: Reducer, wire: Wire) -> None:
        self.reducer, self.wire = reducer, wire
        self.events: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.started: queue.SimpleQueue[Pending | None] = queue.SimpleQueue()
        self.threads: list[threading.Thread] = []
        self.failed = False
        self.closed = False
        """The coding thread has been told to end."""

    def close(self) -> None:
        """Ends both threads, after what they are doing."""
        self.events.put(None)
        self.started.put(None)


def _await(core: _Core) -> None:
    while (pending := core.started.get()) is not None:
        problem: BaseException | None = None
        try:
            pending.wait()
        except BaseException as caught:  # whatever it is, the coding thread must hear of it
            problem = caught
        core.events.put(_Arrived(pending, problem))
        del pending, problem  # an error knows the step, and through it the state, that this thread must not keep


def _code(core: _Core, owner: weakref.ref[Worker]) -> None:
    # Only a Job or None can come between steps, but for exchanges of a step that failed. In a step None may have come too.
    while not core.closed and (event := core.events.get()) is not None:
        if not isinstance(event, Job):
            continue
        step = _Step(core, event)
        problem: BaseException | None = None
        try:
            event.prepare()
            step.run()
        except BaseException as caught:
            problem = caught
            step.drain()
        core.failed = core.failed or step.failed or (problem is not None and not step.begun)
        worker = owner()
        if worker is not None:
            worker.wait_seconds += step.wait_seconds
            if step.failed:
                worker.broken = problem
        try:
            event.finish(problem)
        except BaseException as caught:  # the thread must live: what waits for it would wait for ever
            if worker is not None and worker.broken is None:
                worker.broken = caught
        del event, step, worker, problem


class _Step:
    """One reduction from begin to end."""

    def __init__(self, core: _Core, job: Job) -> None:
        self._core, self._job = core, job
        self._reduction: Reduction | None = None
        self._under_way: deque[Pending] = deque()
        self._keep: list[Given] = []
        self.wait_seconds = 0.0
        self.begun = False
        self.failed = False
        """The reducer cannot be used any more."""

    def run(self) -> None:
        self.begun = self.failed = True  # until the outcome is known
        self._reduction = self._core.reducer.begin(self._job.step)
        while not self._advance():
            start = time.perf_counter()
            event = self._core.events.get()
            self.wait_seconds += time.perf_counter() - start if self._job.complete else 0.0
            self._take(event)
            self._take_all()
        reduction, self._reduction = self._reduction, None
        try:
            reduction.end()
        except Error as problem:
            self.failed = problem.status not in RECOVERABLE
            raise
        self.failed = False

    def _advance(self) -> bool:
        """Starts what can be started; true when nothing more will come."""
        assert self._reduction is not None
        while len(self._under_way) < MOST_UNDER_WAY and (raw := self._reduction.next()) is not None:
            pending = self._core.wire.start(raw)
            self._under_way.append(pending)
            self._core.started.put(pending)
            self._take_all()
        return self._job.complete and not self._under_way

    def _take_all(self) -> None:
        while not self._core.events.empty():
            self._take(self._core.events.get())

    def _take(self, event: Any) -> None:
        assert self._reduction is not None
        if isinstance(event, Given):
            self._keep.append(event)
            if event.arrive is not None:
                event.arrive()
            if event.absent or event.tensor is None:
                self._reduction.absent(event.index, event.tensor)
            else:
                self._reduction.ready(event.index, event.tensor)
        elif isinstance(event, _Last):
            self._job.complete = True
        elif isinstance(event, _Arrived):
            if event.problem is not None:
                raise event.problem
            self._under_way.popleft()
            self._reduction.feed(event.pending.raw)
        elif event is None:
            self._core.closed = True
            if not self._job.complete:  # else it can be brought to its end
                raise RuntimeError("the program, or the model, has ended in the middle of a step")
        else:
            raise RuntimeError("a step was started before the one before it had all its gradients")

    def drain(self) -> None:
        """After a failure: gives the reduction back, and takes the rest of the step's gradients."""
        if self._reduction is not None:
            self._reduction.abandon()
            if self._under_way:
                self._core.reducer.forget()  # the wire may still write to its memory
        while not self._job.complete and not self._core.closed:
            event = self._core.events.get()
            self._core.closed = event is None
            self._job.complete = isinstance(event, _Last)
