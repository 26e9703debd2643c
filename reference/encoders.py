"""What the tests of the reference decoder share: small encoders, written from docs/format.md too, the slow and literal way. A stream is a
list of bits."""

import random
import struct

import numpy as np
import pytest
import xxhash

from decode import Refused, decode

F32_MAX = 3.4028234663852886e38
TINY = 2.0**-149  # the smallest subnormal
NONE, FP16, BF16, QSGD, TERNGRAD, ONEBIT, TOPK = 0, 1, 2, 3, 4, 5, 16
L2, MAX = 0, 1
DENSITY, K_OF = 0, 1


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
    fields = dict(magic=b"TGRD", version=1, flags=int(checksum), tensor=7, seed=1 << 63, step=3, rank=2,
                  size=len(payload))
    fields.update(over)
    head = fields["magic"] + bytes([fields["version"], dtype, fields["flags"], layout, codec, choice])
    head += struct.pack("<HIII", levels, bucket, amount, fields["tensor"])
    head += struct.pack("<QQQQI", count, fields["size"], fields["seed"], fields["step"], fields["rank"])
    if "stored" in over:
        return head + struct.pack("<I", over["stored"]) + payload
    if not checksum:
        return head + bytes(4) + payload
    top = xxhash.xxh3_64_intdigest(head + bytes(4) + digests(payload))
    return head + struct.pack("<I", top & 0xFFFFFFFF) + payload


def digests(data):
    """Of leaves, then of nodes, until a node is enough."""
    out = b"".join(xxhash.xxh3_64_digest(data[i : i + 4096])[::-1] for i in range(0, len(data), 4096))
    return out if len(out) <= 4096 else digests(out)


def padded(part):
    return part + bytes(-len(part) % 4)


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
    streams = [to_bytes(coder(q[i : i + 8192])) for i in range(0, len(q), 8192)]
    return b"".join(struct.pack("<H", len(s)) for s in streams) + b"".join(streams)


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


def entropy(q, s, m=12, t=1, log_lanes=5, c=13, freqs=None, mirrored=False, grouped=False, values=None):
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
    out = bytes([m, t | 64 * grouped | 128 * mirrored, log_lanes, c]) + struct.pack("<HH", len(table), 0) + padded(table)
    out += b"".join(struct.pack("<I", len(stream)) for stream in streams)
    return out + padded(pack([code & (1 << low) - 1 for code in codes], low)) + b"".join(streams)


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


def prefix(raw, lengths=None, c=13):
    lengths = lengths or flat_lengths(set(raw) | {0, 1})
    codes = prefix_codes(lengths)
    nibbles = [lengths.get(v, 0) for v in range(256)]
    out = struct.pack("<I", c) + bytes(nibbles[2 * i] | nibbles[2 * i + 1] << 4 for i in range(128))
    streams = []
    for at in range(0, len(raw), 1 << c):
        chunk = raw[at : at + (1 << c)]
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


def with_scales(scales, codes, layout):
    """Levels: scales come before codes, but after packed ones."""
    return padded(codes) + scale_bytes(scales) if layout == 0 else scale_bytes(scales) + codes


def qsgd(q, s, scales, bucket=0, layout=0, coding=3, minmax=False, codec=QSGD, levels=None, **options):
    payload = with_scales(scales, CODERS[layout](q, s, **options), layout) if q else b""
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
        codes = [omega(gap + 1) for gap in plain_gaps(positions)]
        offsets = [sum(map(len, codes[:i])) for i in range(1024, len(codes), 1024)]
        return struct.pack(f"<{len(offsets)}I", *offsets) + to_bytes([bit for code in codes for bit in code])
    return to_bytes(np.isin(np.arange(length), positions).astype(int).tolist())


def sparse_payload(count, g, segments, values, total=None, reserved=bytes(3)):
    """segments: (mode, positions, stream) each."""
    total = sum(len(p) for _, p, _ in segments) if total is None else total
    out = struct.pack("<IB", total, g) + reserved
    for mode, positions, stream in segments:
        out += struct.pack("<II", len(positions), mode << 30 | len(stream))
    return out + values + b"".join(stream for _, _, stream in segments)


def topk(count, payload, values=0, codec=TOPK, kind=DENSITY, amount=10**7, **more):
    return frame(codec, count, payload, choice=choices(values=values, kind=kind), amount=amount, **more)


def spread(length, m, seed=0):
    return sorted(random.Random(seed).sample(range(length), m))


def refused(data, why=None):
    with pytest.raises(Refused, match=why):
        decode(data)
