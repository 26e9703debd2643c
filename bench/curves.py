#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws docs/figures/training.svg from docs/figures/training.json: losses of dense and compressed training.

    bench/curves.py                 write the picture
    bench/curves.py --take FOLDER   take the figures from what bench/convergence wrote, then write the picture
    bench/curves.py --check         exit with 1 where the picture is not the one that the figures give
"""
from __future__ import annotations

import json
import math
import sys
from html import escape
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "figures"
COLOURS = {"dense": "#222", "Top-k 1 %, ef": "#d9730d", "Gaussian-k 0.1 %, ef": "#6940a5", "QSGD 4-bit": "#0b6e99", "ECQ 4-bit": "#4d9a51"}
TITLES = {"mnist": "CNN, MNIST", "chargpt": "character transformer", "lstm": "character LSTM"}
POINTS = 50
WIDTH, HEIGHT, LEFT, TOP, PANEL = 900, 250, 44, 56, 300


def take(folder: Path) -> dict:
    """Means of as many losses as make POINTS points a run; the first seed."""
    losses: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for line in (folder / "curves.jsonl").read_text().splitlines():
        row = json.loads(line)
        if row["seed"] == 1:
            losses.setdefault((row["task"], row["name"]), []).append((row["step"], row["loss"]))
    result: dict[str, dict] = {task: {} for task in TITLES}
    for (task, name), points in losses.items():
        size = max(1, len(points) // POINTS)
        groups = [points[i : i + size] for i in range(0, len(points) - size + 1, size)]
        result[task][name] = [[group[-1][0], round(sum(loss for _, loss in group) / len(group), 4)] for group in groups]
    return result


def panel(task: str, lines: dict, left: float) -> list[str]:
    """One chart: training loss, logarithmic, over steps."""
    wide, high = PANEL - LEFT - 18, HEIGHT - TOP - 34
    every = [loss for points in lines.values() for _, loss in points]
    low, top = math.log(min(every) * 0.95), math.log(max(every) * 1.02)
    last = max(points[-1][0] for points in lines.values())

    def place(step: float, loss: float) -> str:
        return f"{left + LEFT + wide * step / last:.1f},{TOP + high * (top - math.log(loss)) / (top - low):.1f}"

    out = [f'<text x="{left + LEFT}" y="{TOP - 10}" class="title">{escape(TITLES[task])}</text>']
    for tick in (0.02, 0.05, 0.1, 0.2, 0.5, 1, 1.5, 2, 2.5, 3):
        if low < math.log(tick) < top:
            x, y = place(0, tick).split(",")
            out.append(f'<path d="M{x} {y}h{wide}" class="grid"/><text x="{float(x) - 5:.1f}" y="{float(y) + 4:.1f}" text-anchor="end">{tick:g}</text>')
    for step in (0, last // 2, last):
        x, y = place(step, math.exp(low)).split(",")
        out.append(f'<text x="{x}" y="{float(y) + 16:.1f}" text-anchor="middle">{step}</text>')
    for name, points in lines.items():
        path = " ".join(place(step, loss) for step, loss in points)
        wide_line = 3 if name == "dense" else 1.4  # the others lie on it
        out.append(f'<polyline points="{path}" fill="none" stroke="{COLOURS[name]}" stroke-width="{wide_line}"/>')
    return out


def picture(tasks: dict) -> str:
    parts, x = [], LEFT
    for name, colour in COLOURS.items():
        parts.append(f'<rect x="{x}" y="14" width="14" height="3" fill="{colour}"/><text x="{x + 19}" y="20">{escape(name)}</text>')
        x += 50 + int(6.4 * len(name))
    parts.append(f'<text x="{WIDTH - 18}" y="20" text-anchor="end" class="source">training loss over steps, 4 ranks</text>')
    for number, (task, lines) in enumerate(tasks.items()):
        parts += panel(task, lines, number * PANEL) if lines else []
    style = (
        "text{font:12px system-ui,sans-serif;fill:#222}.title{font-weight:600;font-size:12.5px}"
        ".source{font-size:10.5px;fill:#666}.grid{stroke:#ddd}"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        'aria-label="Training loss of dense and compressed runs">'
        f'<style>{style}</style><rect width="100%" height="100%" fill="#fff"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def main() -> int:
    figures, path = FOLDER / "training.json", FOLDER / "training.svg"
    if sys.argv[1:2] == ["--take"]:
        lines = ",\n".join(f"{json.dumps(task)}: {json.dumps(runs)}" for task, runs in take(Path(sys.argv[2])).items())
        figures.write_text("{\n" + lines + "\n}\n")
    made = picture(json.loads(figures.read_text()))
    if sys.argv[1:] == ["--check"]:
        if path.read_text() != made:
            print(f"{path.name} does not show {figures.name}: run bench/curves.py")
            return 1
        return 0
    path.write_text(made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
