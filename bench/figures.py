#!/usr/bin/env python3
"""Draws docs/figures/overview.svg from docs/figures/measured.json: what Tersegrad gains and what it costs.

    bench/figures.py            write the picture
    bench/figures.py --check    exit with 1 where the picture is not the one that the figures give
"""
import json
import math
import sys
from html import escape
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "figures"
COLOURS = ["#0b6e99", "#d9730d", "#6940a5"]
BAR, GAP, LABEL, SCALE, TOP = 16, 18, 150, 230, 66
WIDTH = 2 * (LABEL + SCALE + 70)


def bar_length(value: float, largest: float) -> float:
    """Logarithmic: a factor of ten is the same length everywhere, and 1 is a short stub."""
    return SCALE * (math.log10(value) + 0.15) / (math.log10(largest) + 0.15)


def panel(chart: dict, left: float) -> tuple[list[str], float]:
    """One chart of horizontal bars, grouped; returns its elements and its height."""
    largest = max(v for s in chart["series"] for v in s["values"])
    out = [f'<text x="{left}" y="22" class="title">{escape(chart["title"])}</text>']
    x = left
    for series, colour in zip(chart["series"], COLOURS):
        out.append(f'<rect x="{x}" y="36" width="10" height="10" fill="{colour}"/>')
        out.append(f'<text x="{x + 15}" y="45">{escape(series["name"])}</text>')
        x += 36 + 6.4 * len(series["name"])
    y = TOP
    for i, group in enumerate(chart["groups"]):
        middle = y + BAR * len(chart["series"]) / 2 + 4
        out.append(f'<text x="{left + LABEL - 8}" y="{middle}" text-anchor="end">{escape(group)}</text>')
        for series, colour in zip(chart["series"], COLOURS):
            value = series["values"][i]
            length = bar_length(value, largest)
            out.append(f'<rect x="{left + LABEL}" y="{y}" width="{length:.1f}" height="{BAR - 2}" fill="{colour}"/>')
            out.append(f'<text x="{left + LABEL + length + 5:.1f}" y="{y + 11}">{value:g} ×</text>')
            y += BAR
        y += GAP
    out.append(f'<text x="{left}" y="{y + 4}" class="source">{escape(chart["source"])}; logarithmic</text>')
    return out, y + 16


def picture(charts: dict) -> str:
    parts, height = [], 0.0
    for number, name in enumerate(("network", "cost")):
        elements, bottom = panel(charts[name], 10 + number * WIDTH / 2)
        parts += elements
        height = max(height, bottom)
    style = ("text{font:12px system-ui,sans-serif;fill:#222}.title{font-weight:600;font-size:12.5px}"
             ".source{font-size:10.5px;fill:#666}")
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" role="img" '
            'aria-label="Speed-up over a dense all-reduce, and time to compress beside torch">'
            f'<style>{style}</style><rect width="100%" height="100%" fill="#fff"/>\n' + "\n".join(parts) + "\n</svg>\n")


def main() -> int:
    made = picture(json.loads((FOLDER / "measured.json").read_text()))
    path = FOLDER / "overview.svg"
    if sys.argv[1:] == ["--check"]:
        if path.read_text() != made:
            print(f"{path.name} does not show measured.json: run bench/figures.py")
            return 1
        return 0
    path.write_text(made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
