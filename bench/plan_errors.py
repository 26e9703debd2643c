#!/usr/bin/env python3
"""How far predictions of `tersegrad plan` are from measured steps: for bench/plan_network.

    bench/plan_errors.py join CASE PLAN.json MEASURED      a line of JSON for each row of a plan that was measured
    bench/plan_errors.py summary FILE.jsonl                errors, intervals and regret over all lines

MEASURED has lines "CODEC ALGORITHM MILLISECONDS". A case's prediction, interval and time are the medians of its rounds. Needs only Python.
"""
import json
import statistics
import sys


def join(case, plan_path, measured_path):
    """Rows of a plan, with what was measured for them."""
    ranks, rate, floats = case.split(":")
    with open(plan_path) as file:
        plan = json.load(file)
    measured = {}
    with open(measured_path) as file:
        for line in file:
            codec, algorithm, time = line.split()
            measured.setdefault((codec, algorithm), []).append(float(time) / 1e3)
    chosen = plan["recommended"]
    for row in plan["rows"]:
        key = row["codec"], row["algorithm"]
        if key not in measured:
            continue
        record = {"ranks": int(ranks), "rate": rate, "floats": int(floats), "codec": key[0], "algorithm": key[1]}
        record.update({name: row[name] for name in ("seconds", "low", "high")})
        record["measured"] = statistics.median(measured[key])
        record["chosen"] = (chosen["codec"], chosen["algorithm"]) == key
        print(json.dumps(record))


def quantile(values, share):
    """Linear between the sorted values."""
    values = sorted(values)
    place = share * (len(values) - 1)
    below = int(place)
    above = min(below + 1, len(values) - 1)
    return values[below] + (place - below) * (values[above] - values[below])


def errors(rows):
    """Of predictions, relative to what was measured."""
    return [abs(row["seconds"] / row["measured"] - 1) for row in rows]


def describe(name, rows):
    """One line."""
    if not rows:
        return
    wrong = errors(rows)
    inside = sum(row["low"] <= row["measured"] <= row["high"] for row in rows)
    width = statistics.median((row["high"] - row["low"]) / 2 / row["seconds"] for row in rows)
    print(
        f"{name}: {len(rows)} cases, error median {100 * statistics.median(wrong):.1f} %, 90th percentile "
        f"{100 * quantile(wrong, 0.9):.1f} %; inside the interval {inside} of {len(rows)}, median width ±{100 * width:.0f} %"
    )


def by_case(records):
    """One row for all rounds of a case."""
    cases = {}
    for record in records:
        key = record["rate"], record["ranks"], record["floats"], record["codec"], record["algorithm"]
        cases.setdefault(key, []).append(record)
    rows = []
    for rounds in cases.values():
        row = dict(rounds[0], rounds=len(rounds), chosen=[record["chosen"] for record in rounds])
        for name in ("seconds", "low", "high", "measured"):
            row[name] = statistics.median(record[name] for record in rounds)
        rows.append(row)
    return rows


def regret(rows):
    """How much longer the chosen row's step is than the best, and than the best without compression, by network and round."""
    worse, lost = [], []
    for network in sorted({(row["rate"], row["ranks"], row["floats"]) for row in rows}):
        here = [row for row in rows if (row["rate"], row["ranks"], row["floats"]) == network]
        best = min(here, key=lambda row: row["measured"])
        dense = min(row["measured"] for row in here if row["codec"] == "none")
        for chosen in here:
            for _ in range(sum(chosen["chosen"])):
                worse.append(chosen["measured"] / best["measured"] - 1)
                lost.append(chosen["measured"] / dense - 1 if chosen["codec"] != "none" else 0.0)
                print(
                    f"{network[1]} ranks at {network[0]}: chosen {chosen['codec']} by {chosen['algorithm']}, "
                    f"{1e3 * chosen['measured']:.1f} ms; best {best['codec']} by {best['algorithm']}, "
                    f"{1e3 * best['measured']:.1f} ms: regret {100 * worse[-1]:.1f} %, against dense {100 * lost[-1]:+.1f} %"
                )
    if worse:
        print(f"regret of at most 5 %: {sum(one <= 0.05 for one in worse)} of {len(worse)}; worst against dense {100 * max(lost):+.1f} %")


def held_out(rows):
    """24 of the held-out networks' cases: of each network four of five codecs, by turns with gather and shard."""
    codecs = ["qsgd:levels=127", "qsgd:levels=7", "terngrad", "onebit", "topk:density=0.01"]
    networks = sorted({(row["rate"], row["ranks"]) for row in rows})
    picked = []
    for i, network in enumerate(networks):
        for j, codec in enumerate(codecs):
            algorithm = ("gather", "shard")[(i + j) % 2]
            picked += [
                row
                for row in rows
                if j != i % 5 and (row["rate"], row["ranks"]) == network and (row["codec"], row["algorithm"]) == (codec, algorithm)
            ]
    return picked


def summary(path):
    """All that the lines say."""
    with open(path) as file:
        records = [json.loads(line) for line in file]
    rows = by_case(records)
    for row in rows:
        print(
            f"{row['ranks']} ranks {row['rate']:>8} {row['codec']:18} {row['algorithm']:6} predicted {1e3 * row['seconds']:8.2f} ms "
            f"({1e3 * row['low']:.2f}-{1e3 * row['high']:.2f})  measured {1e3 * row['measured']:8.2f}  "
            f"{100 * (row['seconds'] / row['measured'] - 1):+6.1f} %{'' if row['low'] <= row['measured'] <= row['high'] else '  outside'}"
        )
    compressed = [row for row in rows if row["codec"] != "none"]
    describe("held out", held_out(rows))
    describe("held out, Top-k", [row for row in held_out(rows) if row["codec"].startswith("topk")])
    describe("all with a codec", compressed)
    describe("all, Top-k", [row for row in compressed if row["codec"].startswith("topk")])
    describe("each round by itself", [record for record in records if record["codec"] != "none"])
    describe("all without", [row for row in rows if row["codec"] == "none"])
    regret(rows)


if __name__ == "__main__":
    if len(sys.argv) == 5 and sys.argv[1] == "join":
        join(*sys.argv[2:])
    elif len(sys.argv) == 3 and sys.argv[1] == "summary":
        summary(sys.argv[2])
    else:
        sys.exit(__doc__)
