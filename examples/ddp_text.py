# SPDX-License-Identifier: Apache-2.0
"""Characters of a text file as training data, for ddp_chargpt.py and ddp_lstm.py."""

import argparse
import sys
from pathlib import Path

import torch
from ddp_common import Batch


class Text:
    """The last tenth is for testing."""

    def __init__(self, options: argparse.Namespace, context: int) -> None:
        path: "Path | None" = options.data
        if path is None:
            path = Path(__file__).resolve().parent.parent / "LICENSE"  # short, but everybody has it
        if not path.is_file():
            sys.exit(f"{path} is not a file: --data takes a text file")
        text = path.read_text(encoding="utf-8", errors="replace")
        letters = sorted(set(text))
        numbers = {letter: i for i, letter in enumerate(letters)}
        data = torch.tensor([numbers[letter] for letter in text])
        self.letters, self._context = len(letters), context
        cut = len(data) * 9 // 10
        self._train, self._test = data[:cut], data[cut:]

    def _at(self, data: torch.Tensor, starts: torch.Tensor) -> Batch:
        rows = starts.unsqueeze(1) + torch.arange(self._context + 1)
        return data[rows][:, :-1], data[rows][:, 1:]

    def batch(self, draws: torch.Generator, count: int) -> Batch:
        return self._at(self._train, torch.randint(len(self._train) - self._context - 1, (count,), generator=draws))

    def test(self) -> Batch:
        """The whole part for testing, cut into samples."""
        return self._at(self._test, torch.arange(0, len(self._test) - self._context, self._context))
