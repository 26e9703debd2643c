# SPDX-License-Identifier: Apache-2.0
"""fully_shard with compressed gradients: four real ranks over gloo, each with its shard on the CPU."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from ctypes import POINTER, byref
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch not installed")
fsdp = pytest.importorskip("torch.distributed.fsdp", reason="this torch has no FSDP")
if not hasattr(getattr(fsdp, "FSDPModule", None), "set_custom_reduce_scatter"):
    pytest.skip("this torch has no FSDPModule.set_custom_reduce_scatter", allow_module_level=True)

import cases  # noqa: E402
import fsdp_cases  # noqa: E402
from ranks import Ranks  # noqa: E402
from tersegrad import FeedbackSpec, Spec  # noqa: E402
from tersegrad._library import Dtype, lib, tg_error, tg_tensor, tg_transport  # noqa: E402
from tersegrad.errors import check  # noqa: E402
from tersegrad.reducer import Reducer, TensorSpec  # noqa: E402

WORLD = fsdp_cases.WORLD


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    pool = Ranks(WORLD)
    yield pool
    pool.close()


def by_the_library(seed: int, tensors: list[TensorSpec], dtype: Any, steps: int) -> list[list[dict[str, bytes]]]:
    """What tg_reduce leaves of each parameter in each rank's part, over the library's own transport of threads."""
    transports = (POINTER(tg_transport) * WORLD)()
    error = tg_error()
    check(lib.tg_transport_local(WORLD, transports, byref(error)), error)
    results: list[list[dict[str, bytes]]] = [[] for _ in range(WORLD)]

    def run(rank: int) -> None:
        reducer, mine = Reducer(rank, WORLD, tensors, algorithm="scatter", seed=seed), tg_error()
        for step in range(steps):
            names = [tensor.name.split(".")[-1] for tensor in tensors]
            values = {name: fsdp_cases.gradient(rank, step, name).to(dtype) for name in names}
            raw = (tg_tensor * len(tensors))(*(tg_tensor(values[n].data_ptr(), t.count, t.dtype) for n, t in zip(names, tensors)))
            check(lib.tg_reduce(reducer._handle, transports[rank], raw, step, byref(mine)), mine)
            own = {name: fsdp_cases.part(value, rank).to(torch.float32) for name, value in values.items()}
            results[rank].append({name: cases.bits(value) for name, value in own.items()})

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(WORLD)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for transport in transports:
        lib.tg_transport_free(transport)
    return results


SPECS = [
    ("qsgd", "none"),
    ("qsgd:levels=15,bucket=64,coding=entropy", "ef"),
    ("qsgd:levels=7,bucket=0", "ef"),
    ("terngrad", "none"),
    ("onebit", "ef"),
    ("fp16", "ef"),
    ("topk:density=0.05", "ef"),
    ("topk:density=0.05,values=levels", "dgc:momentum=0.9"),
    ("gaussiank:density=0.05", "none"),
    ("randk:density=0.05", "ef"),
]


@pytest.mark.parametrize("spec,feedback", SPECS)
def test_a_shard_has_the_bits_of_the_c_reducer(ranks: Ranks, spec: str, feedback: str) -> None:
    for dtype in ("float32", "bfloat16"):
        answers = ranks.run(fsdp_cases.unit_bits, spec, feedback, dtype, 3)
        units = answers[0]["tensors"]
        assert set(units) == {"", "inner"}
        expected: list[list[dict[str, bytes]]] = [[{} for _ in range(3)] for _ in range(WORLD)]
        for seed, raw in units.values():
            tensors = [TensorSpec(n, c, Dtype(d), Spec(s), FeedbackSpec(f), True, b) for n, c, d, s, f, b in raw]
            for rank, steps in enumerate(by_the_library(seed, tensors, getattr(torch, dtype), 3)):
                for step, own in enumerate(steps):
                    expected[rank][step].update(own)
        assert [answer["found"] for answer in answers] == expected, dtype


CASES = [
    fsdp_cases.training,
    fsdp_cases.hosts,
    fsdp_cases.hosts_get_the_mean,
    fsdp_cases.native_hsdp_is_refused,
    fsdp_cases.operations,
    fsdp_cases.another_dimension,
    fsdp_cases.not_finite,
    fsdp_cases.accumulation,
    fsdp_cases.added_up,
    fsdp_cases.overlapped,
    fsdp_cases.scaler,
    fsdp_cases.unused,
    fsdp_cases.resumed,
    fsdp_cases.another_world,
    fsdp_cases.explained,
    fsdp_cases.lacking,
    fsdp_cases.other_versions,
]


def test_a_rank_that_dies_ends_the_others() -> None:
    pool = Ranks(WORLD)
    pool.start(fsdp_cases.dies, 2)
    answers = [pool.answer(rank) for rank in range(WORLD)]
    pool.close()
    assert answers[2] == (False, "died")
    for rank in (0, 1, 3):
        good, text = answers[rank]
        assert good and text, answers[rank]


def test_distributed_checkpoints(ranks: Ranks, tmp_path: Path) -> None:
    ranks.run(fsdp_cases.checkpointed, str(tmp_path / "checkpoint"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_on_ranks(ranks: Ranks, case: object) -> None:
    ranks.run(case)  # type: ignore[arg-type]
