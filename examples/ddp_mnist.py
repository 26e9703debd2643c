#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A small CNN on MNIST (--data FOLDER with the IDX files), or on the digits that scikit-learn ships.

torchrun --nproc-per-node 4 examples/ddp_mnist.py --data ~/mnist --spec none --spec topk:density=0.01/ef
"""

import argparse
import gzip
import sys
from pathlib import Path

import numpy as np
import torch
from ddp_common import Batch, Task, main, parser
from torch import nn


def read_idx(folder: Path, name: str) -> torch.Tensor:
    """An IDX file, gzipped or not."""
    for path in (folder / name, folder / f"{name}.gz"):
        if path.exists():
            data = gzip.open(path).read() if path.suffix == ".gz" else path.read_bytes()
            shape = [int.from_bytes(data[4 + 4 * i : 8 + 4 * i], "big") for i in range(data[3])]
            return torch.from_numpy(np.frombuffer(data, np.uint8, offset=4 + 4 * len(shape)).reshape(shape).copy())
    sys.exit(f"{folder} has neither {name} nor {name}.gz")


def load(folder: "Path | None") -> "tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]":
    """Images and labels for training, then for testing; images are 28x28 with values 0 ... 1."""
    if folder is not None:
        images = [read_idx(folder, f"{part}-images-idx3-ubyte").float().unsqueeze(1) / 255 for part in ("train", "t10k")]
        labels = [read_idx(folder, f"{part}-labels-idx1-ubyte").long() for part in ("train", "t10k")]
        return images[0], labels[0], images[1], labels[1]
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        sys.exit("give --data FOLDER with MNIST's IDX files, or install scikit-learn for its digits")
    digits = load_digits()
    pictures = torch.from_numpy(digits.images).float().unsqueeze(1) / 16
    pictures = nn.functional.interpolate(pictures, size=28, mode="bilinear")
    targets = torch.from_numpy(digits.target).long()
    return pictures[:1500], targets[:1500], pictures[1500:], targets[1500:]


def make_model() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 7 * 7, 128), nn.ReLU(), nn.Linear(128, 10),
    )  # fmt: skip


def make_task(options: argparse.Namespace) -> Task:
    images, labels, test_images, test_labels = load(options.data)

    def batch(draws: torch.Generator, count: int) -> Batch:
        rows = torch.randint(len(images), (count,), generator=draws)
        return images[rows], labels[rows]

    return Task(make_model, batch, (test_images, test_labels), learning_rate=0.02)


if __name__ == "__main__":
    main(parser(str(__doc__).splitlines()[0], steps=400, batch=32).parse_args(), make_task)
