# SPDX-License-Identifier: Apache-2.0
"""Two levels: ranks that share hosts, in six processes over gloo."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch", reason="torch not installed")

import hosts_cases  # noqa: E402
import tersegrad.torch as tg  # noqa: E402
from cases import Products, gradients  # noqa: E402
from library_ranks import by_the_library  # noqa: E402
from ranks import Ranks  # noqa: E402

CODECS = [
    ("topk:density=0.05", "ef"),
    ("topk:density=0.05", "dgc:momentum=0.9"),
    ("gaussiank:density=0.05", "ef"),
    ("qsgd:levels=7,bucket=512", "none"),
    ("qsgd", "ecq:alpha=0.2,beta=0.9"),
    ("none", "none"),
]


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    pool = Ranks(hosts_cases.WORLD)
    yield pool
    pool.close()


@pytest.mark.parametrize("hosts", hosts_cases.PLACEMENTS, ids=lambda hosts: "".join(map(str, hosts)))
@pytest.mark.parametrize("spec,feedback", CODECS)
def test_the_hook_leaves_the_bits_of_the_c_reducer(ranks: Ranks, spec: str, feedback: str, hosts: list[int]) -> None:
    for algorithm, dtype in (("gather", "float32"), ("shard", "float32"), ("shard", "bfloat16")):
        expected = by_the_library(spec, feedback, algorithm, dtype, 2, hosts)
        found = ranks.run(hosts_cases.hook_bits, spec, feedback, algorithm, dtype, 2, hosts)
        assert found == expected, (algorithm, dtype)
        assert all(one == found[0] for one in found), (algorithm, dtype)


SIMPLE = [
    hosts_cases.groups_are_those_of_hosts_and_owners,
    hosts_cases.other_back_ends,
    hosts_cases.one_host,
    hosts_cases.auto,
    hosts_cases.local_steps_stay_at_one_level,
    hosts_cases.every_rank_a_host,
    hosts_cases.not_finite,
    hosts_cases.mistakes,
]


@pytest.mark.parametrize("case", SIMPLE, ids=lambda case: case.__name__)
def test_on_ranks(ranks: Ranks, case: object) -> None:
    ranks.run(case)  # type: ignore[arg-type]


def test_auto_is_said(ranks: Ranks) -> None:
    said = ranks.run(hosts_cases.auto_is_said)
    assert [len(one) for one in said] == [2, 0, 0, 0, 0, 0]
    assert said[0][0] == "two levels: 2 hosts of 2 to 4 ranks" and said[0][1].startswith("one level, as in the state")


@pytest.mark.parametrize("whole", [False, True])
def test_auto_goes_on_from_one_level(ranks: Ranks, whole: bool) -> None:
    ranks.run(hosts_cases.auto_goes_on_from_one_level, whole)


def test_bytes_between_hosts(ranks: Ranks) -> None:
    for levels, flat, ratio, algorithm in ranks.run(hosts_cases.bytes_between_hosts):
        # A rank sends 2(H - 1)/H of its third of the bytes to the other host, where it sent 2(P - 1)/P of all: 1/5. The
        # parameters below min_size, the verdicts, and headers come to it.
        assert algorithm == "shard" and ratio > 6 and levels < 0.3 * flat, (levels, flat)


@pytest.mark.parametrize("algorithm", ["gather", "shard"])
@pytest.mark.parametrize("spec", ["topk:density=0.05", "qsgd"])
def test_a_resumed_run_equals_the_undisturbed_one(ranks: Ranks, spec: str, algorithm: str) -> None:
    ranks.run(hosts_cases.resumed, algorithm, spec)


@pytest.mark.parametrize(
    "before,after",
    [
        ([0, 0, 0, 1, 1, 1], [0, 0, 1, 0, 0, 1]),
        ([0, 0, 0, 1, 1, 1], None),
        (None, [0, 0, 1, 1, 2, 2]),
    ],
)
def test_residuals_follow_another_placement(ranks: Ranks, before: list[int] | None, after: list[int] | None) -> None:
    ranks.run(hosts_cases.moved, before, after)


def test_explain_knows_shares() -> None:
    model, hosts = Products(), [0, 0, 0, 1, 1, 1]
    flat, levels = tg.explain(model, "topk:density=0.01"), tg.explain(model, "topk:density=0.01", hosts=hosts)
    assert levels.shares == 3 and flat.shares == 1
    assert levels.residual_bytes == -(-flat.residual_bytes // 3)
    assert "2 hosts" in str(levels) and "3 shares" in str(levels) and "hosts" not in str(flat)
    assert "nothing is compressed" in str(tg.explain(model, "qsgd", hosts=[0, 0]))
    with pytest.raises(ValueError, match="give a list with the host"):
        tg.explain(model, "qsgd", hosts=[])


def test_plan_predicts_two_levels() -> None:
    """On a link so slow that nothing else counts: the model's own passes are timed, on a machine that may be busy."""
    model = Products()

    def loss() -> "torch.Tensor":
        return model(gradients(0, 0))

    flat, levels = (
        tg.plan(model, loss, world=8, per_node=4, rate="1mbit", codecs=["qsgd"], levels=levels, repeats=1) for levels in (False, True)
    )
    assert levels.find("qsgd", "none").seconds < flat.find("qsgd", "none").seconds / 2
    default = tg.plan(model, loss, world=8, per_node=4, rate="1mbit", codecs=["qsgd"], repeats=1)
    assert (flat.levels, levels.levels, default.levels) == (False, True, True) and default.per_node == 4
    assert default.find("qsgd", "none").bytes_sent == levels.find("qsgd", "none").bytes_sent
    alone = tg.plan(model, loss, world=4, per_node=4, rate="1mbit", codecs=["qsgd"], repeats=1)
    assert not alone.levels and alone.per_node == 4
    explained = tg.explain(model, "qsgd", hosts=[0, 0, 0, 0, 1, 1, 1, 1], loss=loss, rate="1mbit", repeats=1)
    assert explained.predicted is not None and explained.predicted.seconds < flat.find("qsgd", "none").seconds / 2
    slow = {"world": 6, "per_node": 4, "loss": loss, "rate": "1mbit", "repeats": 1}
    found = tg.explain(model, "qsgd", **slow)
    assert (found.hosts, found.shares) == (2, 2) and "2 hosts" in str(found)
    for options in ({"hosts": None}, {"algorithm": "shard"}, {"bypass": "auto"}, {"levels": False}):
        told = tg.explain(model, "qsgd", **slow, **options)
        assert told.hosts == 0 and told.predicted is not None and found.predicted is not None, options
        assert told.predicted.seconds > found.predicted.seconds, options
    with pytest.raises(ValueError, match="as many ranks on each"):
        tg.explain(model, "qsgd", hosts=[0, 0, 1], loss=loss, rate="1mbit", repeats=1)
