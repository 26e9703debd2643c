#!/usr/bin/env python3
"""The table of bars, as Markdown: what each operation takes on each device, in units of that device's own R, S and A.

    bench/table.py cpu/avx2 cpu/avx2:threads=16                     25.6 M elements
    bench/table.py --counts 1000000,138000000 --seconds 2 cpu
    bench/table.py --file gradient.npy cpu                          a real gradient too

R is a read-only sum, S a scale in place, A e += g in place, with as many threads as the device has, measured by `tersegrad bench` in the same
process and by turns with what is timed. Figures are ratios of minima for the whole operation; **bold** is above its bar. Where a vector's pages
lie differs from process to process, and R with it: --runs 3 takes the median of three. Needs only Python.
"""
import argparse
import json
import math
import statistics
import subprocess
import sys
import time

MAX, L2 = "qsgd:levels=7", "qsgd:levels=7,norm=l2"
MAX8, L28 = "qsgd:levels=127", "qsgd:levels=127,norm=l2"
DENSITIES = ("0.1", "0.01", "0.001")
THRESHOLDS = ("gaussiank", "dgck", "trimk", "sidco")
UNKIND = ("equal", "signs", "sorted", "layer")


def topk(density):
    return "topk:density=" + density


def median(values):
    """Of numbers, and of what is in objects; what is neither is the same in all."""
    if isinstance(values[0], dict):
        return {key: median([v[key] for v in values]) for key in values[0]}
    is_number = isinstance(values[0], (int, float)) and not isinstance(values[0], bool)
    return statistics.median(values) if is_number else values[0]


class Bench:
    """Runs the command, once or more for each way to run it, and remembers what it said."""

    def __init__(self, binary, device, count, seconds, runs):
        self.runs = runs
        self.command = [binary, "bench", "--json", "-n", str(count), "--seconds", str(seconds), "--device", device]
        self.rows = {}
        self.floors = {}

    def run(self, specs, feedback=False, nonfinite="trust", distribution="gaussian"):
        command = self.command + ["--nonfinite", nonfinite, "--distribution", distribution]
        command += ["--feedback"] if feedback else []
        for spec in specs:
            command += ["--codec", spec]
        results = [json.loads(subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout)
                   for _ in range(self.runs)]
        for result in results:
            for name, ms in result["floors_ms"].items():
                self.floors.setdefault(name, []).append(ms)
        for row in map(median, zip(*(result["rows"] for result in results))):
            self.rows[row["codec"], feedback, nonfinite, distribution] = row

    def row(self, spec, feedback=False, nonfinite="trust", distribution="gaussian"):
        return self.rows[spec, feedback, nonfinite, distribution]

    def measure(self, path):
        codes = [MAX, L2, MAX8, L28, "terngrad", "onebit", "fp16", "bf16", MAX + ",coding=entropy", L2 + ",coding=entropy"]
        self.run(codes + [topk(d) for d in DENSITIES])
        self.run([MAX, MAX8, "onebit", "fp16"] + [topk(d) for d in DENSITIES] + [t + ":density=0.01" for t in THRESHOLDS], feedback=True)
        self.run([MAX, topk("0.01")], feedback=True, nonfinite="reject")
        for distribution in ["laplace", "mixture"] + ([path] if path else []):
            self.run([topk(d) for d in DENSITIES], feedback=True, distribution=distribution)
        for distribution in ("ambush",) + UNKIND:
            self.run([topk("0.01")], feedback=True, distribution=distribution)


def choose_bits(d, k):
    return (math.lgamma(d + 1) - math.lgamma(k + 1) - math.lgamma(d - k + 1)) / math.log(2)


