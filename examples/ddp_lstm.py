#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A character LSTM on a text file (--data FILE; default: the LICENSE of this clone).

torchrun --nproc-per-node 4 examples/ddp_lstm.py --data shakespeare.txt --spec none --spec qsgd:levels=7,bucket=512
"""

import argparse

import torch
from ddp_common import Task, main, parser
from ddp_text import Text
from torch import nn


class CharLstm(nn.Module):
    """Layers of 256."""

    def __init__(self, letters: int, layers: int, width: int = 256) -> None:
        super().__init__()
        self.letter = nn.Embedding(letters, 64)
        self.layers = nn.LSTM(64, width, layers, batch_first=True)
        self.head = nn.Linear(width, letters)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        states, _ = self.layers(self.letter(text))
        output: torch.Tensor = self.head(states)
        return output


def make_task(options: argparse.Namespace) -> Task:
    text = Text(options, options.context)
    # Recurrent gradients explode now and then: clipped after reducing, alike on every rank. Far above what they usually
    # are: with error feedback, what is cut off is lost.
    return Task(lambda: CharLstm(text.letters, options.layers), text.batch, text.test(), learning_rate=0.5, clip=5.0)


if __name__ == "__main__":
    arguments = parser(str(__doc__).splitlines()[0], steps=300, batch=8)
    arguments.add_argument("--context", type=int, default=50, help="characters of a sample")
    arguments.add_argument("--layers", type=int, default=2)
    main(arguments.parse_args(), make_task)
