#!/usr/bin/env python3
"""Two tables of docs/results.md: sizes of QSGD's codes and errors of Top-k, beside the papers' bounds.

    .venv/bin/python bench/bounds.py [COMMAND] [GRADIENT.npy]...

Needs numpy. COMMAND is build/tersegrad where it is not given. The Top-k table covers synthetic vectors, every
GRADIENT.npy, and the steps of a softmax regression that is trained with Top-k and error feedback.
"""
import math
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

DENSITIES = (0.1, 0.01, 0.001)


def frame_bytes(command: str, vector: np.ndarray, spec: str) -> int:
    with tempfile.TemporaryDirectory() as folder:
        source, frame = Path(folder, "v.npy"), Path(folder, "v.tg")
        np.save(source, vector)
        subprocess.run([command, "encode", "--force", spec, source, frame], check=True, stdout=subprocess.DEVNULL)
        return frame.stat().st_size


def qsgd_sizes(command: str) -> None:
    """Bits per element of a Gaussian vector, one L2 scale, Elias codes; and what the paper promises."""
    print("| n | s | bits per element | bound | s = √n: bits per element | the paper's 2.8 + 32/n | `coding=auto` |")
    print("|---|---|---|---|---|---|---|")
    header = 64 * 8
    for log_n in range(10, 25, 2):
        n, s = 1 << log_n, 4
        vector = np.random.default_rng(log_n).standard_normal(n).astype(np.float32)
        few = frame_bytes(command, vector, f"qsgd:levels={s},norm=l2,bucket=0,coding=elias") * 8 - header
        root = math.sqrt(n)
        bound = (3 + 1.5 * math.log2(2 * (s * s + n) / (s * (s + root)))) * s * (s + root) + 32
        dense = f"qsgd:levels={int(root)},norm=l2,bucket=0"
        elias = frame_bytes(command, vector, dense + ",coding=elias") * 8 - header
        shortest = frame_bytes(command, vector, dense + ",coding=auto") * 8 - header
        print(f"| 2^{log_n} | {s} | {few / n:.4f} | {bound / n:.4f} | {elias / n:.3f} | {2.8 + 32 / n:.3f} "
              f"| {shortest / n:.3f} |", flush=True)


def ratio(vector: np.ndarray, density: float) -> float:
    """|u - Top_k(u)|^2 / |u|^2."""
    squares = np.sort(vector.astype(np.float64) ** 2)
    k = max(1, int(density * squares.size))
    return float(squares[:-k].sum() / squares.sum())


def training_residuals(density: float, steps: int):
    """u = g + h of a softmax regression on clusters, trained with Top-k and error feedback, step by step."""
    rng = np.random.default_rng(7)
    rows, features, classes = 4000, 200, 20
    centres = rng.standard_normal((classes, features))
    labels = rng.integers(0, classes, rows)
    data = (centres[labels] + 2 * rng.standard_normal((rows, features))).astype(np.float32)
    weights = np.zeros((features, classes), np.float32)
    residual = np.zeros(weights.size, np.float32)
    k = max(1, int(density * weights.size))
    for step in range(1, steps + 1):
        batch = rng.integers(0, rows, 128)
        scores = data[batch] @ weights
        scores -= scores.max(axis=1, keepdims=True)
        chance = np.exp(scores)
        chance /= chance.sum(axis=1, keepdims=True)
        chance[np.arange(128), labels[batch]] -= 1
        u = (data[batch].T @ chance / 128).ravel() + residual
        yield step, u
        chosen = np.argpartition(np.abs(u), u.size - k)[u.size - k:]
        sent = np.zeros_like(u)
        sent[chosen] = u[chosen]
        residual = u - sent
        weights -= 0.1 * sent.reshape(weights.shape)


def topk_errors(files: list[str]) -> None:
    rng = np.random.default_rng(1)
    vectors = {"Gaussian, 10^6": rng.standard_normal(10**6),
               "Laplace, 10^6": rng.laplace(size=10**6),
               "±1, 10^6": rng.choice([-1.0, 1.0], 10**6)}
    vectors |= {Path(name).stem: np.load(name).ravel() for name in files}
    print("| vector | " + " | ".join(f"{d:g}" for d in DENSITIES) + " |")
    print("|---|" + "---|" * len(DENSITIES))
    print("| bound (1 − k/d)² | " + " | ".join(f"{(1 - d) ** 2:.6f}" for d in DENSITIES) + " |")
    for name, vector in vectors.items():
        print(f"| {name} | " + " | ".join(f"{ratio(vector, d):.6f}" for d in DENSITIES) + " |")
    for wanted in (1, 10, 100, 1000):
        cells = []
        for density in DENSITIES:
            cells.append(next(f"{ratio(u, density):.6f}" for step, u in training_residuals(density, wanted)
                              if step == wanted))
        print(f"| training, step {wanted} | " + " | ".join(cells) + " |")


def main() -> None:
    command = sys.argv[1] if len(sys.argv) > 1 else "build/tersegrad"
    qsgd_sizes(command)
    print()
    topk_errors(sys.argv[2:])


if __name__ == "__main__":
    main()
