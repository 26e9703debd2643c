# SPDX-License-Identifier: Apache-2.0
"""tersegrad.torch with real process groups: four ranks that are processes of their own, over gloo."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch not installed")

import cases  # noqa: E402
import tersegrad  # noqa: E402
import tersegrad.torch as tg  # noqa: E402
from library_ranks import by_the_library  # noqa: E402
from ranks import Ranks  # noqa: E402
from tersegrad import _command  # noqa: E402


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    pool = Ranks(cases.WORLD)
    yield pool
    pool.close()


# ---- The same bits as the C reducer ----------------------------------------------------------------------------------


def specs() -> list[tuple[str, str]]:
    result = []
    for row in tersegrad.codecs():
        spec = row.name + (":density=0.05" if row.sparse else "")
        result.append((spec, "none" if row.name == "none" else "ef"))
    return result + [("qsgd:levels=7,bucket=512", "none"), ("qsgd", "ecq:alpha=0.2,beta=0.9"), ("topk:density=0.05", "dgc:momentum=0.9")]


@pytest.mark.parametrize("algorithm", ["gather", "shard"])
@pytest.mark.parametrize("spec,feedback", specs())
def test_the_hook_leaves_the_bits_of_the_c_reducer(ranks: Ranks, spec: str, feedback: str, algorithm: str) -> None:
    for dtype in ("float32", "float16", "bfloat16"):
        expected = by_the_library(spec, feedback, algorithm, dtype, 2)
        found = ranks.run(cases.hook_bits, spec, feedback, algorithm, dtype, 2)
        assert found == expected, dtype
        assert all(one == found[0] for one in found), dtype


# ---- One function of cases.py each -----------------------------------------------------------------------------------

SIMPLE = [
    cases.buckets_do_not_matter,
    cases.gradients_may_be_views_of_buckets,
    cases.accumulation,
    cases.several_models,
    cases.compiled,
    cases.compiled_with_unused_parameters,
    cases.joined,
    cases.other_back_ends,
    cases.warm_up_and_schedule,
    cases.bypass,
    cases.unused,
    cases.not_finite,
    cases.by_one_collective,
    cases.scaler,
    cases.another_world,
    cases.pickled,
    cases.contract,
    cases.without_ddp,
    cases.mixed_precision,
    cases.local_steps,
    cases.differing_parameters,
    cases.differing_settings,
    cases.statistics,
]


@pytest.mark.parametrize("case", SIMPLE, ids=lambda case: case.__name__)
def test_on_ranks(ranks: Ranks, case: object) -> None:
    ranks.run(case)  # type: ignore[arg-type]


@pytest.mark.parametrize("algorithm", ["gather", "shard"])
@pytest.mark.parametrize(
    "spec,feedback",
    [
        ("topk:density=0.05", None),
        ("topk:density=0.05", "dgc:momentum=0.9"),
        ("qsgd", None),
        ("qsgd", "ecq:alpha=0.2,beta=0.9"),
    ],
)
def test_a_resumed_run_equals_the_undisturbed_one(
    ranks: Ranks, spec: str, feedback: str | None, algorithm: str
) -> None:
    ranks.run(cases.resumed, spec, feedback, algorithm)


def test_distributed_checkpoints(ranks: Ranks, tmp_path: Path) -> None:
    ranks.run(cases.checkpointed, str(tmp_path / "checkpoint"))


def test_a_rank_that_dies_ends_the_others() -> None:
    pool = Ranks(cases.WORLD)
    pool.start(cases.dies, 2)
    answers = [pool.answer(rank) for rank in range(cases.WORLD)]
    pool.close()
    assert answers[2] == (False, "died")
    for rank in (0, 1, 3):
        good, text = answers[rank]
        assert good and text, answers[rank]


def test_a_run_that_torchrun_restarts_equals_the_undisturbed_one(tmp_path: Path) -> None:
    script = Path(__file__).with_name("restarted.py")
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    paths = os.pathsep.join(path for path in sys.path if path)
    digests = []
    for killed in ("0", "4"):
        folder = tmp_path / killed
        folder.mkdir()
        command = [*launcher, "--max-restarts", "1", "--monitor-interval", "0.1", str(script), str(folder), "6", killed]
        # Otherwise a new life may find the addresses of the old one in torchrun's store (pytorch issue 167288).
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": paths, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
        result = subprocess.run(command, capture_output=True, text=True, env=environment)
        assert result.returncode == 0, result.stderr
        lines = result.stdout.splitlines()
        assert ("life 1: rank 0 starts after step 3" in lines) == (killed == "4"), result.stdout
        digests.append([line for line in lines if line.startswith("digest")])
    assert len(digests[0]) == 1 and digests[0] == digests[1]


# ---- Examples ----------------------------------------------------------------------------------------------------------


def write_digits(folder: Path) -> None:
    """A few images in MNIST's form."""
    for part, count in (("train", 40), ("t10k", 10)):
        images = bytes([0, 0, 8, 3]) + b"".join(n.to_bytes(4, "big") for n in (count, 28, 28)) + bytes(28 * 28 * count)
        labels = bytes([0, 0, 8, 1]) + count.to_bytes(4, "big") + bytes(i % 10 for i in range(count))
        (folder / f"{part}-images-idx3-ubyte").write_bytes(images)
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(labels)


