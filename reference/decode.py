#!/usr/bin/env python3
"""Reference decoder of Tersegrad frames, version 1, written from docs/format.md alone.

    decode.py IN.tg OUT.npy     decode one frame into a float32 array
    decode.py --batch           the same for each line "IN.tg OUT.npy" of standard input; answers every line with
                                "ok", "refused: why" (a bad frame) or "failed: why" (a bad line, or files)

Exit status: 0 done, 1 refused or failed (nothing is written), 2 usage. It favours being easy to check against the
document over speed. Sections carry the numbers and names they have there.
"""

from __future__ import annotations

import os
import struct
import sys
from dataclasses import dataclass

try:
    import numpy as np
    import xxhash
except ImportError as error:
    NEEDS = f"decode.py needs numpy and xxhash ({error}): pip install numpy xxhash"
    if __name__ == "__main__":
        sys.exit(NEEDS)
    raise ImportError(NEEDS) from error

# The format allows 2^32 - 1 elements, and a frame of a few bytes can hold that many zeros. This decoder stops earlier.
MAX_COUNT = 1 << 28


class Refused(Exception):
    """The bytes are not a frame that a decoder accepts; the message says why."""


def require(condition: bool, why: str) -> None:
    if not condition:
        raise Refused(why)


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


class Reader:
    """Hands out the payload from front to back, and never more than there is."""

    def __init__(self, data: bytes | memoryview) -> None:
        self.data, self.at = memoryview(data), 0

    def take(self, size: int, what: str) -> memoryview:
        require(size <= len(self.data) - self.at, f"payload too short for {what}")
        self.at += size
        return self.data[self.at - size : self.at]

    def array(self, dtype: str, n: int, what: str) -> np.ndarray:
        kind = np.dtype(dtype)
        return np.frombuffer(self.take(n * kind.itemsize, what), kind).astype(kind.newbyteorder("="))

    def byte(self, what: str) -> int:
        return self.take(1, what)[0]

    def pad(self, what: str) -> None:
        """What was taken last is padded to 4."""
        require(not any(self.take(-self.at % 4, f"the padding of {what}")), f"non-zero padding after {what}")

    def before_last(self, size: int, what: str) -> Reader:
        """All that is left before the last `size` bytes."""
        require(size <= len(self.data) - self.at, f"payload too short for {what}")
        return Reader(self.take(len(self.data) - self.at - size, what))

    def end(self, what: str) -> None:
        require(self.at == len(self.data), f"{len(self.data) - self.at} bytes too many after {what}")


def unpack_bits(raw: memoryview) -> np.ndarray:
    """The bits of a stream in order, one per u8: bit n is bit n mod 8 of byte n div 8."""
    return np.unpackbits(np.frombuffer(raw, np.uint8), bitorder="little")


# ---- 1. Header -------------------------------------------------------------------------------------------------------
HEADER = struct.Struct("<4s6BH3I4Q2I")
NONE, FP16, BF16, QSGD, TERNGRAD, ONEBIT = range(6)
SPARSIFIERS = range(16, 22)  # topk, randk, gaussiank, dgck, trimk, sidco
AS_FP32, AS_FP16, AS_BF16, AS_LEVELS = range(4)  # the choice `values`
PACKED, ELIAS_SPARSE, ELIAS_DENSE, ENTROPY, ENTROPY_SPARSE, PREFIX = range(6)  # the layouts
LAYOUTS_OF_CODING = ((PACKED,), (ELIAS_SPARSE, ELIAS_DENSE), (ENTROPY, ENTROPY_SPARSE, PREFIX), range(6))
LEVEL_FIELDS = ("norm", "range", "coding", "levels", "bucket")
SPEC_FIELDS = LEVEL_FIELDS + ("values", "amount_kind", "amount")


@dataclass(frozen=True)
class Header:
    dtype: int  # 0 float32, 1 float16, 2 bfloat16
    flags: int
    layout: int
    codec: int
    norm: int  # 0 l2, 1 max
    range: int  # 0 symmetric, 1 minmax
    coding: int  # 0 packed, 1 elias, 2 entropy, 3 auto
    values: int  # 0 fp32, 1 fp16, 2 bf16, 3 levels
    amount_kind: int  # 0 density, 1 k
    levels: int
    bucket: int
    amount: int
    tensor: int
    count: int
    payload: int
    seed: int
    step: int
    rank: int
    checksum: int


