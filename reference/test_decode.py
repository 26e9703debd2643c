"""The reference decoder on frames made by hand: header, checksum, plain values, one bit; arbitrary bytes; its command line."""

import random
import struct
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import decode as dut
from decode import Refused, decode, read_header
from encoders import (
    BF16, FP16, NONE, ONEBIT, QSGD, TERNGRAD, TOPK, frame, index_stream, pack, padded, qsgd, random_levels,
    random_scales, refused, same, scale_bytes, sparse_payload, spread, topk,
)  # fmt: skip

SCRIPT = Path(__file__).parent / "decode.py"


# ---- 1. and 2. header, checksum ----


def test_header_fields():
    h = read_header(qsgd([1, -1], 1, [(None, 2.0)], bucket=512, layout=2, coding=1))
    assert (h.codec, h.layout, h.norm, h.range, h.coding, h.levels, h.bucket, h.count) == (3, 2, 1, 0, 1, 1, 512, 2)
    assert (h.tensor, h.seed, h.step, h.rank) == (7, 1 << 63, 3, 2)


@pytest.mark.parametrize("over, why", [
    (dict(magic=b"TGRE"), "magic"), (dict(version=0), "never released"), (dict(version=2), "unknown version"), (dict(dtype=3), "dtype"), (dict(flags=3), "flags"),
    (dict(layout=6), "layout"), (dict(layout=1), "layout"), (dict(codec=6), "codec"), (dict(codec=15), "codec"),
    (dict(codec=22), "codec"), (dict(choice=128), "bit 7"), (dict(choice=1), "norm"), (dict(choice=2), "range"),
    (dict(choice=4), "coding"), (dict(choice=16), "values"), (dict(choice=64), "amount_kind"),
    (dict(levels=1), "levels"),
    (dict(bucket=1), "bucket"), (dict(amount=1), "amount"), (dict(count=1 << 32), "count"), (dict(size=5), "64 \\+ 5"),
    (dict(size=3), "64 \\+ 3"), (dict(stored=1), "wrong checksum"), (dict(checksum=False, stored=1), "flag"),
    (dict(codec=QSGD), "levels 0"), (dict(codec=QSGD, levels=32768), "levels 32768"),
    (dict(codec=QSGD, levels=1, choice=2), "minmax takes"), (dict(codec=QSGD, levels=1, amount=1), "amount"),
    (dict(codec=QSGD, levels=1, choice=16), "values"), (dict(codec=TERNGRAD, levels=60001), "clip"),
    (dict(codec=TERNGRAD, choice=1), "norm"), (dict(codec=TERNGRAD, choice=2), "range"),
    (dict(codec=ONEBIT, levels=1), "levels"), (dict(codec=ONEBIT, layout=3), "layout"),
    (dict(codec=TOPK), "zero"), (dict(codec=TOPK, amount=10**9 + 1), "density"), (dict(codec=TOPK, choice=64), "zero"),
    (dict(codec=TOPK, amount=1, bucket=1), "bucket"), (dict(codec=TOPK, amount=1, choice=48), "levels 0"),
    (dict(codec=TOPK, amount=1, layout=1), "layout"), (dict(codec=TOPK, amount=1, choice=50, levels=1), "minmax takes"),
])
def test_header_refusals(over, why):
    arguments = dict(codec=NONE, count=1, payload=struct.pack("<f", 1.0))
    decode(frame(**arguments))
    arguments.update(over)
    refused(frame(**arguments), why)


@pytest.mark.parametrize("coding, allowed", [(0, [0]), (1, [1, 2]), (2, [3, 4]), (3, [0, 1, 2, 3, 4])])
def test_layouts_of_codings(coding, allowed):
    for layout in range(5):
        data = qsgd([1, 0, -2], 2, [(None, 1.0)], layout=layout, coding=coding)
        if layout in allowed:
            same(decode(data)[1], [0.5, 0, -1])
        else:
            refused(data, "does not allow")


@pytest.mark.parametrize("size", [0, 1, 1023, 1024, 1025, 5000, 512 * 1024, 512 * 1024 + 1, 1300000])
def test_checksum(size):
    values = np.arange(size, dtype="<f4")
    data = frame(NONE, size, values.tobytes())
    same(decode(data)[1], values)
    for at in (20, 60, 64, len(data) - 1):
        if at < len(data):
            bad = bytearray(data)
            bad[at] ^= 1
            refused(bytes(bad), "checksum")
    refused(data[:-1], "64 \\+|header")
    refused(data + b"\0", "64 \\+")


# ---- 3. plain values ----


@pytest.mark.parametrize("codec, dtype, kind", [
    (NONE, 0, 0), (NONE, 1, 1), (NONE, 2, 2), (FP16, 0, 1), (FP16, 2, 1), (BF16, 0, 2), (BF16, 1, 2)])
