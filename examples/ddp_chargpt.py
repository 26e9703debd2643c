#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A character transformer on a text file (--data FILE; default: the LICENSE of this clone).

torchrun --nproc-per-node 4 examples/ddp_chargpt.py --data shakespeare.txt --spec none --spec gaussiank:density=0.001/ef
"""

import argparse

import torch
from ddp_common import Task, main, parser
from ddp_text import Text
from torch import nn


class CharGpt(nn.Module):
    """Two layers, four heads; each character sees those before it."""

    def __init__(self, letters: int, context: int, width: int = 128) -> None:
        super().__init__()
        self.letter = nn.Embedding(letters, width)
        nn.init.normal_(self.letter.weight, std=0.02)  # no louder than places, or attention is slow to find them
        self.place = nn.Parameter(0.02 * torch.randn(context, width))
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, letters)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        length = text.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length, device=text.device)
        states = self.layers(self.letter(text) + self.place[:length], mask=mask, is_causal=True)
        output: torch.Tensor = self.head(self.norm(states))
        return output


def make_task(options: argparse.Namespace) -> Task:
    text = Text(options, options.context)
    # Not AdamW: an element that Top-k sends once in a hundred steps counts a hundred times in its second moment.
    return Task(lambda: CharGpt(text.letters, options.context), text.batch, text.test(), learning_rate=0.1)


if __name__ == "__main__":
    arguments = parser(str(__doc__).splitlines()[0], steps=300, batch=8)
    arguments.add_argument("--context", type=int, default=64, help="characters that it sees")
    main(arguments.parse_args(), make_task)