def fields_used(codec: int, values: int) -> tuple[str, ...]:
    if codec in SPARSIFIERS:
        return ("values", "amount_kind", "amount") + (LEVEL_FIELDS if values == AS_LEVELS else ())
    return {QSGD: LEVEL_FIELDS, TERNGRAD: ("coding", "levels", "bucket"), ONEBIT: ("bucket",)}.get(codec, ())


def read_header(frame: bytes) -> Header:
    """Reads and checks the header alone; the size and the checksum of the frame are decode's business."""
    require(len(frame) >= HEADER.size, "shorter than a header")
    (magic, version, dtype, flags, layout, codec, choices, levels, bucket, amount, tensor, count, payload, seed, step,
     rank, checksum) = HEADER.unpack(frame[: HEADER.size])
    require(magic == b"TGRD", "not a frame: wrong magic")
    require(version != 0, "version 0, which was never released as stable")
    require(version == 1, f"unknown version {version}")
    require(dtype <= 2, f"unknown dtype {dtype}")
    require(flags <= 1, f"unknown flags {flags:#x}")
    require(layout <= PREFIX, f"unknown layout {layout}")
    require(codec <= ONEBIT or codec in SPARSIFIERS, f"unknown codec {codec}")
    require(choices < 128, "bit 7 of choices is set")
    h = Header(dtype, flags, layout, codec, choices & 1, choices >> 1 & 1, choices >> 2 & 3, choices >> 4 & 3,
               choices >> 6, levels, bucket, amount, tensor, count, payload, seed, step, rank, checksum)

    used = fields_used(codec, h.values)
    for name in SPEC_FIELDS:
        require(name in used or getattr(h, name) == 0, f"field {name} is not used by codec {codec} and not zero")
    if codec == TERNGRAD:
        require(levels <= 60000, f"clip {levels} out of range")
    elif "levels" in used:
        require(1 <= levels <= 32767, f"levels {levels} out of range")
        require(h.norm == 1 or h.range == 0, "range minmax takes norm max")
    if "amount" in used:
        require(amount >= 1, "density or k is zero")
        require(h.amount_kind == 1 or amount <= 10**9, f"density {amount} out of range")
    # Where coding is not used it is zero, packed, so this also asks for layout 0 from codecs without levels.
    require(layout in LAYOUTS_OF_CODING[h.coding], f"coding {h.coding} does not allow layout {layout}")
    require(count < 1 << 32, f"count {count} out of range")
    require(flags == 1 or checksum == 0, "a checksum without its flag")
    return h


# ---- 2. Checksum -----------------------------------------------------------------------------------------------------
def frame_checksum(frame: bytes) -> int:
    digests = digests_of(frame[HEADER.size :])
    while len(digests) > 8 * 512:
        digests = digests_of(digests)
    return xxhash.xxh3_64_intdigest(bytes(frame[:60]) + bytes(4) + digests) & 0xFFFFFFFF


def digests_of(data: bytes) -> bytes:
    """The digests of leaves or nodes, one after the other."""
    parts = (data[at : at + 4096] for at in range(0, len(data), 4096))
    return b"".join(struct.pack("<Q", xxhash.xxh3_64_intdigest(part)) for part in parts)


# ---- 3. Plain values -------------------------------------------------------------------------------------------------
def plain_values(r: Reader, n: int, dtype: int) -> np.ndarray:
    if dtype == 2:
        values = (r.array("<u2", n, "values").astype(np.uint32) << 16).view(np.float32)
    else:
        values = r.array("<f2" if dtype == 1 else "<f4", n, "values").astype(np.float32)
    require(bool(np.isfinite(values).all()), "a value is infinite or not a number")
    r.end("values")
    return values


# ---- 4. Levels -------------------------------------------------------------------------------------------------------
def bucket_count(n: int, bucket: int) -> int:
    return ceil_div(n, bucket) if bucket and n else int(n > 0)


def per_element(x: np.ndarray, n: int, bucket: int) -> np.ndarray:
    """Spreads one number per bucket over the elements; a single bucket broadcasts."""
    return x if len(x) <= 1 else np.repeat(x, bucket)[:n]


