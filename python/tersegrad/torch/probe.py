# SPDX-License-Identifier: Apache-2.0
"""Measures a process group's exchanges and the codecs on its ranks, for `plan`: probe.

The same figures as `tersegrad plan --probe` takes under mpirun, and the same file (docs/planning.md), but over
torch.distributed: what the hook's wire takes, and for the dense baseline torch's own all_reduce.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import platform
import socket
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from ctypes import POINTER, c_size_t, c_void_p, pointer
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from .. import __version__
from .._library import ExchangeRole, tg_exchange, tg_reducer_options, tg_reducer_tensor, tg_tensor
from ..codec import Device, Encoder
from ..described import describe
from ..reducer import ALGORITHMS, Reducer, TensorSpec
from ..spec import FeedbackSpec, Spec
from .exchange import Wire, open_wire
from .plan import spread
from .policy import DTYPES, default_feedback
from .worker import Given, Job, Worker

SIZES = [64 * 4**i for i in range(4)] + [16384 * 2**i for i in range(13)]
TRAIN_BYTES, ROOM, AT_ONCE = 4 << 20, 64 << 20, 32
LEAST_TRIALS, MOST_TRIALS = 3, 32
CODECS: tuple[str, ...] = ("none", "fp16", "qsgd:levels=127", "qsgd:levels=7", "qsgd:coding=entropy", "terngrad", "onebit")
CODECS += ("topk:density=0.01", "topk:density=0.001")


def machine() -> str:
    """The kind of machine, as the command names it: a probe is for machines of its kind."""
    name = ""
    try:
        for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                name = ", " + line.split(":", 1)[1].strip()
                break
    except OSError:
        pass
    count = os.sysconf("SC_NPROCESSORS_ONLN")
    return f"{platform.machine()[:24]}{name[:127]}, {count} processor{'' if count == 1 else 's'}"


def _kernel() -> str:
    """Hosts that run on one kernel, as containers do, share its processors."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text()
    except OSError:
        return socket.gethostname()


class _Ranks:
    """All ranks together: barriers, agreed numbers, and one clock, rank 0's."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self.group, self.rank, self.world = group, dist.get_rank(group), dist.get_world_size(group)
        self.wire: Wire = open_wire(group)
        self._start = time.perf_counter()

    def gather(self, seconds: float) -> list[float]:
        """Every rank's number, in nanoseconds on the way; also a barrier."""
        return [row[0] / 1e9 for row in self.wire.gather([round(seconds * 1e9)])]

    def now(self) -> float:
        return self.gather(time.perf_counter() - self._start)[0]

    def time(self, work: Callable[[], None]) -> list[float]:
        """How long it takes each rank, after a barrier."""
        self.gather(0)
        start = time.perf_counter()
        work()
        return self.gather(time.perf_counter() - start)


class _Exchanges:
    """Trains of exchanges of one size, through the hook's wire."""

    def __init__(self, ranks: _Ranks) -> None:
        self._ranks = ranks
        self._out = torch.ones(ROOM, dtype=torch.uint8)
        self._in = torch.ones(ROOM, dtype=torch.uint8)

    def _make(self, kind: int, size: int, place: int) -> Any:
        world, rank = self._ranks.world, self._ranks.rank
        peers = [peer - (peer > rank) for peer in range(world)]  # their places among the others
        sizes = (c_size_t * world)(*[size] * world)
        send = (c_void_p * world)(*(self._out.data_ptr() + (p * size if kind else 0) for p in peers))
        receive = (c_void_p * world)(*(self._in.data_ptr() + (place * (world - 1) + p) * size for p in peers))
        as_sizes = ctypes.cast(sizes, POINTER(c_size_t))
        exchange = tg_exchange(kind, world, send, as_sizes, receive, as_sizes, (c_size_t * world)())
        exchange.keep = (sizes, send, receive)
        return pointer(exchange)

    def run(self, kind: int, size: int, count: int) -> None:
        """All started, then waited for, as a reduction has many under way."""
        under_way = [self._ranks.wire.start(self._make(kind, size, place)) for place in range(count)]
        for one in under_way:
            one.wait()


