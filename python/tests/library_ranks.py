# SPDX-License-Identifier: Apache-2.0
"""What the C reducer leaves on each rank, over the library's own transport of threads: what the hook must equal."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from ctypes import POINTER, byref

import cases
import tersegrad.torch as tg
import torch
from tersegrad._library import lib, tg_error, tg_tensor, tg_transport
from tersegrad.errors import check
from tersegrad.reducer import Reducer


def by_the_library(
    spec: str, feedback: str, algorithm: str, dtype: str, steps: int, hosts: Sequence[int] | None = None
) -> list[list[dict[str, bytes]]]:
    """The means of each step on each rank, of the gradients that cases.hook_bits has."""
    kind, world = getattr(torch, dtype), cases.WORLD if hosts is None else len(hosts)
    policy = tg.Policy.of(spec, feedback)
    choices = tg.policy.choices_of(cases.Products(kind), policy)
    transports = (POINTER(tg_transport) * world)()
    error = tg_error()
    check(lib.tg_transport_local(world, transports, byref(error)), error)
    results: list[list[dict[str, bytes]]] = [[] for _ in range(world)]
    problems: list[BaseException] = []

    def run(rank: int) -> None:
        try:
            tensors = [choice.tensor(True) for choice in choices]
            reducer = Reducer(rank, world, tensors, algorithm=algorithm, seed=7, hosts=hosts)
            mine = tg_error()
            for step in range(steps):
                values = {choice.name: cases.gradient(rank, step, choice.name, kind) for choice in choices}
                raw = (tg_tensor * len(choices))(
                    *(tg_tensor(values[c.name].data_ptr(), c.count, tg.policy.DTYPES[kind]) for c in choices)
                )
                check(lib.tg_reduce(reducer._handle, transports[rank], raw, step, byref(mine)), mine)
                results[rank].append({name: cases.bits(value) for name, value in values.items()})
        except BaseException as problem:
            problems.append(problem)
            lib.tg_transport_abort(transports[rank], 1)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(world)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for transport in transports:
        lib.tg_transport_free(transport)
    if problems:
        raise problems[0]
    return results
