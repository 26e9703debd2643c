# SPDX-License-Identifier: Apache-2.0
"""Tests use the package of the clone, or with TERSEGRAD_INSTALLED=1 the installed one."""

import os
import sys
from pathlib import Path

if os.environ.get("TERSEGRAD_INSTALLED") != "1":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

try:
    from hypothesis import settings

    # A busy machine is no failure, and the same cases are tried everywhere.
    settings.register_profile("repeatable", deadline=None, derandomize=True, max_examples=60, database=None)
    settings.load_profile("repeatable")
except ImportError:
    pass