def lines(path):
    """(operation, bar as text, bars, function of a Bench that gives as many figures)"""
    def encode(*specs, **how):
        return lambda b: [b.row(s, **how)["encode_x_floor"] for s in specs]

    def add(*specs, of="decode_add"):
        return lambda b: [b.row(s)[of + "_x_floor"] for s in specs]

    def add_by_read(*specs, of="decode_add"):
        return lambda b: [b.row(s)[of + "_x_floor"] * b.row(s)["floors_ms"]["scale"] / b.row(s)["floors_ms"]["read"] for s in specs]

    def more(spec): # what reject costs beside trust
        def of(b):
            ms = [b.row(spec, feedback=True, nonfinite=n) for n in ("reject", "trust")]
            return [ms[0]["encode_x_floor"] - ms[1]["encode_x_floor"]]
        return of

    def bits(spec):
        return lambda b: [(b.row(spec)["bytes"] - 64) / (b.row(spec)["limit_bits_per_element"] * b.row(spec)["count"] / 8)]

    def index_bits(b):
        return [r["index_bits"] / choose_bits(r["count"], r["selected"]) for r in (b.row(topk(d)) for d in DENSITIES)]

    def moved(*specs, of): # against loops that move the same bytes
        return lambda b: [b.row(s)[of + "_x_moves"] for s in specs]

    tops = [topk(d) for d in DENSITIES]
    yield "`qsgd` 4-bit max encode, bucket 512", "1.3 R", [1.3], encode(MAX)
    yield "4-bit L2, 8-bit max, 8-bit L2 encode", "1.5 R", [1.5] * 3, encode(L2, MAX8, L28)
    yield "4-bit, 8-bit encode with feedback", "1.3 A, –", [1.3, None], encode(MAX, MAX8, feedback=True)
    yield "with `reject`, more for feedback: 4-bit, `topk` 0.01", "0.6 A", [0.6] * 2, lambda b: more(MAX)(b) + more(topk("0.01"))(b)
    for what, of in ("verified by it", "decode_add"), ("verified before", "verified_add"):
        yield ("4-bit decode-add; of four peers' frames in one pass, " + what, "1.1 S; 1.5 S", [1.1, 1.5],
               lambda b, of=of: add(MAX, of=of)(b) + add(MAX, of=of + "_4")(b))
    yield "`terngrad`, `onebit` encode", "–", [None] * 2, encode("terngrad", "onebit")
    yield "`onebit` with feedback", "–", [None], encode("onebit", feedback=True)
    yield "`fp16`, `bf16` encode", "1.7 R", [1.7] * 2, encode("fp16", "bf16")
    for what, of in ("verified by it", "decode_add"), ("verified before", "verified_add"):
        yield "`fp16`, `bf16` decode-add, " + what, "1.2 S", [1.2] * 2, add("fp16", "bf16", of=of)
    for distribution in ["gaussian", "laplace", "mixture"] + ([path] if path else []):
        yield ("exact `topk` with feedback, density 0.1 / 0.01 / 0.001, %s" % distribution.split("/")[-1], "2.5 / 1.3 / 1.2 A",
               [2.5, 1.3, 1.2], encode(*tops, feedback=True, distribution=distribution))
    yield "exact `topk`, no feedback", "3.4 / 1.6 / 1.4 R", [3.4, 1.6, 1.4], encode(*tops)
    yield "`topk` 0.01 with feedback, guess missed", "3.7 A", [3.7], encode(topk("0.01"), feedback=True, distribution="ambush")
    yield ("`topk` 0.01 with feedback: all equal, ±1, sorted, one large layer", "8 A", [8] * 4,
           lambda b: [encode(topk("0.01"), feedback=True, distribution=u)(b)[0] for u in UNKIND])
    for what, of in ("verified by it", "decode_add"), ("verified before", "verified_add"):
        yield "sparse decode-add, density 0.01 / 0.001, " + what, "0.5 / 0.08 S", [0.5, 0.08], add(*tops[1:], of=of)
    yield ("`gaussiank`, `dgck`, `trimk`, `sidco` with feedback, density 0.01", "1.8 A", [1.8] * 4,
           encode(*[t + ":density=0.01" for t in THRESHOLDS], feedback=True))
    coded = [MAX + ",coding=entropy", L2 + ",coding=entropy"]
    yield "`entropy` on 4-bit max, L2: bits", "1.015, 1.03 × limit", [1.015, 1.03], lambda b: [bits(c)(b)[0] for c in coded]
    yield "the whole entropy-coded encode, max, L2", "4.5 R", [4.5] * 2, encode(*coded)
    for what, of in ("verified by it", "decode_add"), ("verified before", "verified_add"):
        yield "the whole entropy-coded decode-add, " + what, "4 R", [4] * 2, add_by_read(*coded, of=of)
    yield "index bits, density 0.1 / 0.01 / 0.001", "1.025 / 1.012 / 1.015 × log2 C(d,k)", [1.025, 1.012, 1.015], index_bits
    plain = (MAX, L2, MAX8, L28, "fp16")
    yield "encode against moving the same bytes: 4-bit max, L2, 8-bit max, L2, `fp16`", "–", [None] * 5, moved(*plain, of="encode")
    yield "decode-add, verified before, against the same: 4-bit, 8-bit, `fp16`; four 4-bit", "–", [None] * 4, lambda b: (
        moved(MAX, MAX8, "fp16", of="verified_add")(b) + moved(MAX, of="verified_add_4")(b))


def cell(figures, bars):
    precise = all(bar and bar < 1.04 for bar in bars)
    shown = []
    for figure, bar in zip(figures, bars):
        text = ("%.3f" if precise or figure < 0.1 else "%.2f") % figure
        shown.append("**%s**" % text if bar and round(figure, 3 if precise else 2) > bar else text)
    return ", ".join(shown)


def print_table(benches, count, path):
    print("\n%.1f M elements\n" % (count / 1e6))
    print("| operation | bar | %s |" % " | ".join(benches))
    print("|---|---|%s" % ("---|" * len(benches)))
    for operation, bar, bars, figures in lines(path):
        print("| %s | %s | %s |" % (operation, bar, " | ".join(cell(figures(b), bars) for b in benches.values())))
    floors = [", ".join("%.3g–%.3g" % (min(b.floors[f]), max(b.floors[f])) for f in ("read", "scale", "accumulate")) for b in benches.values()]
    print("| R, S, A in ms | | %s |" % " | ".join(floors))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("devices", nargs="+", metavar="DEVICE")
    parser.add_argument("--counts", default="25600000", help="elements, commas in between (default 25600000)")
    parser.add_argument("--seconds", type=float, default=1.0, help="for each row (default 1)")
    parser.add_argument("--runs", type=int, default=1, help="processes for each figure, of which the median is shown (default 1)")
    parser.add_argument("--file", help="a gradient (.npy), repeated to size")
    parser.add_argument("--binary", default="build/tersegrad")
    options = parser.parse_args()
    for count in map(int, options.counts.split(",")):
        benches = {}
        for device in options.devices:
            started = time.monotonic()
            benches[device] = Bench(options.binary, device, count, options.seconds, options.runs)
            benches[device].measure(options.file)
            print("%s, %d elements: %.0f s" % (device, count, time.monotonic() - started), file=sys.stderr)
        print_table(benches, count, options.file)


if __name__ == "__main__":
    main()