def level_values(r: Reader, n: int, s: int, minmax: bool, bucket: int, layout: int) -> np.ndarray:
    if n == 0:
        r.end("an empty vector")
        return np.zeros(0, np.float32)
    buckets = bucket_count(n, bucket)
    codes = packed(r, n, code_width(2 * s + 1)) if layout == PACKED else None
    r.pad("packed codes")
    scales = r.array("<f4", buckets * (2 if minmax else 1), "scales")
    radius = scales[1::2] if minmax else scales
    require(bool(np.isfinite(scales).all()), "a scale is not finite")
    require(not np.signbit(radius).any(), "a radius has its sign bit set")
    if layout in (ELIAS_SPARSE, ELIAS_DENSE):
        q = elias_levels(r, n, s, layout)
    elif layout == ENTROPY_SPARSE:
        q = entropy_sparse_levels(r, n, s)
    else:
        if layout == ENTROPY:
            codes = entropy_codes(r, n, s, 2 * s + 1)
        elif layout == PREFIX:
            w = code_width(2 * s + 1)
            codes = packed(Reader(prefix_bytes(r, n, w)), n, w)
        q = np.minimum(codes, 2 * s).astype(np.int32) - s
    r.end("levels")

    lift = np.where(radius < np.float32(2.0**-64), np.float32(2.0**64), np.float32(1))
    lifted = radius * lift
    unit = lifted / np.float32(s)
    short = unit.astype(np.float64) * s < lifted  # 24 + 15 bits: exact in double
    unit = np.where(short, np.nextafter(unit, np.float32(np.inf)), unit)
    v = q.astype(np.float32) * per_element(unit, n, bucket) / per_element(lift, n, bucket)
    limit = per_element(radius, n, bucket)
    # Comparisons, not minimum and maximum: those may turn a -0 into +0 where the limit is 0.
    v = np.where(v > limit, limit, np.where(v < -limit, -limit, v))
    if minmax:
        largest = np.finfo(np.float32).max
        v = np.clip(per_element(scales[0::2], n, bucket) + v, -largest, largest)
    return v


def code_width(codes: int) -> int:
    return (codes - 1).bit_length()  # they are 0 … codes - 1


# ---- 4.1 Packed ------------------------------------------------------------------------------------------------------
def packed(r: Reader, n: int, w: int, lanes: int = 16) -> np.ndarray:
    """n numbers of w bits: whole groups of 32 rows by `lanes`, then a plain stream. Rice blocks have 8 lanes."""
    groups, rest = divmod(n, 32 * lanes)
    words = r.array("<u4", groups * w * lanes, "packed codes").reshape(groups, w, lanes)
    tail = unpack_bits(r.take(ceil_div(rest * w, 8), "packed codes"))
    require(not tail[rest * w :].any(), "non-zero padding after packed codes")
    out = np.zeros(n, np.uint32)
    rows = out[: n - rest].reshape(groups, 32, lanes)  # a view: element j is in row j // lanes, lane j mod lanes
    for row in range(32 if w else 0):
        k, shift = divmod(row * w, 32)
        code = words[:, k] >> np.uint32(shift)
        if shift + w > 32:  # the code goes on in the lane's next word
            code |= words[:, k + 1] << np.uint32(32 - shift)
        rows[:, row] = code & np.uint32((1 << w) - 1)
    weights = np.uint32(1) << np.arange(w, dtype=np.uint32)
    out[n - rest :] = tail[: rest * w].reshape(rest, w) @ weights
    return out


# ---- 4.2 Elias streams -----------------------------------------------------------------------------------------------
class BitStream:
    """A stream as text of 0s and 1s in order: int(…, 2) reads a number whose first bit is the most significant."""

    def __init__(self, raw: memoryview) -> None:
        self.bits, self.at = (unpack_bits(raw) + 48).tobytes().decode("ascii"), 0

    def omega(self) -> int:
        m, bits, at = 1, self.bits, self.at
        try:
            while bits[at] == "1":
                require(m <= 63, "an Elias number of more than 64 bits")
                end = at + m + 1
                require(end <= len(bits), "a stream is too short")
                m, at = int(bits[at:end], 2), end
        except IndexError:
            raise Refused("a stream is too short") from None
        self.at = at + 1
        return m

    def sign(self) -> int:
        """One sign bit, as a factor."""
        require(self.at < len(self.bits), "a stream is too short")
        self.at += 1
        return -1 if self.bits[self.at - 1] == "1" else 1

    def end(self) -> None:
        require(len(self.bits) - self.at < 8, "a stream is too long")
        require("1" not in self.bits[self.at :], "a stream is padded with ones")


