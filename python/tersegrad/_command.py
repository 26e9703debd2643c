# SPDX-License-Identifier: Apache-2.0
"""The command `tersegrad`, for what it can do and the library cannot: predicting. One model for both, with one set of
rules for bad input.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from ._library import _here


def find() -> Path:
    """The command in the wheel; in a clone that is not installed, the one that `make` built; else the one in PATH."""
    places = [_here / "bin" / "tersegrad", _here.parent.parent / "build" / "tersegrad"]
    for place in places:
        if place.exists():
            return place
    installed = shutil.which("tersegrad")
    if installed:
        return Path(installed)
    raise FileNotFoundError(
        f"there is no command 'tersegrad' in {places[0].parent}, {places[1].parent} or PATH: run 'make' in the clone, "
        "or reinstall the package"
    )


def ask(*arguments: str) -> tuple[dict[str, Any], list[str]]:
    """What the command answers in JSON, and its warnings. Raises ValueError with its sentence where it refuses."""
    # A child of a rank is no rank: with a launcher's variables `plan --probe` would measure.
    alone = {name: value for name, value in os.environ.items() if name not in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE")}
    done = subprocess.run([str(find()), *arguments, "--json"], capture_output=True, text=True, check=False, env=alone)
    lines = done.stderr.strip().splitlines()
    if done.returncode != 0:
        raise ValueError(lines[0] if lines else f"tersegrad {arguments[0]} ended with {done.returncode}")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer, [line.split("warning: ", 1)[1] for line in lines if "warning: " in line]
