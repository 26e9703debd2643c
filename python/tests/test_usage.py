# SPDX-License-Identifier: Apache-2.0
"""tersegrad.torch as it is used, rightly and wrongly: what is refused, and by which words; what is said and shown.

Cases on ranks are functions of usage_cases.py, for two processes over gloo.
"""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch not installed")

import tersegrad  # noqa: E402
import tersegrad.torch as tg  # noqa: E402
import usage_cases  # noqa: E402
from ranks import Ranks  # noqa: E402
from torch import nn  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
try:
    from torch.distributed.fsdp import FSDPModule

    SHARDS = hasattr(FSDPModule, "set_custom_reduce_scatter")
except ImportError:
    SHARDS = False


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    pool = Ranks(usage_cases.WORLD)
    yield pool
    pool.close()


CASES = [
    usage_cases.options_are_checked,
    usage_cases.bad_states,
    usage_cases.memory_formats,
    usage_cases.frozen_and_empty,
    usage_cases.unpickled,
    usage_cases.scaler_after_unpickling,
    usage_cases.timeouts_of_groups,
    usage_cases.parameters_that_are_ignored,
    usage_cases.static_graph_set_late,
    usage_cases.unused_with_a_gradient,
    usage_cases.compared,
    usage_cases.errors_are_known_or_none,
    usage_cases.raised_errors_name_pythons_option,
    usage_cases.settings_that_differ,
    usage_cases.scalers_are_checked,
    usage_cases.groups_of_others,
    usage_cases.back_ends_by_device,
    usage_cases.python_reducer,
    usage_cases.between_steps_only,
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_on_ranks(ranks: Ranks, case: Any) -> None:
    ranks.run(case)


ALONE = [
    usage_cases.sparse_gradients,
    usage_cases.broken,
    usage_cases.completing_fails,
    usage_cases.fails_alone,
    usage_cases.leaves_in_the_middle,
    usage_cases.one_group_for_two_states,
    usage_cases.scale_overflows_on_one_rank,
]


if SHARDS:
    ALONE.append(usage_cases.one_group_for_two_sharded_models)


@pytest.mark.parametrize("case", ALONE, ids=lambda case: case.__name__)
def test_on_ranks_that_do_nothing_after(case: Any) -> None:
    """These leave exchanges behind that nobody waits for."""
    pool = Ranks(usage_cases.WORLD)
    try:
        pool.run(case)
    finally:
        pool.close()


def test_a_rank_that_stops_answering_ends_the_others() -> None:
    pool = Ranks(3)
    pool.start(usage_cases.silent, 1)
    try:
        for rank in (0, 2):
            good, text = pool.answer(rank)
            assert good and text, (good, text)
    finally:
        pool.processes[1].kill()
        pool.close()


@pytest.mark.parametrize("case", [usage_cases.checkpoint_with_bypass, usage_cases.checkpoint_of_another_world])
def test_distributed_checkpoints(ranks: Ranks, case: Any, tmp_path: Path) -> None:
    ranks.run(case, str(tmp_path / "checkpoint"))


def test_log_every_is_seen(ranks: Ranks) -> None:
    leader, other = ranks.run(usage_cases.logged)
    assert [line.split(":")[:-1] for line in leader] == [["tersegrad", " step 2"]] * 2 + [["step 2"]], leader
    assert other == ["", ""]


needs_shards = pytest.mark.skipif(not SHARDS, reason="this torch has no FSDPModule.set_custom_reduce_scatter")


SHARDED = [
    usage_cases.sharded_options,
    usage_cases.sharded_elsewhere,
    usage_cases.sharded_states_are_taken_whole,
]


@needs_shards
@pytest.mark.parametrize("case", SHARDED, ids=lambda case: case.__name__)
def test_fully_shard(ranks: Ranks, case: Any) -> None:
    ranks.run(case)


@needs_shards
def test_fully_shard_says_a_line_after_a_pass(ranks: Ranks) -> None:
    leader, other = ranks.run(usage_cases.sharded_log)
    assert [line.split(":")[:2] for line in leader.splitlines()] == [["tersegrad", f" step {n}"] for n in (2, 4)], leader
    assert other == ""


@needs_shards
def test_checkpoints_of_fully_shard(ranks: Ranks, tmp_path: Path) -> None:
    ranks.run(usage_cases.sharded_checkpoint_of_another_world, str(tmp_path / "checkpoint"))


# ---- Policy ----------------------------------------------------------------------------------------------------------


NORMS = ("MyNorm", "LayerNorm2d", "LlamaRMSNorm", "Layernorm", "LayerNormalization")


class Odd(nn.Module):
    """Names that mislead."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2)
        self.bias_proj = nn.Parameter(torch.zeros(8, 8))
        self.mask_bias = nn.Parameter(torch.zeros(8))
        self.biased = nn.Parameter(torch.zeros(8))
        for name in ("NormalHead", "Normalizer", *NORMS):
            module = type(name, (nn.Module,), {})()
            module.weight = nn.Parameter(torch.zeros(8))
            setattr(self, name, module)
        self.Renamed = type("Renamed", (nn.BatchNorm2d,), {})(8)
        self.lstm = nn.LSTM(8, 8)


def test_biases_and_norms_are_what_they_are() -> None:
    reasons = {choice.name: choice.reason for choice in tg.explain(Odd(), "qsgd", min_size=0).choices}
    biases = {name for name, reason in reasons.items() if reason == "bias"}
    assert biases == {
        "attention.in_proj_bias",
        "attention.out_proj.bias",
        "mask_bias",
        "lstm.bias_ih_l0",
        "lstm.bias_hh_l0",
    }
    norms = {name.split(".")[0] for name, reason in reasons.items() if reason == "normalisation"}
    assert norms == {*NORMS, "Renamed"}


def small() -> nn.Module:
    return nn.Sequential(nn.Linear(200, 100), nn.LayerNorm(100), nn.Linear(100, 100))


def test_patterns_must_match() -> None:
    with pytest.raises(ValueError, match=r"rules has the pattern 'module\.0\.\*'.*such as '0\.\w+'"):
        tg.explain(small(), "qsgd", rules={"module.0.*": None})
    with pytest.raises(ValueError, match=r"exclude has the pattern 'head\.\*'"):
        tg.explain(small(), "qsgd", exclude=["0.*", "head.*"])
    frozen = small()
    frozen[0].requires_grad_(False)
    tg.explain(frozen, "qsgd", exclude=["0.*"])  # it is there, but not trained
    tg.explain(small(), "qsgd", exclude=["*"], rules={"2.weight": "fp16", "2.*": None})


# ---- explain ---------------------------------------------------------------------------------------------------------


def heavy(count: int) -> Any:
    """As gradients are distributed, about: a normal one would flatter thresholds."""
    import numpy

    return numpy.random.default_rng(1).laplace(size=count).astype(numpy.float32)


@pytest.mark.parametrize(
    "spec",
    [
        "topk:density=0.01",
        "topk:density=0.1,values=fp16",
        "topk:density=0.01,values=levels",
        "topk:density=0.001",
        "gaussiank:density=0.001",
        "randk:density=0.05",
        "qsgd",
        "qsgd:coding=entropy",
        "qsgd:levels=1,bucket=64,coding=elias",
        "fp16",
        "onebit",
        "terngrad:coding=entropy",
    ],
)
def test_explain_says_about_how_many_bytes(spec: str) -> None:
    model = nn.Linear(1000, 400, bias=False)
    told = tg.explain(model, spec)
    values = heavy(400_000)
    taken = len(tersegrad.encode(values, spec))
    # A threshold takes what it meets, and few levels of large peaks take less than those of normal values.
    within = 2.0 if spec.startswith("gaussiank") else 1.5 if "coding=" in spec else 1.15
    assert taken / within <= told.bytes <= taken * within, (told.bytes, taken)
    fixed = spec in ("qsgd", "fp16", "onebit")
    assert told.estimated == (not fixed) and ("about" in str(told)) == (not fixed) and "at most" not in str(told)
    if fixed:
        assert told.bytes == taken


def test_explain_counts_narrow_gradients_and_schedules() -> None:
    model = nn.Linear(1000, 400, bias=False)
    wide, narrow = tg.explain(model, "none").bytes, tg.explain(model.half(), "none").bytes
    assert 1.6e6 < wide < 1.61e6 and 0.8e6 < narrow < 0.81e6
    scheduled = tg.explain(model.float(), "topk:density=0.01", schedule=[(0, 0.5), (100, 0.1)]).bytes
    assert scheduled == tg.explain(model, "topk:density=0.1").bytes
    with pytest.raises(ValueError, match="schedule"):
        tg.explain(model, "qsgd", schedule=[(0, 0.5)])


def test_explain_takes_the_options_of_compress() -> None:
    options: dict[str, Any] = {"warmup": 5, "algorithm": "shard", "seed": 3, "check": True, "log_every": 10}
    options["timeout"] = 60
    assert tg.explain(small(), "qsgd", **options).choices == tg.explain(small(), "qsgd").choices
    with pytest.raises(TypeError, match="no option 'warmpu'.*'warmup'"):
        tg.explain(small(), "qsgd", warmpu=5)
    with pytest.raises(TypeError, match="rate.*no loss="):
        tg.explain(small(), "qsgd", rate="1gbit")
    with pytest.raises(ValueError, match="algorithm"):
        tg.explain(small(), "qsgd", algorithm="scatter")
    with pytest.raises(TypeError, match="needs a spec"):
        tg.explain(small())


def test_explain_refuses_what_compress_refuses() -> None:
    unstable = "qsgd:levels=1,norm=l2,bucket=0"
    with pytest.raises(tersegrad.Unstable, match="2.weight.*diverge"):
        tg.explain(small(), "qsgd", rules={"2.weight": (unstable, "ef")})
    tg.explain(small(), "qsgd", rules={"2.weight": (unstable, "ef")}, insist=True)
    with pytest.raises(tersegrad.Error, match="0.weight|2.weight.*dgc"):
        tg.explain(small(), "qsgd", feedback="dgc:momentum=0.9")


# ---- Notes -----------------------------------------------------------------------------------------------------------


def test_staging_is_a_warning_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    from tersegrad.torch import staging

    class OnCard:
        device = torch.device("cuda", 0)

    def lacks(place: Any) -> Any:
        raise tersegrad.Unavailable("there is no module for cards")

    monkeypatch.setattr(staging, "OnCard", lacks)
    monkeypatch.setattr(staging, "check_copies", lambda places: None)
    with caplog.at_level(logging.WARNING, "tersegrad"):
        for _ in range(2):
            made, _ = staging.open_reducer("auto", [OnCard()], lambda device: device)
            assert made == "cpu"
    assert [record.levelname for record in caplog.records] == ["WARNING"] and "pinned memory" in caplog.text


# ---- The end of the interpreter ---------------------------------------------------------------------------------------


def test_a_wire_that_may_be_in_use_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, the thread that waits wakes up in an interpreter that has ended."""
    from tersegrad.torch import worker

    class Wire:
        closed = False

        def close(self) -> None:
            self.closed = True

    class Held:
        reached, go_on = threading.Event(), threading.Event()

        def wait(self) -> None:
            self.reached.set()
            self.go_on.wait()

    made = [worker.Worker(None, Wire(), "test") for _ in range(2)]  # type: ignore[arg-type]
    made[1]._core.failed = True
    monkeypatch.setattr(worker, "PATIENCE", 600.0)  # only what hangs takes so long
    worker._end_all()
    assert [one._core.wire.closed for one in made] == [True, False]  # type: ignore[attr-defined]
    waiting = worker.Worker(None, Wire(), "test")  # type: ignore[arg-type]
    waiting._core.started.put(Held())  # type: ignore[arg-type]
    Held.reached.wait()
    monkeypatch.setattr(worker, "PATIENCE", 0.01)
    worker._end_all()
    assert not waiting._core.wire.closed  # type: ignore[attr-defined]
    Held.go_on.set()


# ---- Cards that the library does not know ---------------------------------------------------------------------------


class StandIn:
    """What torch has for a kind of cards. Copies that are not waited for are seen at an event of their stream."""

    done: list[str] = []

    class Stream:
        def __init__(self, device: Any) -> None:
            assert device.type == "hpu"

        def wait_stream(self, other: Any) -> None:
            assert other == "current"
            StandIn.done.append("ordered")

    class Event:
        def record(self, stream: Any) -> None:
            assert isinstance(stream, StandIn.Stream)

        def synchronize(self) -> None:
            StandIn.done.append("waited")

    @staticmethod
    def current_stream(device: Any) -> str:
        return "current"

    @staticmethod
    @contextlib.contextmanager
    def stream(stream: Any) -> Iterator[None]:
        StandIn.done.append("lane")
        yield


class OnCard(torch.Tensor):
    """Memory of the host that says that it is on a card, of a kind that torch has no module for."""

    device = torch.device("ve", 0)  # type: ignore[assignment]


class OnHpu(torch.Tensor):
    """Memory of the host that says that it is on a card."""

    device = torch.device("hpu", 0)  # type: ignore[assignment]

    def record_stream(self, stream: Any) -> None:
        assert isinstance(stream, StandIn.Stream)


class Future:
    def __init__(self) -> None:
        self.value: Any = None

    def set_result(self, value: Any) -> None:
        self.value = value


@pytest.mark.parametrize("streams", [True, False])
def test_gradients_in_memory_order_are_staged(streams: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is channels_last, as reduce_gradients gives it: a buffer by itself."""
    from tersegrad._library import view
    from tersegrad.torch import staging

    monkeypatch.setattr(torch, "hpu", StandIn, raising=False)
    plain = torch.arange(120.0).view(2, 3, 4, 5)
    buffer = plain.contiguous(memory_format=torch.channels_last).as_subclass(OnHpu if streams else OnCard)
    future = Future()
    held = staging.Staging().take(buffer, [buffer])
    values = torch.frombuffer(view(held.part(0)[0], 480), dtype=torch.float32)
    assert torch.equal(values, plain.permute(0, 2, 3, 1).reshape(-1))
    values += 1
    held.complete(future, True)
    assert future.value is buffer and torch.equal(torch.Tensor(buffer), plain + 1)


@pytest.mark.parametrize("streams", [True, False])
def test_any_card_is_staged(streams: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    from tersegrad.torch import staging
    from tersegrad._library import view

    monkeypatch.setattr(torch, "hpu", StandIn, raising=False)
    monkeypatch.setattr(StandIn, "done", [])
    buffer = torch.arange(10.0).as_subclass(OnHpu if streams else OnCard)
    cards, future = staging.Staging(), Future()
    for means in (True, False):
        held = cards.take(buffer, [buffer[:4], buffer[4:]])
        assert held.devices == ([buffer.device] if streams else None)
        for place, size in ((0, 16), (1, 24)):
            address, arrive = held.part(place)
            if arrive is not None:
                arrive()
            values = torch.frombuffer(view(address, size), dtype=torch.float32)
            assert torch.equal(values, torch.arange(10.0)[4 * place : 4 + 6 * place])
            values += 1
        held.complete(future, means)
        assert future.value is buffer
        if means:
            assert buffer.tolist() == [value + 1 for value in range(10)]
            buffer -= 1
    assert buffer.isnan().all()
    assert StandIn.done == (["ordered", "lane", "waited", "waited", "lane", "waited"] * 2 if streams else [])


def test_what_cannot_be_copied_is_refused_at_once() -> None:
    from tersegrad.torch import staging

    with pytest.raises(TypeError, match="on meta.*cannot be compressed"):
        staging.open_reducer("auto", [torch.zeros(3, device="meta")], lambda device: device)


# ---- Older versions of torch -----------------------------------------------------------------------------------------


def test_groups_are_made_by_what_this_torch_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch 2.0 does not know use_local_synchronization, and torch 2.1 refuses None as a time."""
    from datetime import timedelta

    from tersegrad.torch import exchange

    calls: list[dict[str, Any]] = []

    def of_2_0(ranks: Any = None, timeout: Any = "default", backend: Any = None, pg_options: Any = None) -> None:
        calls.append({"timeout": timeout, "backend": backend})

    def of_2_1(
        ranks: Any = None, timeout: Any = "default", backend: Any = None, use_local_synchronization: bool = False
    ) -> None:
        calls.append({"timeout": timeout, "local": use_local_synchronization})

    monkeypatch.setattr(exchange.dist, "get_world_size", lambda: 4)
    monkeypatch.setattr(exchange.dist, "new_group", of_2_0)
    exchange.new_group([0, 1])
    exchange.new_group([0, 1], timedelta(seconds=5), "nccl")
    with pytest.raises(RuntimeError, match=r"ranks \[0, 1\] of 4.*torch 2.1 or later.*process_group"):
        exchange.new_group([0, 1], members_only=True)
    monkeypatch.setattr(exchange.dist, "new_group", of_2_1)
    exchange.new_group([0, 1], members_only=True)
    assert calls == [
        {"timeout": "default", "backend": "gloo"},
        {"timeout": timedelta(seconds=5), "backend": "nccl"},
        {"timeout": "default", "local": True},
    ]


# ---- Types -----------------------------------------------------------------------------------------------------------

TYPED = '''
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
import tersegrad.torch as tersegrad

def good(model: DistributedDataParallel) -> list[int]:
    state = tersegrad.compress(model, "topk:density=0.01", feedback="ef", rules={"*.weight": ("qsgd", None)})
    state.compare_parameters()
    return state.bypass_log()

def either(model: nn.Module) -> torch.Tensor:
    return tersegrad.compress(model, "qsgd", timeout=3.5, seed=1).residual("0.weight")

def bad(model: DistributedDataParallel) -> None:
    tersegrad.compress(model, "qsgd", feedbak="ef")
    tersegrad.compress(model, "qsgd", warmup="5")
    tersegrad.compress(model, ["qsgd"])
'''


def test_options_have_types(tmp_path: Path) -> None:
    pytest.importorskip("mypy", reason="mypy not installed")
    script = tmp_path / "typed.py"
    script.write_text(TYPED)
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir=/dev/null"]
    command += ["--follow-imports=silent"]
    environment = {**os.environ, "MYPYPATH": str(ROOT / "python")}
    result = subprocess.run([*command, str(script)], capture_output=True, text=True, env=environment, cwd=tmp_path)
    bad = TYPED[: TYPED.index("def bad")].count("\n") + 1
    lines = sorted({int(line.split(":")[1]) for line in result.stdout.splitlines() if ": error:" in line})
    assert lines == [bad + 1, bad + 2, bad + 3], result.stdout + result.stderr