class _Point:
    def __init__(self, size: int, messages: int) -> None:
        self.size, self.bytes = size, size * messages
        self.counts = (0, 1)
        self.samples: tuple[list[float], list[float]] = ([], [])

    def choose(self, estimate: float, most: float) -> None:
        """As many as make a train, but none that takes too long: see cli/probe_network.c."""
        count = min(max(TRAIN_BYTES / self.bytes, 8), most / max(estimate, 1e-9))
        longer = int(min(max(count, 2), AT_ONCE, max(1, ROOM // self.bytes)))
        self.counts = (1 if longer > 1 and self.large else longer // 2, longer)

    @property
    def large(self) -> bool:
        return self.bytes >= TRAIN_BYTES / 4

    def slope(self) -> float:
        shorter = statistics.median(self.samples[0]) if self.samples[0] else 0.0
        return max(0.0, statistics.median(self.samples[1]) - shorter) / (self.counts[1] - self.counts[0])


def _points(world: int, rounds: int) -> list[_Point]:
    result: list[_Point] = []
    for size in SIZES:
        message = size // (rounds * (world - 1)) // 4 * 4
        if message and (not result or message > result[-1].size):
            result.append(_Point(message, rounds * (world - 1)))
    return result


def _network(ranks: _Ranks, until: float) -> dict[str, Any]:
    exchanges, most = _Exchanges(ranks), until / 48
    on_card = dist.get_backend(ranks.group) == "nccl"
    floats = torch.ones(ROOM // 4, device="cuda" if on_card else "cpu")

    def all_reduce(point: _Point, count: int) -> None:
        # 2 (P - 1) messages of a share each: a vector of P shares
        dist.all_reduce(floats[: point.size * ranks.world // 4], group=ranks.group)
        if on_card:
            torch.cuda.synchronize()

    works: dict[str, Callable[[_Point, int], None]] = {
        "all-gather": lambda point, count: exchanges.run(0, point.size, count),
        "all-to-all": lambda point, count: exchanges.run(1, point.size, count),
        "ring": all_reduce,
    }
    patterns = {name: _points(ranks.world, 2 if name == "ring" else 1) for name in works}

    def timed(name: str, point: _Point, count: int, rest: float) -> float:
        time.sleep(rest)  # links that let bursts pass have theirs back
        return max(ranks.time(lambda: works[name](point, count)))

    pace = {}
    for name, points in patterns.items():
        before = 0.0
        for i, point in enumerate(points):
            if i > 1 and before * point.bytes / points[i - 1].bytes > most or point.size * ranks.world > ROOM:
                del points[i:]
                break
            before = timed(name, point, 1, 0.05)
            if name != "ring":
                point.choose(before, most)
        pace[name] = before / points[-1].bytes
    singles: dict[str, list[float]] = {name: [] for name in works}
    now, took = ranks.now(), 0.0
    for trial in range(MOST_TRIALS):
        if trial >= LEAST_TRIALS and now + took > until:
            break
        for name, points in patterns.items():
            singles[name].append(timed(name, points[0], 1, 0.001))
            for point in points:
                for samples, count in zip(point.samples, point.counts):
                    if count:
                        rest = min(max(count * point.bytes * pace[name], 0.001), 0.05)
                        samples.append(timed(name, point, count, rest))
        before, now = now, ranks.now()
        took = now - before
    return _summary(patterns, {name: statistics.median(times) for name, times in singles.items()})


def _straight(
    points: Sequence[_Point], found: list[tuple[float, float, float]], ring: bool
) -> list[tuple[float, float, float]]:
    """Large exchanges on a line, as in cli/probe_network.c: proportional to bytes, or for a ring of the median slope."""
    large = [(point.bytes, *one) for point, one in zip(points, found) if point.large]
    if len(large) < 2:
        return found
    if ring:
        pairs = [(b[1] - a[1]) / (b[0] - a[0]) for i, a in enumerate(large) for b in large[i + 1 :]]
        slope = max(0.0, statistics.median(pairs))
        start = statistics.median(one[1] - slope * one[0] for one in large)
    else:
        slope, start = statistics.median(one[1] / one[0] for one in large), 0.0
    down, up = (statistics.median(one[i] for one in large) for i in (2, 3))
    return [
        (max(0.0, start + slope * point.bytes), down, up) if point.large else one for point, one in zip(points, found)
    ]


def _summary(patterns: dict[str, list[_Point]], singles: dict[str, float]) -> dict[str, Any]:
    saved = [
        singles[name] + point.slope() - statistics.median(point.samples[0])
        for name, points in patterns.items()
        for point in points
        if name != "ring" and point.large and point.bytes < TRAIN_BYTES and point.samples[0]
    ]
    burst = max(0.0, statistics.median(saved)) if saved else 0.0
    network = {}
    for name, points in patterns.items():
        ring = name == "ring"
        single, own = 0.0 if ring else singles[name], 0.0 if ring else burst
        rows: list[list[float]] = []
        found = []
        for point in points:
            if point.counts[1] * point.bytes < TRAIN_BYTES / 4:
                each = point.slope()
            else:
                each = max(0.0, statistics.median(point.samples[1]) - single + own) / point.counts[1]
            around = spread(point.samples[1])
            found.append((each, around[1] / max(around[0], 1e-9), around[2] / max(around[0], 1e-9)))
        found = _straight(points, found, ring)
        hidden = 0.0 if ring else max(0.0, single - found[0][0])
        low = middle = high = 0.0
        for point, (each, down, up) in zip(points, found):
            middle = max(middle, hidden + each)
            low, high = max(low, min(1.0, down) * middle), max(high, max(1.0, up) * middle)
            rows.append([point.bytes, round(middle, 9), round(low, 9), round(high, 9)])
        network[name] = {"hidden": min(round(hidden, 9), rows[0][1]), "burst": round(own, 9), "points": rows}
    return network


def _reduction(ranks: _Ranks, reducer: Reducer, tensors: Sequence[tg_tensor], step: int) -> list[float]:
    """Seconds of the rank in the middle for encoding, checking, adding up, and making results, exchange by exchange."""
    seconds, handed = [0.0, 0.0, 0.0, 0.0], 0
    reduction = reducer.begin(step)
    for i, tensor in enumerate(tensors):
        reduction.ready(i, tensor)

    def clocked(stage: int, work: Callable[[], Any]) -> Any:
        answers: list[Any] = []
        seconds[stage] += statistics.median(ranks.time(lambda: answers.append(work())))
        return answers[0]

    while (exchange := clocked(3 if handed else 0, reduction.next)) is not None:
        handed += 1
        ranks.wire.start(exchange).wait()
        clocked(1, lambda: reduction.feed(exchange))
    clocked(2, reduction.end)
    return seconds


@dataclass
class _Counts:
    """What a rank does in a reduction, by the library's description of it."""

    own: int
    """Elements that it encodes of its gradients."""
    made: int
    """Elements that it encodes of means."""
    checked: int
    added: int
    frames: int

    @staticmethod
    def of(world: int, like: tuple[Spec, FeedbackSpec], shape: tuple[int, int], algorithm: str) -> _Counts:
        tensors, elements = shape
        one = {"count": elements, "dtype": DTYPES[torch.float32], "codec": like[0]._raw, "feedback": like[1]._raw, "insist": True}
        given = [tg_reducer_tensor(name=f"t{i}".encode(), **one) for i in range(tensors)]
        options = tg_reducer_options(algorithm=ALGORITHMS[algorithm], batch_elements=tensors * elements)
        info, exchanges = describe(world, given, options)
        made = sum(one.encoded for one in exchanges if one.role == ExchangeRole.ROLE_RESULTS)
        return _Counts(
            own=sum(one.encoded for one in exchanges) - made,
            made=made,
            checked=sum(one.checked for one in exchanges),
            added=sum(one.summed for one in exchanges) + info.applied,
            frames=sum(one.frames for one in exchanges),
        )


def _cool_caches(other: torch.Tensor) -> None:
    """In training the backward pass comes before a reduction, and leaves little of a large gradient and its residual in
    the caches."""
    other.sum()


def _other(elements: int) -> torch.Tensor:
    """What is read for that; of small tensors nothing."""
    return torch.ones(1 << 24 if elements >= 1 << 17 else 0)


def _stages(ranks: _Ranks, like: tuple[Spec, FeedbackSpec], shape: tuple[int, int], algorithm: str, until: float) -> Any:
    """Medians of the stages over steps, and the sum of every step."""
    tensors, elements = shape
    generator = torch.Generator().manual_seed(ranks.rank + 1)
    source = torch.randn(tensors, elements, generator=generator) * 1e-3
    given = [TensorSpec(f"t{i}", elements, DTYPES[torch.float32], *like, True) for i in range(tensors)]
    given_at_once, least = tensors * elements, ranks.wire.minimum
    reducer = Reducer(ranks.rank, ranks.world, given, algorithm=algorithm, batch_elements=given_at_once, minimum=least)
    steps: list[list[float]] = []
    other, now = _other(tensors * elements), ranks.now()
    for step in range(MOST_TRIALS):
        gradient = source.clone()
        _cool_caches(other)
        raw = [tg_tensor(row.data_ptr(), elements, DTYPES[torch.float32]) for row in gradient]
        steps.append(_reduction(ranks, reducer, raw, step))
        before, now = now, ranks.now()
        if step > LEAST_TRIALS and now + (now - before) > until:
            break
    del steps[0]  # with the greeting
    return [statistics.median(stage) for stage in zip(*steps)], [sum(step) for step in steps]


def _whole(ranks: _Ranks, like: tuple[Spec, FeedbackSpec], shape: tuple[int, int], algorithm: str, until: float) -> list[float]:
    """A row of `reductions`: how long the slowest rank takes for one as the hook makes it, with its threads."""
    tensors, elements = shape
    source = torch.randn(tensors, elements, generator=torch.Generator().manual_seed(ranks.rank + 1)) * 1e-3
    given = [TensorSpec(f"t{i}", elements, DTYPES[torch.float32], *like, True) for i in range(tensors)]
    reducer = Reducer(ranks.rank, ranks.world, given, algorithm=algorithm, minimum=ranks.wire.minimum)
    worker = Worker(reducer, ranks.wire, "tersegrad-probe")
    gradient, times = torch.empty_like(source), []
    raw = [tg_tensor(row.data_ptr(), elements, DTYPES[torch.float32]) for row in gradient]

    def reduce(step: int) -> None:
        ended, problems = threading.Event(), []

        def finish(problem: BaseException | None) -> None:
            problems.append(problem)
            ended.set()

        worker.begin(Job(step, finish, lambda: None))
        for i, tensor in enumerate(raw):
            worker.give(Given(i, tensor, False))
        worker.last()
        ended.wait()
        if problems[0] is not None:
            raise problems[0]

    other, now = _other(tensors * elements), ranks.now()
    for step in range(MOST_TRIALS):
        gradient.copy_(source)
        _cool_caches(other)
        time.sleep(0.01)  # links that let bursts pass have theirs back
        times.append(max(ranks.time(lambda: reduce(step))))
        before, now = now, ranks.now()
        if step > LEAST_TRIALS and now + (now - before) > until:
            break
    middle, low, high = spread(times[1:])  # the first has the greeting
    if len(times) <= LEAST_TRIALS:  # it may as well take half or twice as long
        low, high = middle / 2, middle * 2
    return [tensors, elements, middle, min(low, middle), max(high, middle)]


def _coding(ranks: _Ranks, text: str, algorithm: str, elements: int, until: float) -> dict[str, Any]:
    """Seconds for an element and for a frame."""
    spec = Spec(text)
    like = (spec, default_feedback(spec))
    start = ranks.now()
    large, totals = _stages(ranks, like, (1, elements), algorithm, start + 0.3 * (until - start))
    small, _ = _stages(ranks, like, (64, 1024), algorithm, start + 0.45 * (until - start))
    shapes = ((1, elements, 0.75), (1, elements // 4, 0.9), (64, 1024, 1.0))
    whole = [_whole(ranks, like, (n, size), algorithm, start + part * (until - start)) for n, size, part in shapes]
    of_large, of_small = (_Counts.of(ranks.world, like, shape, algorithm) for shape in ((1, elements), (64, 1024)))
    # under shard, what is handed out later was added up and encoded; the encoding is as of the first
    made = large[0] * of_large.made / of_large.own
    encode = large[0] / of_large.own
    check = large[1] / of_large.checked
    add = (large[2] + max(0.0, large[3] - made)) / of_large.added
    rest = sum(small) - encode * (of_small.own + of_small.made) - check * of_small.checked - add * of_small.added
    middle, low, high = spread(totals)
    return {
        "spec": str(spec),
        "feedback": str(like[1]),
        "algorithm": algorithm,
        "encode": encode,
        "check": check,
        "add": add,
        "frame": max(0.0, rest / of_small.frames),
        "low": max(0.01, min(1.0, low / middle)),
        "high": max(1.0, high / middle),
        "reductions": whole,
    }


class _Computing:
    """A thread that computes until the end of the block, as a backward pass does: with all threads that torch takes."""

    def __enter__(self) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tersegrad-compute", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        values, result = torch.full((256, 256), 1e-3), torch.empty(256, 256)
        while not self._stop.is_set():
            torch.mm(values, values, out=result)

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def _kappa(ranks: _Ranks, seconds: float) -> float:
    """How many times longer coding takes on the slowest rank while every rank computes too."""
    elements, turns = 1 << 17, 5
    encoder, values = Encoder("qsgd", elements), np.random.default_rng(ranks.rank).standard_normal(elements, np.float32)

    def encoding() -> float:
        ranks.gather(0)
        start, spent, count = time.perf_counter(), 0.0, 0
        while spent < seconds / (2 * turns):
            encoder.encode(values)
            spent, count = time.perf_counter() - start, count + 1
        return max(ranks.gather(spent / count))

    alone, beside = [], []
    for _ in range(turns):
        alone.append(encoding())
        with _Computing():
            beside.append(encoding())
    return max(1.0, statistics.median(beside) / statistics.median(alone))


def _on_first(ranks: _Ranks, work: Callable[[], None]) -> None:
    """On rank 0; if it cannot, every rank gets the same OSError, and none waits for another."""
    problem: list[Any] = [None]
    if ranks.rank == 0:
        try:
            work()
        except OSError as error:
            problem = [(error.errno, error.strerror, error.filename)]
    dist.broadcast_object_list(problem, dist.get_global_rank(ranks.group, 0), group=ranks.group)
    if problem[0] is not None:
        raise OSError(*problem[0])


def _try(path: Path, beside: Path) -> None:
    """Whether the file could be written, before half a minute is spent."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    beside.touch()
    beside.unlink()


def _write(path: Path, beside: Path, made: dict[str, Any]) -> None:
    """Complete, or not at all."""
    try:
        beside.write_text(json.dumps(made, indent=2) + "\n")
        os.replace(beside, path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise


def probe(
    path: str | Path,
    *,
    group: dist.ProcessGroup | None = None,
    seconds: float = 28.0,
    codecs: Sequence[str] = CODECS,
) -> None:
    """Measures exchanges and codecs between the ranks of a process group, and rank 0 writes them to `path`, for `plan`.

    All ranks call it together, for instance in a script of its own under torchrun. It takes about `seconds`. If rank 0
    cannot write there, every rank gets an OSError, before anything is measured.
    """
    if not 1 <= seconds <= 30:
        raise ValueError(f"seconds is {seconds}: measure for 1 to 30 seconds")
    if not codecs:
        raise ValueError("codecs is empty: name at least one")
    for codec in codecs:
        Spec(codec)  # a mistake is found before anything is measured
    chosen = group or dist.group.WORLD
    if chosen is None:
        raise ValueError("there is no process group: call torch.distributed.init_process_group first")
    ranks = _Ranks(chosen)
    if ranks.world < 2:
        raise ValueError("a probe measures between ranks, and there is only one: start two or more with torchrun")
    wanted = Path(path)
    beside = Path(f"{path}.{os.getpid()}")
    _on_first(ranks, lambda: _try(wanted, beside))
    hosts: list[Any] = [None] * ranks.world
    dist.all_gather_object(hosts, (socket.gethostname(), _kernel()), group=ranks.group)
    names, kernels = zip(*hosts)
    network = _network(ranks, 0.33 * seconds)
    bytes_a_second = (lambda row: row[0] / max(row[1], 1e-9))(network["all-gather"]["points"][-1])
    kappa = _kappa(ranks, seconds / 50)
    coding = []
    tasks = [(codec, algorithm) for codec in codecs for algorithm in ("gather", "shard")]
    for i, (codec, algorithm) in enumerate(tasks):
        now = ranks.now()
        until = now + (0.97 * seconds - now) / (len(tasks) - i)
        # as many elements as can be sent several times over, whole
        room = int((until - now) / 6 * bytes_a_second / (4 * (ranks.world - 1)))
        elements = min(1 << 22, max(1 << 17, 1 << max(room, 1).bit_length() - 1))
        coding.append(_coding(ranks, codec, algorithm, elements, until))
    made = {
        "tersegrad_probe": 2,
        "machine": machine(),
        "world": ranks.world,
        "per_node": max(names.count(name) for name in names),
        "sharing": max(kernels.count(kernel) for kernel in kernels),
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "command": "tersegrad.torch.probe",
        "tersegrad": __version__,
        "transport": f"torch, {dist.get_backend(ranks.group)}",
        "device": Device("cpu").name,
        "network": network,
        "coding": coding,
        "kappa": kappa,
    }
    _on_first(ranks, lambda: _write(wanted, beside, made))
    ranks.wire.close()
