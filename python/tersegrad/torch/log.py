# SPDX-License-Identifier: Apache-2.0
"""What a run says while it goes on."""

from __future__ import annotations

import logging
import sys

_log = logging.getLogger("tersegrad")
_said: set[str] = set()


def announce(line: str) -> None:
    """A line that was asked for (log_every): to the program's logging if this takes it, else to stderr, so that it is
    seen where nothing is configured, whose level is WARNING."""
    if _log.hasHandlers() and _log.isEnabledFor(logging.INFO):
        _log.info("%s", line)
    else:
        print(f"tersegrad: {line}", file=sys.stderr, flush=True)


def warn_once(line: str) -> None:
    """A warning, once in the life of the process."""
    if line not in _said:
        _said.add(line)
        _log.warning("%s", line)
