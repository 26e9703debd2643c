# SPDX-License-Identifier: Apache-2.0
"""What a run says while it goes on."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Any

_log = logging.getLogger("tersegrad")
_said: set[str] = set()


def announce(line: str) -> None:
    """A line that was asked for (log_every): to the program's logging if this takes it, else to stderr, so that it is
    seen where nothing is configured, whose level is WARNING."""
    if _log.hasHandlers() and _log.isEnabledFor(logging.INFO):
        _log.info("%s", line)
    else:
        print(f"tersegrad: {line}", file=sys.stderr, flush=True)


def say(line: Callable[[Any], str], stats: Callable[[], Any]) -> None:
    """Announces what has been done so far, if it can: stderr may be closed, and that is no reason to stop."""
    try:
        announce(line(stats()))
    except Exception as error:
        _log.debug("%s", error)


def warn_once(line: str) -> None:
    """A warning, once in the life of the process."""
    if line not in _said:
        _said.add(line)
        _log.warning("%s", line)