def test_plain_values(codec, dtype, kind):
    x = np.array([0.0, -0.0, 1.5, -2.0, 2.0**-24, 65280.0], np.float32)
    raw = {0: x.astype("<f4").tobytes(), 1: x.astype("<f2").tobytes(),
           2: b"".join(struct.pack("<f", v)[2:] for v in x)}[kind]
    got = decode(frame(codec, len(x), raw, dtype=dtype))[1]
    assert got.tobytes() == x.tobytes()
    refused(frame(codec, len(x) + 1, raw, dtype=dtype), "too short")
    refused(frame(codec, len(x) - 1, raw, dtype=dtype), "too many")
    for bad in {0: (b"\0\0\x80\x7f", b"\1\0\x80\xff"), 1: (b"\0\x7c", b"\1\xfc"), 2: (b"\x80\x7f", b"\x81\xff")}[kind]:
        refused(frame(codec, 1, bad, dtype=dtype), "infinite")


# ---- 5. one bit ----


@pytest.mark.parametrize("n, bucket", [(0, 0), (0, 9), (1, 0), (511, 64), (512, 0), (1500, 512)])
def test_onebit(n, bucket):
    rng = random.Random(n)
    codes = [rng.randint(0, 1) for _ in range(n)]
    scales = random_scales(n, bucket, False)
    payload = padded(pack(codes, 1)) + scale_bytes(scales)
    want = [scales[i // bucket if bucket else 0][1] * (1 if code else -1) for i, code in enumerate(codes)]
    same(decode(frame(ONEBIT, n, payload, bucket=bucket))[1], want)
    refused(frame(ONEBIT, n, payload + b"\0", bucket=bucket), "too many")
    if n:
        for bad in (-1.0, -0.0, float("inf"), float("nan")):
            refused(frame(ONEBIT, n, payload[:-4] + struct.pack("<f", bad), bucket=bucket), "magnitude")
    if n % 32:
        at = len(pack(codes, 1)) - (n % 8 == 0)
        if at % 4:
            refused(frame(ONEBIT, n, payload[:at] + b"\1" + payload[at + 1 :], bucket=bucket), "padding")


# ---- arbitrary bytes, command line ----


def corpus():
    q = random_levels(150, 3)
    for layout in range(4):
        yield qsgd(q, 3, random_scales(150, 64, True), 64, layout, minmax=True)
    yield qsgd(q, 3, [(None, 1.0)], layout=3, t=2, log_lanes=2)
    yield qsgd([0] * 150, 3, [(None, 1.0)], layout=3)
    yield qsgd(random_levels(150, 999), 999, [(None, 1.0)], layout=3)
    yield frame(FP16, 20, np.arange(20).astype("<f2").tobytes())
    yield frame(ONEBIT, 90, pack([1] * 90, 1) + struct.pack("<2f", 1, 2), bucket=50)
    p = spread(3000, 290)
    for mode in range(3):
        yield topk(3000, sparse_payload(3000, 12, [(mode, p, index_stream(mode, p, 3000))], bytes(580)), 1)


def test_arbitrary_bytes_are_refused_or_decoded(monkeypatch):
    monkeypatch.setattr(dut, "MAX_COUNT", 1 << 20)  # (accepted frames of 2^28 zeros are right but slow)
    rng, outcomes = random.Random(5), set()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for data in corpus():
            decode(data)
            for _ in range(1000):
                bad = bytearray(data)
                bad[6], bad[60:64] = 0, bytes(4)  # no checksum, or nothing else would be looked at
                for _ in range(rng.choice((1, 1, 2, 6))):
                    at = rng.randrange(4, len(bad)) if rng.random() < 0.6 else rng.randrange(64, min(len(bad), 100))
                    bad[at] = rng.choice((0, 255, rng.randrange(256), bad[at] ^ 1 << rng.randrange(8)))
                if rng.random() < 0.2:
                    del bad[rng.randrange(64, len(bad)) :]
                    bad[32:40] = struct.pack("<Q", len(bad) - 64)
                try:
                    header, values = decode(bytes(bad))
                    assert values.dtype == np.float32 and values.shape == (header.count,) and np.isfinite(values).all()
                    outcomes.add("ok")
                except Refused as why:
                    outcomes.add(str(why)[:12])
            for size in range(70):
                with pytest.raises(Refused):
                    decode(rng.randbytes(size))
    assert len(outcomes) > 15 and "ok" in outcomes


def run(*arguments, text=None):
    return subprocess.run([sys.executable, SCRIPT, *map(str, arguments)], input=text, capture_output=True, text=True)


def test_command_line(tmp_path):
    good, bad, out = tmp_path / "good.tg", tmp_path / "bad.tg", tmp_path / "out"
    good.write_bytes(frame(NONE, 2, struct.pack("<2f", 1, -2)))
    bad.write_bytes(good.read_bytes()[:-1])
    assert run(good, out).returncode == 0
    same(np.load(out), [1, -2])
    out.unlink()
    for source in (bad, tmp_path / "missing"):
        result = run(source, out)
        assert result.returncode == 1 and result.stderr and not out.exists()
    assert run().returncode == run(good).returncode == run("--what", out).returncode == 2
    lines = f"{good} {out}\n{bad} {tmp_path}/other\n{tmp_path}/missing {out}\nonly-one\n{good} {out}\n"
    result = run("--batch", text=lines)
    answers = result.stdout.splitlines()
    assert result.returncode == 0 and [a.split(":")[0] for a in answers] == ["ok", "refused", "failed", "failed", "ok"]
    assert out.exists() and not (tmp_path / "other").exists()
