# SPDX-License-Identifier: Apache-2.0
"""Local steps with real process groups: four ranks that are processes of their own, over gloo."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch not installed")

import cases  # noqa: E402
import local_cases  # noqa: E402
from ranks import Ranks  # noqa: E402


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    pool = Ranks(cases.WORLD)
    yield pool
    pool.close()


SIMPLE = [
    local_cases.synchronizes,
    local_cases.raises,
    local_cases.skips,
    local_cases.drops,
    local_cases.propagates,
    local_cases.options,
    local_cases.checked,
    local_cases.starts,
    local_cases.other_models,
    local_cases.bad_states,
    local_cases.states_of_other_rounds,
]


@pytest.mark.parametrize("case", SIMPLE, ids=lambda case: case.__name__)
def test_on_ranks(ranks: Ranks, case: object) -> None:
    ranks.run(case)  # type: ignore[arg-type]


def test_distributed_checkpoints(ranks: Ranks, tmp_path: Path) -> None:
    ranks.run(local_cases.checkpointed, str(tmp_path / "checkpoint"))


@pytest.mark.parametrize("before, after", [(2, 1), (2, 3), (4, 2), (1, 4)])
def test_another_number_of_workers(ranks: Ranks, before: int, after: int) -> None:
    ranks.run(local_cases.another_world, before, after)
