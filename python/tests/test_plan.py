# SPDX-License-Identifier: Apache-2.0
"""tersegrad.torch.plan and probe: a real model's times, the command's predictions, probes over real process groups.

No test looks at how long anything takes: only at what must hold of it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch not installed")

import tersegrad  # noqa: E402
import tersegrad.torch as tg  # noqa: E402
from ranks import Ranks  # noqa: E402
from tersegrad import _command  # noqa: E402
from tersegrad.torch.plan import Row  # noqa: E402
from tersegrad.torch.probe import _Counts, _Point, _summary, machine  # noqa: E402


def without_json() -> bool:
    """Whether the command cannot read layouts at all."""
    try:
        done = subprocess.run([str(_command.find()), "plan", "--layout", "/dev/null"], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return True
    return "jansson" in done.stderr


needs_command = pytest.mark.skipif(without_json(), reason="the command is not built, or without jansson")


def small_model() -> tuple[torch.nn.Module, object]:
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(40, 300), torch.nn.ReLU(), torch.nn.Linear(300, 300), torch.nn.Linear(300, 5))
    x, y = torch.randn(8, 40), torch.randint(0, 5, (8,))
    return model, lambda: torch.nn.functional.cross_entropy(model(x), y)


def test_timeline_is_of_the_backward_pass() -> None:
    model, loss = small_model()
    before = torch.ones_like(model[0].weight)
    model[0].weight.grad = before
    times = tg.timeline(model, loss, repeats=2)
    assert sorted(times.names) == sorted(name for name, _ in model.named_parameters())
    assert dict(zip(times.names, times.counts)) == {name: p.numel() for name, p in model.named_parameters()}
    assert list(times.ready) == sorted(times.ready)
    assert 0 < times.ready[0] and times.ready[-1] <= times.backward and times.forward > 0
    assert times.names.index("3.weight") < times.names.index("2.weight") < times.names.index("0.weight")
    layout = times.layout()
    assert [row["offset"] for row in layout] == [sum(times.counts[:i]) for i in range(len(layout))]
    # what the model had is left as it was
    assert model[0].weight.grad is before and model[2].weight.grad is None
    assert all(not p._post_accumulate_grad_hooks for p in model.parameters())


def test_timeline_refuses() -> None:
    model, loss = small_model()
    with pytest.raises(ValueError, match="repeats is 0"):
        tg.timeline(model, loss, repeats=0)
    with pytest.raises(ValueError, match="no gradient was made"):
        other = torch.nn.Linear(2, 2)
        tg.timeline(model, lambda: other(torch.ones(1, 2)).sum())


@needs_command
def test_plan() -> None:
    model, loss = small_model()
    made = tg.plan(model, loss, rate="1gbit", latency="20us", world=4, codecs=["qsgd", "topk:density=0.01"], repeats=1)
    assert [(row.codec, row.feedback, row.algorithm) for row in made.rows] == [
        ("none", "none", "ring"),
        ("qsgd", "none", "gather"),
        ("qsgd", "none", "shard"),
        ("topk:density=0.01", "ef", "gather"),
        ("topk:density=0.01", "ef", "shard"),
    ]
    computing = made.timeline.forward + made.timeline.backward
    assert made.world == 4 and made.recommended in made.rows and made.reason
    assert all(isinstance(row, Row) and row.low <= row.seconds <= row.high for row in made.rows)
    assert all(row.seconds >= computing * (1 - 1e-6) for row in made.rows)
    assert made.find("qsgd", "none").seconds == min(row.seconds for row in made.rows[1:3])
    text = str(made)
    assert "recommended for 4 ranks" in text and "predicts time, not accuracy" in text and " sent " in text
    assert made.rows[0].bytes_sent > 5e5 and f"{made.rows[0].bytes_sent / 1e3:.0f} kB" in text
    assert sum(note.startswith("measured: backward pass") for note in made.inputs) == 1
    assert not any("--backward" in note for note in made.inputs) and all(f"- {note}" in text for note in made.inputs)
    assert any("stated: links of 1gbit; stated: latency 20us" in note for note in made.inputs)
    assert (made.per_node, made.levels) == (1, False)
    with pytest.raises(KeyError, match="fp16"):
        made.find("fp16", "none")
    with pytest.raises(ValueError, match="--rate takes a rate of 1kbit to 1000tbit with its unit"):
        tg.plan(model, loss, rate="fast", repeats=1)
    with pytest.raises(ValueError, match="missing.json"):
        tg.plan(model, loss, probe="missing.json", repeats=1)


@needs_command
def test_explain_predicts() -> None:
    model, loss = small_model()
    assert tg.explain(model, "qsgd").predicted is None
    told = tg.explain(model, "qsgd", loss=loss, rate="1gbit", world=4)
    assert told.predicted is not None and told.dense is not None and told.dense.algorithm == "ring"
    assert told.predicted.codec.startswith("qsgd:") and "predicted: a step takes" in str(told)
    with pytest.raises(TypeError, match="no loss="):
        tg.explain(model, "qsgd", rate="1gbit")


def test_summary_of_a_known_network() -> None:
    """Exchanges that take exactly 20 us and 8 ns a byte after the first 100,000: that is what comes out."""

    def takes(size: float, count: int) -> float:
        return 2e-5 + max(0.0, count * size - 1e5) * 8e-9

    patterns = {}
    for name in ("all-gather", "all-to-all", "ring"):
        patterns[name] = [_Point(size, 1) for size in (64, 65536, 1 << 20, 2 << 20, 4 << 20)]
        for point in patterns[name]:
            if name != "ring":
                point.choose(1e-3, 1.0)
            for samples, count in zip(point.samples, point.counts):
                samples += [takes(point.bytes, count)] * 3 if count else []
    found = _summary(patterns, {name: 2e-5 for name in patterns})
    for name in ("all-gather", "all-to-all"):
        assert found[name]["burst"] == pytest.approx(1e5 * 8e-9, rel=1e-3)
        assert found[name]["hidden"] == pytest.approx(2e-5, rel=1e-3)
        for size, seconds, low, high in found[name]["points"][1:]:
            assert seconds == pytest.approx(2e-5 + size * 8e-9, rel=1e-3) and low == high == seconds
    for size, seconds, _, _ in found["ring"]["points"][1:]:
        assert seconds == pytest.approx(takes(size, 1), abs=1e-9)


def probe_here(rank: int, path: str) -> str:
    tg.probe(path, seconds=2, codecs=["none", "qsgd:levels=7", "topk:density=0.01"])
    return machine()


def probe_nowhere(rank: int, path: str) -> str:
    """Refused on every rank, and before anything is measured."""
    module, measured = sys.modules["tersegrad.torch.probe"], []
    before, module._network = module._network, lambda *_: measured.append(1)  # type: ignore[attr-defined]
    try:
        tg.probe(path)
    except OSError as problem:
        assert not measured
        return f"{type(problem).__name__}: {problem}"
    finally:
        module._network = before  # type: ignore[attr-defined]
    return ""


def test_probe_tries_its_file_first(tmp_path: Path) -> None:
    ranks = Ranks(2)
    try:
        for path, kind in ((tmp_path / "no" / "probe.json", "FileNotFoundError"), (tmp_path, "IsADirectoryError")):
            said = ranks.run(probe_nowhere, str(path))
            assert said[0] == said[1] and said[0].startswith(kind) and str(path) in said[0], said
    finally:
        ranks.close()
    assert not list(tmp_path.iterdir())


class Clock:
    """Encoding takes 1 ms, and 3 ms while a thread computes."""

    now = 0.0

    def perf_counter(self) -> float:
        return self.now

    def encode(self, _: object) -> None:
        busy = any(thread.name == "tersegrad-compute" for thread in threading.enumerate())
        self.now += 3e-3 if busy else 1e-3


class Alone:
    """A rank of its own."""

    rank = 0

    def gather(self, seconds: float) -> list[float]:
        return [seconds]


def test_kappa_is_of_encoding_beside_computing(monkeypatch: pytest.MonkeyPatch) -> None:
    module, clock = sys.modules["tersegrad.torch.probe"], Clock()
    monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(module, "Encoder", lambda *_: clock)
    assert module._kappa(Alone(), 0.1) == pytest.approx(3.0)  # type: ignore[attr-defined]
    assert not any(thread.name == "tersegrad-compute" for thread in threading.enumerate())


def test_counts_are_those_of_the_library() -> None:
    spec, none = tersegrad.Spec("qsgd"), tersegrad.FeedbackSpec("none")
    n, world = 1 << 20, 4
    gather = _Counts.of(world, (spec, none), (1, n), "gather")
    assert gather == _Counts(own=n, made=0, checked=3 * n, added=4 * n, frames=4)
    shard = _Counts.of(world, (spec, none), (1, n), "shard")
    assert shard == _Counts(own=n, made=n // 4, checked=3 * n // 2, added=2 * n, frames=11)
    many = _Counts.of(world, (spec, none), (64, 1024), "shard")
    assert many.own == 1 << 16 and many.frames == 109 + 64


@needs_command
def test_probe(tmp_path: Path) -> None:
    """A probe of two real ranks is one that the command reads, made on this machine, and predicts from."""
    path = tmp_path / "probe.json"
    ranks = Ranks(2)
    try:
        ranks.run(probe_here, str(path))
    finally:
        ranks.close()
    assert [one.name for one in tmp_path.iterdir()] == ["probe.json"]
    probe = json.loads(path.read_text())
    assert probe["world"] == 2 and probe["per_node"] == 2 and probe["transport"] == "torch, gloo"
    assert probe["kappa"] >= 1
    assert [row["spec"].split(":")[0] for row in probe["coding"]] == ["none", "none", "qsgd", "qsgd", "topk", "topk"]
    assert [row["algorithm"] for row in probe["coding"]] == ["gather", "shard"] * 3
    model, loss = small_model()
    try:
        made = tg.plan(model, loss, probe=path, codecs=["qsgd:levels=7"], repeats=1)  # not another machine's
    except ValueError as error:  # a machine that is busy with other work
        assert "vary too much" in str(error)
        made = tg.plan(model, loss, probe=path, codecs=["qsgd:levels=7"], repeats=1, insist=True)
    assert made.world == 2 and len(made.rows) == 3
    # and one that is damaged is refused, in one sentence
    path.write_text(path.read_text()[:-100])
    with pytest.raises(ValueError, match="cannot use the probe"):
        tg.plan(model, loss, probe=path, repeats=1)


def test_probe_refuses() -> None:
    for arguments, what in (({"seconds": 31}, "seconds is 31"), ({"codecs": []}, "codecs is empty")):
        with pytest.raises(ValueError, match=what):
            tg.probe("nowhere.json", **arguments)
    with pytest.raises(tersegrad.Error, match="qsdg"):
        tg.probe("nowhere.json", codecs=["qsdg"])
    with pytest.raises(ValueError, match="no process group"):
        tg.probe("nowhere.json")


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