# Whether with --data, and the number of ranks.
EXAMPLES = [("ddp_mnist", True, 4), ("ddp_mnist", False, 2), ("ddp_chargpt", False, 2), ("ddp_lstm", False, 2)]


@pytest.mark.parametrize("name,given,world", EXAMPLES)
def test_examples_run(name: str, given: bool, world: int, tmp_path: Path) -> None:
    if name == "ddp_mnist" and not given:
        pytest.importorskip("sklearn", reason="scikit-learn not installed")
    write_digits(tmp_path)
    example = Path(__file__).resolve().parents[2] / "examples" / f"{name}.py"
    data = ["--data", str(tmp_path)] if given else []
    log = tmp_path / "log.jsonl"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(world)]
    # torchrun takes --log for an option of its own, where there is no -- before the script.
    launcher, logs = (["--"], "--log") if given else ([], "--log-file")
    options = ["--steps", "2", "--batch", "2", logs, str(log), "--log-every", "1", "--spec", "none", "--spec", "topk:density=0.01/ef"]
    options += ["--schedule", "0:0.25,1:0.01"]
    result = subprocess.run(
        [*command, *launcher, str(example), *data, *options], capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert result.returncode == 0, result.stderr
    assert "topk:density=0.01/ef" in result.stdout and f"{world} ranks, 2 steps" in result.stdout
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [(line["run"], line["step"]) for line in lines] == [(0, 1), (0, 2), (1, 1), (1, 2)]
    page = tmp_path / "report.html"
    report = subprocess.run([str(_command.find()), "report", str(log), "-o", str(page)], capture_output=True, text=True)
    assert report.returncode == 0 and "2 runs" in report.stdout and page.exists(), report.stdout + report.stderr


def test_an_example_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    example = Path(__file__).resolve().parents[2] / "examples" / "ddp_lstm.py"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(example)]
    command += ["--steps", "5", "--batch", "2", "--layers", "1", "--spec", "none", "--spec", "topk:density=0.01/ef", "--json"]
    folder, log = tmp_path / "checkpoints", tmp_path / "log.jsonl"
    kept = ["--checkpoint", str(folder), "--checkpoint-every", "2", "--log-file", str(log)]

    def losses(*options: str) -> list[tuple[float, float]]:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        result = subprocess.run([*command, *options], capture_output=True, text=True, env=environment)
        assert result.returncode == 0, result.stderr
        rows = [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]
        return [(row["train_loss"], row["loss"]) for row in rows]

    undisturbed = losses()
    assert losses(*kept) == undisturbed
    lines = log.read_text().splitlines()
    # As if the second run had been ended after rank 0 had saved its last step, and rank 1 had not.
    assert sorted(path.name for path in (folder / "1").iterdir()) == ["4-0.pt", "4-1.pt", "5-0.pt", "5-1.pt"]
    (folder / "1" / "5-1.pt").unlink()
    assert losses(*kept) == undisturbed
    again = log.read_text().splitlines()
    assert [json.loads(line)["loss"] for line in again] == [json.loads(line)["loss"] for line in lines]
    others = [word if word != "none" else "qsgd" for word in command]
    refused = subprocess.run([*others, *kept], capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert refused.returncode and "has checkpoints of none, not of qsgd: give another --checkpoint" in refused.stderr


# ---- Without ranks ---------------------------------------------------------------------------------------------------


def model() -> "torch.nn.Module":
    return torch.nn.Sequential(
        torch.nn.Linear(200, 100), torch.nn.LayerNorm(100), torch.nn.Linear(100, 100, bias=False), torch.nn.Linear(100, 3)
    )


def test_explain_says_what_becomes_of_each_parameter() -> None:
    explanation = tg.explain(model(), "topk:density=0.01")
    reasons = {choice.name: (choice.spec.name, choice.reason) for choice in explanation.choices}
    assert list(reasons) == ["3.bias", "3.weight", "2.weight", "1.bias", "1.weight", "0.bias", "0.weight"]
    assert reasons["0.weight"] == ("topk", "") and reasons["2.weight"] == ("topk", "")
    assert reasons["0.bias"] == ("none", "bias") and reasons["1.weight"] == ("none", "normalisation")
    assert reasons["3.weight"] == ("none", "fewer than 10000 elements")
    assert explanation.residual_bytes == 4 * 30000
    assert explanation.bytes < explanation.dense_bytes / 10
    assert "0.weight" in str(explanation) and "30,000" not in str(explanation)


def test_rules_come_first() -> None:
    rules = {"0.*": None, "3.weight": ("qsgd", "ef"), "2.weight": "fp16"}
    chosen = {c.name: c for c in tg.explain(model(), "topk:density=0.01", rules=rules, exclude=["2.*"]).choices}
    assert not chosen["0.weight"].compressed
    assert chosen["3.weight"].spec.name == "qsgd" and chosen["3.weight"].feedback.name == "ef"
    assert chosen["2.weight"].spec.name == "fp16" and chosen["2.weight"].feedback.name == "none"
    chosen = {c.name: c for c in tg.explain(model(), "qsgd", exclude=["2.*"], min_size=0, exclude_norms=False).choices}
    assert not chosen["2.weight"].compressed and chosen["1.weight"].compressed and chosen["0.bias"].compressed


def test_mistakes_are_named() -> None:
    with pytest.raises(TypeError, match="takes a DistributedDataParallel model, or .*, not Sequential"):
        tg.compress(model(), "qsgd")
    with pytest.raises(RuntimeError, match="init_process_group"):
        tg.CompressionState(model(), "qsgd")
    with pytest.raises(tersegrad.UnknownCodec):
        tg.explain(model(), "zip")
    with pytest.raises(tersegrad.Error):
        tg.explain(model(), "qsgd", rules={"nothing.*": "zip"})
    with pytest.raises(TypeError, match="list of patterns"):
        tg.explain(model(), "qsgd", exclude="2.*")
    with pytest.raises(TypeError, match="float64.*_ddp_params_and_buffers_to_ignore"):
        tg.explain(model().double(), "qsgd")
    mixed = torch.nn.ModuleDict({"wide": model(), "long": torch.nn.Linear(3, 3).double()})
    alone = torch.nn.Linear(3, 3).double()
    with pytest.raises(TypeError, match=r"bias has gradients of torch.float64.*its name is '\.bias', with a dot"):
        tg.explain(alone, "qsgd")
    with pytest.raises(TypeError, match="long.bias has gradients of torch.float64"):
        tg.explain(mixed, "qsgd", exclude=["long.*"])
    ignored = ["long.weight", "long.bias"]
    torch.nn.parallel.DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(mixed, ignored)
    assert all(choice.name.startswith("wide.") for choice in tg.explain(mixed, "qsgd").choices)
    with pytest.raises(ValueError, match="no parameters that are trained"):
        tg.explain(torch.nn.ReLU(), "qsgd")


def test_types() -> None:
    pytest.importorskip("mypy", reason="mypy not installed")
    root = Path(__file__).resolve().parents[2]
    result = subprocess.run([sys.executable, "-m", "mypy", "--cache-dir=/dev/null"], cwd=root, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