def elias_levels(r: Reader, n: int, s: int, layout: int) -> np.ndarray:
    q, chunk = np.zeros(n, np.int32), 8192
    for i, size in enumerate(r.array("<u2", ceil_div(n, chunk), "directory").tolist()):
        part = q[i * chunk : (i + 1) * chunk]  # a view
        stream = BitStream(r.take(size, "a stream"))
        (elias_sparse if layout == ELIAS_SPARSE else elias_dense)(stream, part, s)
        stream.end()
    return q


def elias_sparse(stream: BitStream, q: np.ndarray, s: int) -> None:
    position = -1
    for _ in range(stream.omega() - 1):
        position += stream.omega()
        require(position < len(q), "a position is outside its chunk")
        sign, level = stream.sign(), stream.omega()
        require(level <= s, f"a level above {s}")
        q[position] = sign * level


def elias_dense(stream: BitStream, q: np.ndarray, s: int) -> None:
    for position in range(len(q)):
        level = stream.omega() - 1
        require(level <= s, f"a level above {s}")
        if level:
            q[position] = stream.sign() * level


# ---- 4.3 Entropy -----------------------------------------------------------------------------------------------------
def group_of(symbol: int, symbols: int) -> tuple[bool, int, bool]:
    """Neighbouring symbols for which this is the same are in one group."""
    half = symbols // 2
    distance = half - symbol if symbol < half else symbol - half + (symbols % 2 == 0)
    return symbol < half, distance.bit_length(), symbol in (0, symbols - 1)


