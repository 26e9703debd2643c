"""Tests of the reference decoder on frames made by hand.

The small encoders below are written from docs/format.md too, the slow and literal way: a stream is a list of bits.
"""

import random
import struct
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import xxhash

sys.path.insert(0, str(Path(__file__).parent))
import decode as dut
from decode import Refused, decode, read_header

F32_MAX = 3.4028234663852886e38
TINY = 2.0**-149  # the smallest subnormal
NONE, FP16, BF16, QSGD, TERNGRAD, ONEBIT, TOPK = 0, 1, 2, 3, 4, 5, 16
L2, MAX = 0, 1
DENSITY, K_OF = 0, 1
SCRIPT = Path(__file__).parent / "decode.py"


# ---- encoders ----


def f32(x):
    """x, a double, rounded to float32 (a single operation on float32 values is rounded correctly this way)."""
    try:
        return struct.unpack("<f", struct.pack("<f", x))[0]
    except OverflowError:
        return float("inf") if x > 0 else float("-inf")


def to_bytes(bits):
    out = bytearray((len(bits) + 7) // 8)
    for n, bit in enumerate(bits):
        out[n // 8] |= bit << (n % 8)
    return bytes(out)


def number(value, width):
    return [value >> i & 1 for i in range(width)]


def omega(m):
    code = "0"
    while m > 1:
        binary = bin(m)[2:]
        code = binary + code
        m = len(binary) - 1
    return [int(c) for c in code]


def pack(codes, w, lanes=16):
    out, group = b"", 32 * lanes
    while len(codes) >= group:
        streams = [sum((codes[row * lanes + l] << (row * w) for row in range(32)), 0) for l in range(lanes)]
        for k in range(w):
            for stream in streams:
                out += struct.pack("<I", stream >> (32 * k) & 0xFFFFFFFF)
        codes = codes[group:]
    return out + to_bytes([bit for code in codes for bit in number(code, w)])


def choices(norm=0, range_=0, coding=0, values=0, kind=0):
    return norm | range_ << 1 | coding << 2 | values << 4 | kind << 6


def frame(codec, count, payload, *, dtype=0, layout=0, choice=0, levels=0, bucket=0, amount=0, checksum=True, **over):
    fields = dict(magic=b"TGRD", version=0, flags=int(checksum), tensor=7, seed=1 << 63, step=3, rank=2,
                  size=len(payload))
    fields.update(over)
    head = fields["magic"] + bytes([fields["version"], dtype, fields["flags"], layout, codec, choice])
    head += struct.pack("<HIII", levels, bucket, amount, fields["tensor"])
    head += struct.pack("<QQQQI", count, fields["size"], fields["seed"], fields["step"], fields["rank"])
    if "stored" in over:
        return head + struct.pack("<I", over["stored"]) + payload
    if not checksum:
        return head + bytes(4) + payload
    digests = [xxhash.xxh3_64_intdigest(payload[i : i + 4096]) for i in range(0, len(payload), 4096)]
    top = xxhash.xxh3_64_intdigest(head + bytes(4) + struct.pack(f"<{len(digests)}Q", *digests))
    return head + struct.pack("<I", top & 0xFFFFFFFF) + payload


def width(s):
    return next(w for w in range(1, 17) if 2**w >= 2 * s + 1)


def elias_sparse(q):
    bits, last = omega(sum(x != 0 for x in q) + 1), -1
    for i, x in enumerate(q):
        if x:
            bits += omega(i - last) + [int(x < 0)] + omega(abs(x))
            last = i
    return bits


def elias_dense(q):
    return [bit for x in q for bit in omega(abs(x) + 1) + ([int(x < 0)] if x else [])]


def elias(q, coder):
    streams = [to_bytes(coder(q[i : i + 65536])) for i in range(0, len(q), 65536)]
    return b"".join(struct.pack("<I", len(s)) for s in streams) + b"".join(streams)


def scaled_frequencies(symbols, size, m):
    """Frequencies that sum to 2^m, at least 1 for every symbol that occurs."""
    counts = [0] * size
    for y in symbols:
        counts[y] += 1
    f = [max(1, c * 2**m // (2 * len(symbols))) if c else 0 for c in counts]
    f[counts.index(max(counts))] += 2**m - sum(f)
    assert min(f) >= 0 and sum(f) == 2**m
    return f


def rans(symbols, freqs, m, lanes):
    starts = [sum(freqs[:i]) for i in range(len(freqs))]
    states, words = [1 << 16] * lanes, []
    for y in reversed(range(len(symbols))):
        x, f, start = states[y % lanes], freqs[symbols[y]], starts[symbols[y]]
        if x >= f << (32 - m):
            words.append(x & 0xFFFF)
            x >>= 16
        states[y % lanes] = (x // f << m) + x % f + start
    return struct.pack(f"<{lanes}I", *states) + struct.pack(f"<{len(words)}H", *reversed(words))


def group_starts(size):
    """Symbols that a grouped table lists: the first and the last, and where the distance from the middle gains or loses a digit."""
    half, first = size // 2, 1 - size % 2  # the distance of the first symbol of the upper half
    distances = [half - i for i in range(half)] + [first + i for i in range(size - half)]
    return [i for i in range(size)
            if i in (0, 1, half, size - 1) or len(f"{distances[i]:b}".lstrip("0")) != len(f"{distances[i - 1]:b}".lstrip("0"))]


def grouped_frequencies(size, m, mirrored):
    """Any that keep to the groups: one for each symbol, but for the one or two in the middle, which get the rest."""
    f = [1] * size
    f[size // 2] += (2**m - size) // (2 if mirrored and size % 2 == 0 else 1)
    if mirrored and size % 2 == 0:
        f[size // 2 - 1] = f[size // 2]
    return f


def entropy(q, s, m=12, t=1, log_lanes=5, c=16, freqs=None, mirrored=False, grouped=False, values=None):
    """values: how many codes there are, if not 2s + 1; then q are the codes."""
    codes = [x + s for x in q] if values is None else q
    values = values or 2 * s + 1
    low = max(0, (values - 1).bit_length() - 8)
    size = (values - 1 >> low) + 1
    chunks = []
    for at in range(0, len(codes), 1 << c):
        digits = [code >> low for code in codes[at : at + (1 << c)]]
        if t == 2:
            digits += [s >> low] * (-len(digits) % 32)
            digits = [digits[32 * (y // 16) + y % 16] + size * digits[32 * (y // 16) + y % 16 + 16]
                      for y in range(len(digits) // 2)]
        chunks.append(digits)
    freqs = freqs or scaled_frequencies([y for chunk in chunks for y in chunk], size**t, m)
    listed = range(-(-size // 2)) if mirrored else range(size**t)
    table = to_bytes([bit for i in listed if not grouped or i in group_starts(size) for bit in omega(freqs[i] + 1)])
    streams = [rans(chunk, freqs, m, 1 << log_lanes) for chunk in chunks]
    out = bytes([m, t | 64 * grouped | 128 * mirrored, log_lanes, c]) + struct.pack("<H", len(table)) + table
    out += b"".join(struct.pack("<I", len(stream)) for stream in streams)
    return out + pack([code & (1 << low) - 1 for code in codes], low) + b"".join(streams)


def entropy_sparse(q, s, g=12, mode=0, **options):
    listed = [i for i, x in enumerate(q) if x]
    segments = []
    for base in range(0, len(q), 1 << g):
        places = [i - base for i in listed if base <= i < base + (1 << g)]
        length = min(1 << g, len(q) - base)
        segments.append((mode if places else 0, places, index_stream(mode, places, length) if places else b""))
    codes = [q[i] + s - (q[i] > 0) for i in listed]
    return sparse_payload(len(q), g, segments, entropy(codes, s, values=2 * s, **options) if codes else b"")


def flat_lengths(values):
    """A complete code for at least two values, as short as can be."""
    m = len(values)
    short = 2 ** m.bit_length() - m  # so many need only m.bit_length() - 1 bits
    return {v: m.bit_length() - (i < short) for i, v in enumerate(sorted(values))}


def skewed_lengths(values):
    """Lengths 1, 2, 3 … and 12 for what is left over, with a flat tree below 1111."""
    values = sorted(values)
    out = {v: i + 1 for i, v in enumerate(values[:4])}
    return {**out, **{v: 4 + n for v, n in flat_lengths(values[4:]).items()}} if len(values) > 5 else flat_lengths(values)


def prefix_codes(lengths):
    codes, code, last = {}, -1, 0
    for length, value in sorted((n, v) for v, n in lengths.items()):
        code, last = code + 1 << length - last if last else 0, length
        codes[value] = [int(bit) for bit in f"{code:0{length}b}"]
    return codes


def prefix(raw, lengths=None, **change):
    lengths = lengths or flat_lengths(set(raw) | {0, 1})
    codes = prefix_codes(lengths)
    nibbles = [lengths.get(v, 0) for v in range(256)]
    out = bytes(nibbles[2 * i] | nibbles[2 * i + 1] << 4 for i in range(128))
    streams = []
    for at in range(0, len(raw), 1 << 17):
        chunk = raw[at : at + (1 << 17)]
        streams += [to_bytes([bit for v in chunk[s::8] for bit in codes[v]]) for s in range(8)]
    return out + b"".join(struct.pack("<H", len(x)) for x in streams) + b"".join(streams)


def level_values(q, s, scales, bucket):
    """The values, one scalar at a time, in doubles rounded to float32 after each operation."""
    out = []
    for i, x in enumerate(q):
        c, radius = scales[i // bucket if bucket else 0]
        lift = 2.0**64 if radius < 2.0**-64 else 1.0
        unit = f32(radius * lift / s)
        if unit * s < radius * lift:
            unit = float(np.nextafter(np.float32(unit), np.float32(np.inf)))
        v = min(max(f32(f32(x * unit) / lift), -radius), radius)
        value = v if c is None else f32(c + v)
        out.append(min(max(value, -F32_MAX), F32_MAX))
    return np.array(out, np.float32)


def scale_bytes(scales):
    return b"".join(struct.pack("<f", n) if c is None else struct.pack("<ff", c, n) for c, n in scales)


def random_levels(n, s, seed=0):
    rng = random.Random(seed)
    q = [max(-s, min(s, round(rng.gauss(0, 0.3) * s))) for _ in range(n)]
    return [s, -s, 0][:n] + q[3:]


def random_scales(n, bucket, minmax, seed=0):
    rng = random.Random(seed)
    b = (-(-n // bucket) if bucket else 1) if n else 0
    return [(f32(rng.gauss(0, 1)) if minmax else None, f32(rng.expovariate(1) * 10.0 ** rng.randint(-44, 20)))
            for _ in range(b)]


CODERS = {
    0: lambda q, s, **_: pack([x + s for x in q], width(s)),
    1: lambda q, s, **_: elias(q, elias_sparse),
    2: lambda q, s, **_: elias(q, elias_dense),
    3: entropy,
    4: entropy_sparse,
}


def qsgd(q, s, scales, bucket=0, layout=0, coding=3, minmax=False, codec=QSGD, levels=None, **options):
    payload = scale_bytes(scales) + CODERS[layout](q, s, **options) if q else b""
    choice = choices(norm=int(codec == QSGD), range_=int(minmax), coding=coding)
    levels = s if levels is None else levels
    return frame(codec, len(q), payload, layout=layout, choice=choice, bucket=bucket, levels=levels)


def same(got, want):
    """Equal bit for bit, but for the sign of zero, which level_values does not keep."""
    assert got.dtype == np.float32 and got.shape == np.shape(want)
    np.testing.assert_array_equal(got, np.asarray(want, np.float32))


def plain_gaps(positions):
    return [p - q - 1 for p, q in zip(positions, [-1] + positions[:-1])]


def rice(positions, params):
    gaps, low, unary = plain_gaps(positions), b"", []
    for i, b in enumerate(params):
        block = gaps[256 * i : 256 * i + 256]
        low += pack([gap & (1 << b) - 1 for gap in block], b, lanes=8)
        unary += [bit for gap in block for bit in [0] * (gap >> b) + [1]]
    return bytes(params) + low + to_bytes(unary)


def index_stream(mode, positions, length, params=None):
    if mode == 0:
        return rice(positions, params or [3] * -(-len(positions) // 256))
    if mode == 1:
        return to_bytes([bit for gap in plain_gaps(positions) for bit in omega(gap + 1)])
    return to_bytes(np.isin(np.arange(length), positions).astype(int).tolist())


def sparse_payload(count, g, segments, values, total=None, reserved=bytes(3)):
    """segments: (mode, positions, stream) each."""
    total = sum(len(p) for _, p, _ in segments) if total is None else total
    out = struct.pack("<IB", total, g) + reserved
    for mode, positions, stream in segments:
        out += struct.pack("<II", len(positions), mode << 30 | len(stream))
    return out + b"".join(stream for _, _, stream in segments) + values


def topk(count, payload, values=0, codec=TOPK, kind=DENSITY, amount=10**7, **more):
    return frame(codec, count, payload, choice=choices(values=values, kind=kind), amount=amount, **more)


def refused(data, why=None):
    with pytest.raises(Refused, match=why):
        decode(data)


# ---- 1. and 2. header, checksum ----


def test_header_fields():
    h = read_header(qsgd([1, -1], 1, [(None, 2.0)], bucket=512, layout=2, coding=1))
    assert (h.codec, h.layout, h.norm, h.range, h.coding, h.levels, h.bucket, h.count) == (3, 2, 1, 0, 1, 1, 512, 2)
    assert (h.tensor, h.seed, h.step, h.rank) == (7, 1 << 63, 3, 2)


@pytest.mark.parametrize("over, why", [
    (dict(magic=b"TGRE"), "magic"), (dict(version=1), "version"), (dict(dtype=3), "dtype"), (dict(flags=3), "flags"),
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


@pytest.mark.parametrize("size", [0, 1, 1023, 1024, 1025, 5000])
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


# ---- 4. levels ----


@pytest.mark.parametrize("s", [1, 2, 3, 4, 7, 8, 15, 100, 127, 128, 1000, 32767])
@pytest.mark.parametrize("n, bucket", [(0, 0), (1, 0), (511, 100), (512, 512), (1600, 512), (1030, 4000)])
@pytest.mark.parametrize("layout", range(5))
def test_levels(s, n, bucket, layout):
    minmax = (n + s) % 2 == 1
    q, scales = random_levels(n, s, seed=s), random_scales(n, bucket, minmax, seed=n)
    data = qsgd(q, s, scales, bucket, layout, minmax=minmax)
    same(decode(data)[1], level_values(q, s, scales, bucket))


@pytest.mark.parametrize("layout", range(5))
def test_terngrad(layout):
    q = random_levels(700, 1)
    for clip in (0, 2500, 60000):
        same(decode(qsgd(q, 1, [(None, 0.25)], layout=layout, codec=TERNGRAD, levels=clip))[1], [x / 4 for x in q])


def test_level_values_are_exact():
    """q = ±s gives ±N whatever N is, and values neither leave [-N, N] nor overflow."""
    for s in (1, 3, 7, 1000, 32767):
        for radius in (0.0, TINY, 5 * TINY, 2.0**-126, 1.0, f32(0.1), f32(1 / 3), F32_MAX):
            got = decode(qsgd([s, -s, s // 2, -1, 0], s, [(None, radius)]))[1]
            assert got[0] == radius and got[1] == -radius and abs(got[2]) <= radius
            assert not np.signbit(got[4]) and np.signbit(got[3])
    got = decode(qsgd([2, -2, 1], 2, [(F32_MAX, F32_MAX)], minmax=True))[1]
    same(got, [F32_MAX, 0, F32_MAX])
    same(decode(qsgd([2, -2], 2, [(-F32_MAX, F32_MAX)], minmax=True))[1], [0, -F32_MAX])
    assert not np.signbit(decode(qsgd([0], 2, [(-0.0, 1.0)], minmax=True))[1][0])


def test_unit_is_rounded_up():
    # 1/3 rounds up in float32 and 1/41 rounds down, so that 41 units fall short of 1
    assert float(np.float32(1 / 41)) * 41 < 1 < float(np.float32(1 / 3)) * 3
    up = np.nextafter(np.float32(1 / 41), np.float32(1))
    same(decode(qsgd([1, 40, 41], 41, [(None, 1.0)]))[1], [up, np.float32(40) * up, 1])


@pytest.mark.parametrize("scales, minmax", [
    ([(None, -1.0)], 0), ([(None, -0.0)], 0), ([(None, float("inf"))], 0), ([(None, float("nan"))], 0),
    ([(0.0, -0.0)], 1), ([(float("inf"), 1.0)], 1), ([(float("nan"), 1.0)], 1), ([(0.0, float("inf"))], 1)])
def test_bad_scales(scales, minmax):
    refused(qsgd([1, 0], 1, scales, minmax=bool(minmax)), "scale|radius")


@pytest.mark.parametrize("layout", range(5))
def test_levels_wrong_length(layout):
    choice = choices(coding=3)
    data = qsgd([1, 0, -1] * 20, 1, [(None, 1.0)], layout=layout)
    for cut in range(64, len(data)):
        refused(frame(QSGD, 60, data[64:cut], layout=layout, choice=choice, levels=1))
    refused(frame(QSGD, 60, data[64:] + b"\0", layout=layout, choice=choice, levels=1), "too many")
    refused(frame(QSGD, 0, b"\0", layout=layout, choice=choice, levels=1), "too many")


def test_codes_above_2s_are_read_as_2s():
    payload = struct.pack("<f", 3.0) + pack([7, 6, 5, 0] * 129, 3)
    got = decode(frame(QSGD, 516, payload, levels=2))[1]
    same(got, [3.0, 3.0, 3.0, -3.0] * 129)
    # s = 129: codes 0 … 258 of 9 bits, low = 1: digit 129 with low bit 1 is code 259
    assert width(129) == 9
    payload = bytearray(entropy([129] * 3, 129))
    low_at = payload.index(struct.pack("<I", 1 << 16) * 32) - 1  # the byte before the states of the only stream
    assert payload[low_at] == 0
    payload[low_at] = 0b101  # the low bits of elements 0 and 2
    same(decode(frame(QSGD, 3, struct.pack("<f", 1.0) + payload, layout=3, choice=8, levels=129))[1], [1, 1, 1])


def test_packed_padding():
    payload = struct.pack("<f", 3.0) + pack([1] * 513, 2)
    assert decode(frame(QSGD, 513, payload, levels=1))[1].shape == (513,)
    for bit in range(2, 8):
        refused(frame(QSGD, 513, payload[:-1] + bytes([payload[-1] | 1 << bit]), levels=1), "padding")


# ---- 4.2 Elias ----


def test_omega():
    lengths = [(1, 1, 1), (2, 3, 3), (4, 7, 6), (8, 15, 7), (16, 31, 11), (32, 63, 12), (1024, 1024, 18)]
    for first, last, length in lengths:
        assert {len(omega(m)) for m in range(first, last + 1)} == {length}
    for m in (1, 2, 5, 1000, 2**32, 2**63, 2**64 - 1):
        stream = dut.BitStream(memoryview(to_bytes(omega(m))))
        assert stream.omega() == m and stream.end() is None
        with pytest.raises(Refused):
            dut.BitStream(memoryview(to_bytes(omega(m))[:-1])).omega()
    with pytest.raises(Refused, match="64 bits"):
        dut.BitStream(memoryview(to_bytes(omega(2**64)) + bytes(9))).omega()
    with pytest.raises(Refused):
        dut.BitStream(memoryview(b"\xff" * 100)).omega()


@pytest.mark.parametrize("layout", [1, 2])
def test_elias_chunks(layout):
    q = [0] * 140000
    for i in (0, 65535, 65536, 100000, 131071, 131072, 139999):
        q[i] = 5 if i % 2 else -3
    same(decode(qsgd(q, 5, [(None, 5.0)], layout=layout))[1], q)


@pytest.mark.parametrize("layout, bits, why", [
    (1, omega(2) + omega(3) + [0] + omega(1), "outside"), (1, omega(2) + omega(1) + [0] + omega(4), "above"),
    (1, omega(3) + omega(1) + [0] + omega(1), "short|outside"), (1, omega(2**63), "short|outside"),
    (1, omega(1) + [0] * 7 + [0], "long"), (1, omega(1) + [0, 1], "ones"),
    (2, omega(5) + [0] + omega(1), "above"), (2, [], "short"),
    (2, omega(1) + omega(4)[:-1] + [1] + [0] * 2, "above|short"),
    (2, omega(1) * 2 + [1], "ones"), (2, omega(1) * 2 + [0] * 8, "long"), (2, omega(4) + [0] + [1], "short")])
def test_elias_refusals(layout, bits, why):
    stream = to_bytes(bits)
    payload = struct.pack("<fI", 1.0, len(stream)) + stream
    refused(frame(QSGD, 2, payload, layout=layout, choice=choices(coding=1), levels=3), why)


# ---- 4.3 entropy ----


@pytest.mark.parametrize("log_lanes", [0, 2, 5])
@pytest.mark.parametrize("m", [8, 10, 12, 14, 16])
@pytest.mark.parametrize("s, t", [(1, 1), (1, 2), (7, 2), (8, 1), (127, 1), (300, 1), (32767, 1)])
@pytest.mark.parametrize("n", [1, 3, 17, 31, 33, 2000])
def test_entropy(log_lanes, m, s, t, n):
    q, scales = random_levels(n, s, seed=n), random_scales(n, 64, False)
    for layout in (3, 4):
        data = qsgd(q, s, scales, 64, layout=layout, m=m, t=t, log_lanes=log_lanes)
        same(decode(data)[1], level_values(q, s, scales, 64))


@pytest.mark.parametrize("t", [1, 2])
def test_entropy_chunks_and_constant(t):
    q = random_levels(2 * 65536 + 77, 2)
    same(decode(qsgd(q, 2, [(None, 2.0)], layout=3, t=t))[1], q)
    same(decode(qsgd(q[:70000], 2, [(None, 2.0)], layout=3, t=t, c=31))[1], q[:70000])
    zeros = entropy([0] * 70000, 2, t=t, log_lanes=2)
    assert len(zeros) < 80
    same(decode(frame(QSGD, 70000, struct.pack("<f", 1) + zeros, layout=3, choice=8, levels=2))[1], [0] * 70000)


def test_entropy_refusals():
    q = random_levels(100, 2)
    good = entropy(q, 2)
    table = struct.unpack("<H", good[4:6])[0]
    first = 6 + table + 4  # the stream's first byte

    def check(payload, why=None, s=2):
        refused(frame(QSGD, 100, struct.pack("<f", 1.0) + payload, layout=3, choice=8, levels=s), why)

    def changed(at, new):
        return good[:at] + new + good[at + len(new) :]

    decode(frame(QSGD, 100, struct.pack("<f", 1.0) + good, layout=3, choice=8, levels=2))
    for at, bad in [(0, 13), (0, 11), (0, 6), (0, 18), (1, 0), (1, 3), (1, 64), (1, 0xC2), (2, 3), (2, 1), (3, 15), (3, 32)]:
        check(changed(at, bytes([bad])), "out of range")
    check(entropy(random_levels(100, 8), 8, t=2, freqs=[4096 - 288] + [1] * 288), "out of range", s=8)
    check(changed(4, struct.pack("<H", 0)))
    check(changed(4, struct.pack("<H", 60000)))
    f = scaled_frequencies([x + 2 for x in q], 5, 12)
    one_less = to_bytes([bit for x in [f[0] - 1] + f[1:] for bit in omega(x + 1)])
    check(good[:4] + struct.pack("<H", len(one_less)) + one_less + good[6 + table :], "add up")
    longer = good[6 : 6 + table] + b"\0"
    check(good[:4] + struct.pack("<H", len(longer)) + longer + good[6 + table :], "long")
    check(changed(first, struct.pack("<I", 65535)), "below")
    check(changed(first - 4, struct.pack("<I", len(good) - first - 2)))
    check(changed(first - 4, struct.pack("<I", len(good) - first + 2)), "short")
    check(changed(first - 4, struct.pack("<I", len(good) - first + 2)) + b"\0\0", "left over")
    check(changed(first - 4, struct.pack("<I", len(good) - first + 1)) + b"\0", "length")
    for lane in range(4):  # another state: another ending
        x = struct.unpack("<I", good[first + 4 * lane :][:4])[0]
        check(changed(first + 4 * lane, struct.pack("<I", x ^ 1)))
    few = entropy([1, 0], 2)  # lanes 2 … 31 hold no symbol
    bad = few[:-4] + struct.pack("<I", 65537)
    refused(frame(QSGD, 2, struct.pack("<f", 1.0) + bad, layout=3, choice=8, levels=2), "wrong state|left over")


def test_groups():
    assert group_starts(2) == [0, 1] and group_starts(3) == [0, 1, 2]
    assert group_starts(9) == [0, 1, 3, 4, 5, 6, 8]  # distances 4 | 3 2 | 1 | 0 | 1 | 2 3 | 4
    assert group_starts(8) == [0, 1, 3, 4, 5, 7]  # distances 4 | 3 2 | 1 | 1 | 2 3 | 4
    assert group_starts(20) == [0, 1, 3, 7, 9, 10, 11, 13, 17, 19]


@pytest.mark.parametrize("mirrored, grouped", [(0, 1), (1, 0), (1, 1)])
@pytest.mark.parametrize("s", [1, 2, 3, 7, 8, 9, 100, 127, 128, 256, 32767])
def test_entropy_tables(s, mirrored, grouped):
    q = random_levels(300, s)
    for layout, values in ((3, 2 * s + 1), (4, 2 * s)):
        size = (values - 1 >> max(0, (values - 1).bit_length() - 8)) + 1
        f = grouped_frequencies(size, 12, mirrored)
        data = qsgd(q, s, [(None, 1.0)], layout=layout, freqs=f, mirrored=bool(mirrored), grouped=bool(grouped))
        same(decode(data)[1], level_values(q, s, [(None, 1.0)], 0))


# ---- 4.4 entropy sparse ----


@pytest.mark.parametrize("mode", [0, 1, 2])
@pytest.mark.parametrize("s", [1, 7, 127, 129, 32767])
def test_entropy_sparse(s, mode):
    levels = random_levels(200, s)
    q = [levels[i // 50] if i % 50 == 3 else 0 for i in range(9001)]
    same(decode(qsgd(q, s, [(None, 2.0)], layout=4, mode=mode))[1], level_values(q, s, [(None, 2.0)], 0))
    minmax = decode(qsgd(q, s, [(0.5, 2.0)], layout=4, mode=mode, minmax=True))[1]
    same(minmax, level_values(q, s, [(0.5, 2.0)], 0))
    zeros = decode(qsgd([0] * 5000, s, [(None, 2.0)], layout=4))[1]
    same(zeros, [0] * 5000)
    assert not np.signbit(zeros).any()


def test_entropy_sparse_refusals():
    q = [0, 3, 0, 0, -1, 0, 2, 0]
    good = entropy_sparse(q, 3)

    def frame_of(payload, n=8):
        return frame(QSGD, n, struct.pack("<f", 1.0) + payload, layout=4, choice=choices(coding=2), levels=3)

    decode(frame_of(good))
    for cut in range(len(good)):
        refused(frame_of(good[:cut]))
    refused(frame_of(good + b"\0"))
    refused(frame_of(struct.pack("<I", 2) + good[4:]))  # the directory has another number
    refused(frame_of(good, n=6), "outside")
    refused(frame_of(struct.pack("<I", 9) + good[4:]), "elements of")
    nothing = sparse_payload(8, 12, [(0, [], b"")], b"")
    decode(frame_of(nothing))
    refused(frame_of(nothing + entropy([0], 3, values=6)), "too many")
    # s = 257: codes 0 … 513, low = 2; digit 128 with low bits 3 is code 515
    payload = bytearray(entropy([513] * 3, 257, values=514))
    low_at = payload.index(struct.pack("<I", 1 << 16) * 32) - 1
    assert payload[low_at] == 0b010101
    payload[low_at] = 0b111111
    data = sparse_payload(3, 12, [(2, [0, 1, 2], b"\7")], bytes(payload))
    same(decode(frame(QSGD, 3, struct.pack("<f", 1.0) + data, layout=4, choice=8, levels=257))[1], [1, 1, 1])


# ---- 4.5 prefix ----


def test_prefix_codes():
    assert prefix_codes({5: 1, 3: 3, 9: 3, 7: 2}) == {5: [0], 7: [1, 0], 3: [1, 1, 0], 9: [1, 1, 1]}
    assert sum(2.0**-n for n in flat_lengths(range(200)).values()) == sum(2.0**-n for n in skewed_lengths(range(200)).values()) == 1


@pytest.mark.parametrize("n", [1, 3, 8, 511, 512, 700, 9001])
@pytest.mark.parametrize("s", [1, 4, 7, 64, 127])
def test_prefix(s, n):
    q, w = random_levels(n, s, seed=n), width(s)
    raw, scales = pack([x + s for x in q], w), random_scales(n, 64, n % 2 == 1)
    for lengths in (flat_lengths(set(raw) | {0, 1}), flat_lengths(range(256)), skewed_lengths(range(256))):
        data = frame(QSGD, n, scale_bytes(scales) + prefix(raw, lengths), layout=5, levels=s, bucket=64,
                     choice=choices(norm=MAX, range_=n % 2, coding=2))
        same(decode(data)[1], level_values(q, s, scales, 64))


def test_prefix_chunks():
    q = random_levels((1 << 17) + 1000, 64)
    raw = pack([x + 64 for x in q], 8)
    same(decode(frame(QSGD, len(q), struct.pack("<f", 64.0) + prefix(raw), layout=5, choice=8, levels=64))[1], q)


def test_prefix_refusals():
    q, s = random_levels(100, 7), 7
    raw = pack([x + s for x in q], 4)
    good = prefix(raw, flat_lengths(range(256)))

    def check(payload, why=None, levels=7, n=100):
        refused(frame(QSGD, n, struct.pack("<f", 1.0) + payload, layout=5, choice=8, levels=levels), why)

    decode(frame(QSGD, 100, struct.pack("<f", 1.0) + good, layout=5, choice=8, levels=7))
    for cut in range(len(good)):
        check(good[:cut])
    check(good + b"\0", "too many")
    check(good, "no prefix layout", levels=15)
    check(good, "no prefix layout", levels=300)
    check(b"\x87" + good[1:], "incomplete")
    check(b"\x97" + good[1:], "incomplete")
    check(b"\xd8" + good[1:], "more than 12")
    check(bytes(128) + good[128:], "incomplete")
    sizes = struct.unpack("<8H", good[128:144])
    longer = struct.pack("<8H", *sizes[:7], sizes[7] + 1)
    check(good[:128] + longer + good[144:] + b"\0", "long")
    check(good[:128] + struct.pack("<8H", sizes[0] - 1, sizes[1] + 1, *sizes[2:]) + good[144:], "short")
    check(prefix(raw, flat_lengths(range(200))), n=92)  # another number of bytes
    odd = prefix(raw[:49], flat_lengths(range(200)))  # codes of 7 or 8 bits: streams that end within a byte
    ends = np.cumsum(struct.unpack("<8H", odd[128:144])) + 143
    for end in ends.tolist():
        if odd[end] < 128:
            check(odd[:end] + bytes([odd[end] | 128]) + odd[end + 1 :], "ones", n=98)
            break
    else:
        raise AssertionError("no stream ends within a byte")
    # padding of the packed layout: 99 codes of 4 bits leave half a byte
    spare = pack([x + s for x in q[:99]], 4)
    decode(frame(QSGD, 99, struct.pack("<f", 1.0) + prefix(spare), layout=5, choice=8, levels=7))
    check(prefix(spare[:-1] + bytes([spare[-1] | 16])), "padding", n=99)


# ---- 5. one bit ----


@pytest.mark.parametrize("n, bucket", [(0, 0), (0, 9), (1, 0), (511, 64), (512, 0), (1500, 512)])
def test_onebit(n, bucket):
    rng = random.Random(n)
    codes = [rng.randint(0, 1) for _ in range(n)]
    scales = random_scales(n, bucket, False)
    payload = scale_bytes(scales) + pack(codes, 1)
    want = [scales[i // bucket if bucket else 0][1] * (1 if code else -1) for i, code in enumerate(codes)]
    same(decode(frame(ONEBIT, n, payload, bucket=bucket))[1], want)
    refused(frame(ONEBIT, n, payload + b"\0", bucket=bucket), "too many")
    if n:
        for bad in (-1.0, -0.0, float("inf"), float("nan")):
            refused(frame(ONEBIT, n, struct.pack("<f", bad) + payload[4:], bucket=bucket), "magnitude")


# ---- 6. sparse vectors ----


def spread(length, m, seed=0):
    return sorted(random.Random(seed).sample(range(length), m))


@pytest.mark.parametrize("codec", range(16, 22))
def test_sparse_all_modes(codec):
    count, g = 4 * 4096 + 1001, 12
    lists = [spread(4096, 700), [], [0, 4095], spread(4096, 256), spread(1001, 400)]
    for modes in ([0, 0, 0, 0, 0], [1, 0, 1, 1, 1], [2, 0, 2, 2, 2], [0, 0, 1, 2, 0]):
        segments = []
        for i, (mode, positions) in enumerate(zip(modes, lists)):
            length = min(4096, count - 4096 * i)
            params = [(5 * j + i) % 12 for j in range(-(-len(positions) // 256))]
            segments.append((mode, positions, index_stream(mode, positions, length, params) if positions else b""))
        index = [4096 * i + p for i, positions in enumerate(lists) for p in positions]
        x = np.random.default_rng(1).normal(size=len(index)).astype(np.float32)
        for values, raw, want in [
            (0, x.tobytes(), x), (1, x.astype("<f2").tobytes(), x.astype("<f2")),
            (2, x.view("<u4").__rshift__(16).astype("<u2").tobytes(), (x.view("<u4") >> 16 << 16).view("<f4")),
        ]:
            out = np.zeros(count, np.float32)
            out[index] = want
            same(decode(topk(count, sparse_payload(count, g, segments, raw), values, codec, K_OF, 1))[1], out)


@pytest.mark.parametrize("layout", range(5))
@pytest.mark.parametrize("k", [0, 1, 600])
def test_sparse_levels(layout, k):
    positions = spread(5000, k)
    halves = [[p for p in positions if p < 4096], [p - 4096 for p in positions if p >= 4096]]
    segments = [(0, p, rice(p, [2] * -(-len(p) // 256)) if p else b"") for p in halves]
    q, scales = random_levels(k, 9), random_scales(k, 128, True)
    values = scale_bytes(scales) + CODERS[layout](q, 9) if k else b""
    choice = choices(norm=MAX, range_=1, coding=3, values=3)
    data = frame(TOPK, 5000, sparse_payload(5000, 12, segments, values), layout=layout, choice=choice, levels=9,
                 bucket=128, amount=10**9)
    want = np.zeros(5000, np.float32)
    want[positions] = level_values(q, 9, scales, 128)
    same(decode(data)[1], want)


def test_rice_wide_parameter_and_empty():
    positions = [5, 1 << 20, (1 << 27) + 3]
    payload = sparse_payload(1 << 28, 30, [(0, positions, rice(positions, [30]))], struct.pack("<3f", 1, 2, 3))
    got = decode(topk(1 << 28, payload))[1]
    assert np.flatnonzero(got).tolist() == positions
    del got
    same(decode(topk(0, sparse_payload(0, 12, [], b"")))[1], [])
    refused(topk(1 << 29, sparse_payload(1 << 29, 30, [(0, [], b"")], b"")), "too large for this reference decoder")


def test_sparse_refusals():
    p = [1, 5, 4000]
    x = struct.pack("<3f", 1, 2, 3)

    def check(why, mode=0, positions=p, stream=None, values=x, count=4096, g=12, tail=False, **more):
        stream = index_stream(mode, positions, count) if stream is None else stream
        segments = [(mode, positions, stream)] + [(0, [], b"")] * tail
        refused(topk(count, sparse_payload(count, g, segments, values, **more)), why)

    for mode in range(3):
        good = index_stream(mode, p, 4096)
        decode(topk(4096, sparse_payload(4096, 12, [(mode, p, good)], x)))
        check("short|long|length|number", mode, stream=good[:-1])
        check("long|length", mode, stream=good + b"\0")
        check("outside|padding|length", mode, positions=p[:2] + [4096], count=4096,
              stream=None if mode < 2 else good + b"\1")
        check("outside|padding", mode, positions=[1, 2, 11], count=10, stream=index_stream(mode, [1, 2, 11], 16))
        check("empty", mode, positions=[], stream=b"\0", values=b"")
    check("empty", 1, positions=[], stream=b"", values=b"")
    check("mode 3", 3, stream=b"\0")
    check("segment \\d+ out of range", g=11)
    check("segment \\d+ out of range", g=31)
    check("reserved", reserved=b"\0\1\0")
    check("add up", total=2)
    check("add up", total=4)
    check("of 4096", total=4097)
    check("above 30", stream=b"\x1f" + index_stream(0, p, 4096)[1:])
    check("more elements", 2, positions=list(range(5000)), count=5000, stream=b"\xff" * 512, values=bytes(20000),
          tail=True)
    check("number", 2, positions=p[:2], stream=index_stream(2, p, 4096), values=x[:8])
    check("too short", values=x[:-1])
    check("too many", values=x + b"\0")
    check("infinite", values=x[:8] + struct.pack("<f", float("nan")))
    check("outside", positions=[0], stream=bytes([30]) + bytes(4) + to_bytes([0] * 5 + [1]), values=x[:4])
    check("padding", stream=bytes([3, 0, 0b10]) + to_bytes([1, 1, 1]))  # bit 9 of 3 gaps of b = 3 bits
    check("number", stream=bytes([3, 0, 0]) + to_bytes([1, 1, 1, 1]))
    check("number", stream=bytes([3, 0, 0]) + to_bytes([1, 1]))


def test_truncated_sparse_frames():
    p = spread(4096, 300)
    for mode in range(3):
        payload = sparse_payload(4096, 12, [(mode, p, index_stream(mode, p, 4096))], bytes(1200))
        for cut in range(0, len(payload), 7):
            refused(topk(4096, payload[:cut]))


# ---- arbitrary bytes, command line ----


def corpus():
    q = random_levels(150, 3)
    for layout in range(4):
        yield qsgd(q, 3, random_scales(150, 64, True), 64, layout, minmax=True)
    yield qsgd(q, 3, [(None, 1.0)], layout=3, t=2, log_lanes=2)
    yield qsgd([0] * 150, 3, [(None, 1.0)], layout=3)
    yield qsgd(random_levels(150, 999), 999, [(None, 1.0)], layout=3)
    yield frame(FP16, 20, np.arange(20).astype("<f2").tobytes())
    yield frame(ONEBIT, 90, struct.pack("<2f", 1, 2) + pack([1] * 90, 1), bucket=50)
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
