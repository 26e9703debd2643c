# SPDX-License-Identifier: Apache-2.0
"""A process group that several states were given: one after the other may use it, never two at once."""

from __future__ import annotations

import weakref
from typing import Any

import torch

_holders: weakref.WeakKeyDictionary[Any, weakref.ref[Any]] = weakref.WeakKeyDictionary()


def claim(group: Any, state: Any) -> None:
    """The group is this state's until `release`. Refused while it is another's: gloo ends the process where messages of
    two states are mixed up."""
    if group is None:
        return
    holder = _holders.get(group)
    other = None if holder is None else holder()
    if other is not None and other is not state:
        raise RuntimeError(
            f"another {type(other).__name__} with this process_group is in the same backward pass, or in one that has not "
            "come to its end: give each state a process group of its own"
        )
    _holders[group] = weakref.ref(state)


def release(group: Any, state: Any) -> None:
    """Others may have it."""
    holder = None if group is None else _holders.get(group)
    if holder is not None and holder() is state:
        del _holders[group]


def claim_for_pass(group: Any, state: Any) -> None:
    """Until the backward pass that is under way returns."""
    if group is None:
        return
    claim(group, state)
    try:
        torch.autograd.Variable._execution_engine.queue_callback(lambda: release(group, state))
    except RuntimeError:  # there is none
        release(group, state)