def entropy_table(stream: BitStream, symbols: int, bits: int, mirrored: bool,
                  grouped: bool) -> tuple[bytes, list[int], list[int]]:
    """For each slot its symbol (at most 256 of them, so a byte), the symbol's frequency, and slot - start."""
    freqs: list[int] = []
    for i in range(ceil_div(symbols, 2) if mirrored else symbols):
        again = grouped and i > 0 and group_of(i, symbols) == group_of(i - 1, symbols)
        freqs.append(freqs[-1] if again else stream.omega() - 1)
    if mirrored:
        freqs += freqs[: symbols // 2][::-1]
    stream.end()
    require(sum(freqs) == 1 << bits, "frequencies do not add up")
    f = np.array(freqs)
    symbol = np.repeat(np.arange(symbols), f)
    bias = np.arange(1 << bits) - (np.cumsum(f) - f)[symbol]
    return symbol.astype(np.uint8).tobytes(), f[symbol].tolist(), bias.tolist()


def rans_stream(raw: memoryview, symbols: int, lanes: int, bits: int, table: tuple) -> np.ndarray:
    """Plain Python: with few lanes a loop over symbols is as fast as array operations over lanes, and plainer."""
    require(len(raw) >= 4 * lanes and len(raw) % 2 == 0, "a stream has an impossible length")
    x = np.frombuffer(raw[: 4 * lanes], "<u4").tolist()
    words = np.frombuffer(raw[4 * lanes :], "<u2").tolist()
    require(min(x) >= 1 << 16, "a starting state is below 2^16")
    symbol, freq, bias = table
    out, used, mask = bytearray(symbol[:1]) * symbols, 0, (1 << bits) - 1
    # A symbol of probability 1 leaves every state as it is. Skip its steps, for a few bytes may ask for 2^28 of them.
    steps = symbols if freq[0] <= mask else 0
    try:
        for y in range(steps):
            lane = y % lanes
            state = x[lane]
            slot = state & mask
            out[y] = symbol[slot]
            state = freq[slot] * (state >> bits) + bias[slot]
            if state < 65536:
                state = state << 16 | words[used]
                used += 1
            x[lane] = state
    except IndexError:
        raise Refused("a stream is too short") from None
    require(used == len(words), "a stream has words left over")
    require(all(state == 1 << 16 for state in x), "a lane ends in a wrong state")
    return np.frombuffer(out, np.uint8)


def entropy_codes(r: Reader, n: int, s: int, codes_in_use: int) -> np.ndarray:
    low = max(0, code_width(codes_in_use) - 8)
    digits = (codes_in_use - 1 >> low) + 1  # A
    bits, t, log_lanes, log_chunk = (r.byte("entropy fields") for _ in range(4))
    require(bits in (8, 10, 12, 14, 16), f"probability bits {bits} out of range")
    mirrored, grouped, t = bool(t & 0x80), bool(t & 0x40), t & 0x3F
    require(t == 1 or not (mirrored or grouped), "a table of pairs is mirrored or grouped, or t is out of range")
    require(t == 1 or (t == 2 and digits <= 16), f"{t} digits in a symbol out of range")
    require(log_lanes in (0, 2, 5), f"log2 of lanes {log_lanes} out of range")
    require(13 <= log_chunk <= 31, f"log2 of chunk {log_chunk} out of range")
    table_size, reserved = r.array("<u2", 2, "entropy fields").tolist()
    require(reserved == 0, "reserved bytes are not zero")
    table = entropy_table(BitStream(r.take(table_size, "frequency table")), digits**t, bits, mirrored, grouped)
    r.pad("the frequency table")
    chunk = 1 << log_chunk
    directory = r.array("<u4", ceil_div(n, chunk), "directory").tolist()
    codes = packed(r, n, low)
    r.pad("low bits")
    for i, size in enumerate(directory):
        part = codes[i * chunk : (i + 1) * chunk]  # a view
        symbols = len(part) if t == 1 else 16 * ceil_div(len(part), 32)
        digit = rans_stream(r.take(size, "a stream"), symbols, 1 << log_lanes, bits, table)
        if t == 2:  # 16 symbols are 32 elements: a row of first digits, then a row of second ones
            pairs = digit.reshape(-1, 1, 16)
            digit = np.concatenate((pairs % digits, pairs // digits), axis=1).reshape(-1)[: len(part)]
        part |= digit.astype(np.uint32) << np.uint32(low)
    return codes


# ---- 4.4 Entropy sparse ----------------------------------------------------------------------------------------------
def entropy_sparse_levels(r: Reader, n: int, s: int) -> np.ndarray:
    index, values = positions(r, n)
    q = np.zeros(n, np.int32)
    if len(index):
        codes = np.minimum(entropy_codes(values, len(index), s, 2 * s), 2 * s - 1).astype(np.int32)
        q[index] = codes - s + (codes >= s)
    values.end("listed levels")
    return q


# ---- 4.5 Prefix ------------------------------------------------------------------------------------------------------
def prefix_table(lengths: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """For each 12 bits, the first of them lowest, the byte that they start with and the length of its code."""
    require(max(lengths) <= 12, "a code of more than 12 bits")
    require(sum(2 ** (12 - length) for length in lengths if length) == 1 << 12, "an incomplete code")
    value, length_of = np.zeros(1 << 12, np.uint8), np.zeros(1 << 12, np.int64)
    code, last = -1, 0
    for length, byte in sorted((length, byte) for byte, length in enumerate(lengths) if length):
        code, last = code + 1 << length - last if last else 0, length
        low = int(f"{code:0{length}b}"[::-1], 2)
        value[low :: 1 << length], length_of[low :: 1 << length] = byte, length
    return value, length_of


def prefix_stream(raw: memoryview, n: int, value: np.ndarray, length: np.ndarray) -> np.ndarray:
    """Where a code would end is known for every bit; the codes are those that follow one another from the first bit on."""
    bits = np.concatenate((unpack_bits(raw), np.zeros(12, np.uint8)))
    ahead = sum(bits[i : len(bits) - 12 + i].astype(np.int64) << i for i in range(12))  # the next 12 bits from each place on
    steps, places, at = length[ahead].tolist(), [], 0
    try:
        for _ in range(n):
            places.append(at)
            at += steps[at]
    except IndexError:
        raise Refused("a stream is too short") from None
    require(at <= len(steps), "a stream is too short")
    require(len(steps) - at < 8, "a stream is too long")
    require(not bits[at:].any(), "a stream is padded with ones")
    return value[ahead[places]] if n else np.zeros(0, np.uint8)


def prefix_bytes(r: Reader, n: int, w: int) -> bytes:
    require(w in (2, 4, 8), f"codes of {w} bits have no prefix layout")
    log_chunk = r.byte("prefix fields")
    require(12 <= log_chunk <= 17, f"log2 of chunk {log_chunk} out of range")
    require(bytes(r.take(3, "prefix fields")) == bytes(3), "reserved bytes are not zero")
    total, chunk = ceil_div(n * w, 8), 1 << log_chunk
    halves = np.frombuffer(r.take(128, "the code"), np.uint8)
    table = prefix_table(np.stack((halves & 15, halves >> 4), axis=1).reshape(-1).tolist())
    directory = r.array("<u2", 8 * ceil_div(total, chunk), "directory").reshape(-1, 8).tolist()
    out = np.zeros(total, np.uint8)
    for i, sizes in enumerate(directory):
        part = out[i * chunk : (i + 1) * chunk]  # a view
        for s, size in enumerate(sizes):
            part[s::8] = prefix_stream(r.take(size, "a stream"), len(part[s::8]), *table)
    return out.tobytes()


# ---- 5. One bit ------------------------------------------------------------------------------------------------------
def one_bit(r: Reader, n: int, bucket: int) -> np.ndarray:
    codes = packed(r, n, 1)
    r.pad("codes")
    magnitude = r.array("<f4", bucket_count(n, bucket), "magnitudes")
    require(bool(np.isfinite(magnitude).all()), "a magnitude is not finite")
    require(not np.signbit(magnitude).any(), "a magnitude has its sign bit set")
    r.end("magnitudes")
    m = per_element(magnitude, n, bucket)
    return np.where(codes == 1, m, -m)


# ---- 6. Sparse vectors -----------------------------------------------------------------------------------------------
def positions(r: Reader, count: int) -> tuple[np.ndarray, Reader]:
    """The positions, and the bytes of the values, which lie between the directory and the index streams."""
    total = int(r.array("<u4", 1, "sparse fields")[0])
    require(total <= count, f"{total} elements of {count}")
    g = r.byte("sparse fields")
    require(12 <= g <= 30, f"log2 of segment {g} out of range")
    require(bytes(r.take(3, "sparse fields")) == bytes(3), "reserved bytes are not zero")
    directory = r.array("<u4", 2 * ceil_div(count, 1 << g), "directory").reshape(-1, 2)
    require(int(directory[:, 0].sum(dtype=np.uint64)) == total, "elements of segments do not add up")
    values = r.before_last(int((directory[:, 1] & (1 << 30) - 1).sum(dtype=np.uint64)), "index streams")
    indices = [np.zeros(0, np.int64)]
    for i, (m, word) in enumerate(directory.tolist()):
        base, mode, size = i << g, word >> 30, word & (1 << 30) - 1
        length = min(1 << g, count - base)
        stream = r.take(size, "an index stream")
        if m == 0:
            require(word == 0, "an empty segment with a stream")
            continue
        require(mode < 3, "unknown index mode 3")
        require(m <= length, "more elements than a segment holds")
        indices.append((rice_indices, elias_indices, bitmap_indices)[mode](stream, m, length) + base)
    return np.concatenate(indices), values


def sparse(r: Reader, h: Header) -> np.ndarray:
    index, coded = positions(r, h.count)
    if h.values == AS_LEVELS:
        values = level_values(coded, len(index), h.levels, h.range == 1, h.bucket, h.layout)
    else:
        values = plain_values(coded, len(index), h.values)
    out = np.zeros(h.count, np.float32)
    out[index] = values
    return out


def rice_indices(stream: memoryview, m: int, length: int) -> np.ndarray:
    r = Reader(stream)
    require(m <= 8 * len(stream), "a Rice stream is too short")  # before m numbers take memory
    params = r.array("u1", ceil_div(m, 256), "Rice parameters")
    require(int(params.max()) <= 30, "a Rice parameter above 30")
    gaps = [packed(r, min(256, m - 256 * i), b, lanes=8) for i, b in enumerate(params.tolist())]
    ones = np.flatnonzero(unpack_bits(stream[r.at :]))
    require(len(ones) == m, "a Rice stream with a wrong number of quotients")
    require(len(stream) - r.at == int(ones[-1]) // 8 + 1, "a Rice stream is too long")
    quotient, b = np.diff(ones, prepend=-1) - 1, np.repeat(params.astype(np.int64), 256)[:m]
    require(bool((quotient <= length >> b).all()), "a position is outside its segment")  # before << can overflow
    position = np.cumsum((quotient << b) + np.concatenate(gaps) + 1) - 1
    require(int(position[-1]) < length, "a position is outside its segment")
    return position


def elias_indices(stream: memoryview, m: int, length: int) -> np.ndarray:
    require(m <= 8 * len(stream), "an index stream is too short")  # before m numbers take memory
    r = Reader(stream)
    offsets = r.array("<u4", ceil_div(m, 1024) - 1, "the table of an Elias stream").tolist()
    bits, position, out = BitStream(stream[r.at :]), -1, np.zeros(m, np.int64)
    for i in range(m):
        require(i % 1024 != 0 or i == 0 or bits.at == offsets[i // 1024 - 1], "a wrong offset in an Elias table")
        position += bits.omega()
        require(position < length, "a position is outside its segment")
        out[i] = position
    bits.end()
    return out


def bitmap_indices(stream: memoryview, m: int, length: int) -> np.ndarray:
    require(len(stream) == ceil_div(length, 8), "a bitmap has a wrong length")
    position = np.flatnonzero(unpack_bits(stream))
    require(len(position) == m, "a bitmap with a wrong number of bits")
    require(int(position[-1]) < length, "non-zero padding after a bitmap")
    return position


# ---- The whole frame -------------------------------------------------------------------------------------------------
def decode(frame: bytes) -> tuple[Header, np.ndarray]:
    """The header and the float32 values of a frame; raises Refused, and nothing else, for bytes that are none."""
    h = read_header(frame)
    require(len(frame) == HEADER.size + h.payload, f"{len(frame)} bytes, not 64 + {h.payload}")
    require(h.flags == 0 or frame_checksum(frame) == h.checksum, "wrong checksum")
    require(h.count <= MAX_COUNT, f"count {h.count} is too large for this reference decoder")
    r = Reader(frame[HEADER.size :])
    try:
        with np.errstate(all="ignore"):  # overflow and subnormals are part of the format
            if h.codec in (NONE, FP16, BF16):
                return h, plain_values(r, h.count, {NONE: h.dtype, FP16: 1, BF16: 2}[h.codec])
            if h.codec == QSGD:
                return h, level_values(r, h.count, h.levels, h.range == 1, h.bucket, h.layout)
            if h.codec == TERNGRAD:
                return h, level_values(r, h.count, 1, False, h.bucket, h.layout)
            if h.codec == ONEBIT:
                return h, one_bit(r, h.count, h.bucket)
            return h, sparse(r, h)
    except MemoryError:
        raise Refused("too large for this reference decoder: out of memory") from None


def decode_file(source: str, target: str) -> None:
    with open(source, "rb") as file:
        values = decode(file.read())[1]
    with open(target, "wb") as file:  # only now, so that a refused frame leaves nothing behind
        try:
            np.save(file, values)
        except OSError:
            if os.path.isfile(target):
                os.unlink(target)
            raise


def main(arguments: list[str]) -> int:
    if arguments == ["--batch"]:
        for line in sys.stdin:
            try:
                names = line.split()
                if len(names) != 2:
                    raise ValueError("a line is IN.tg OUT.npy")
                decode_file(*names)
                print("ok", flush=True)
            except Refused as why:
                print(f"refused: {why}", flush=True)
            except (OSError, ValueError) as why:
                print(f"failed: {why}", flush=True)
        return 0
    if len(arguments) != 2 or arguments[0].startswith("--"):
        print("usage: decode.py IN.tg OUT.npy | decode.py --batch", file=sys.stderr)
        return 2
    try:
        decode_file(*arguments)
        return 0
    except (Refused, OSError) as why:
        print(f"decode.py: {arguments[0]}: {'refused: ' if isinstance(why, Refused) else ''}{why}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
