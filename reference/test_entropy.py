"""The reference decoder on levels made by hand in the entropy layouts: rANS, sparse, prefix codes."""

import struct

import numpy as np
import pytest

from decode import decode
from encoders import (
    MAX, QSGD, choices, entropy, entropy_sparse, flat_lengths, frame, group_starts, grouped_frequencies,
    index_stream, level_values, omega, pack, padded, prefix, prefix_codes, qsgd, random_levels, random_scales, refused, same, scale_bytes,
    scaled_frequencies, skewed_lengths, sparse_payload, to_bytes, width,
)  # fmt: skip


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
    q = random_levels(70000, 2)
    same(decode(qsgd(q[:17000], 2, [(None, 2.0)], layout=3, t=t))[1], q[:17000])
    same(decode(qsgd(q, 2, [(None, 2.0)], layout=3, t=t, c=15))[1], q)
    same(decode(qsgd(q[:70000], 2, [(None, 2.0)], layout=3, t=t, c=31))[1], q[:70000])
    zeros = entropy([0] * 70000, 2, t=t, log_lanes=2, c=17)
    assert len(zeros) < 80
    same(decode(frame(QSGD, 70000, struct.pack("<f", 1) + zeros, layout=3, choice=8, levels=2))[1], [0] * 70000)


def test_entropy_refusals():
    q = random_levels(100, 2)
    good = entropy(q, 2)
    table = struct.unpack("<H", good[4:6])[0]
    pad = -table % 4
    first = 8 + table + pad + 4  # the stream's first byte

    def check(payload, why=None, s=2):
        refused(frame(QSGD, 100, struct.pack("<f", 1.0) + payload, layout=3, choice=8, levels=s), why)

    def changed(at, new):
        return good[:at] + new + good[at + len(new) :]

    decode(frame(QSGD, 100, struct.pack("<f", 1.0) + good, layout=3, choice=8, levels=2))
    for at, bad in [(0, 13), (0, 11), (0, 6), (0, 18), (1, 0), (1, 3), (1, 64), (1, 0xC2), (2, 3), (2, 1), (3, 12), (3, 32)]:
        check(changed(at, bytes([bad])), "out of range")
    check(entropy(random_levels(100, 8), 8, t=2, freqs=[4096 - 288] + [1] * 288), "out of range", s=8)
    check(changed(4, struct.pack("<H", 0)))
    check(changed(4, struct.pack("<H", 60000)))
    f = scaled_frequencies([x + 2 for x in q], 5, 12)
    one_less = to_bytes([bit for x in [f[0] - 1] + f[1:] for bit in omega(x + 1)])
    check(good[:4] + struct.pack("<HH", len(one_less), 0) + padded(one_less) + good[8 + table + pad :], "add up")
    longer = good[8 : 8 + table] + b"\0"
    check(good[:4] + struct.pack("<HH", len(longer), 0) + padded(longer) + good[8 + table + pad :], "long")
    check(changed(6, b"\1"), "reserved")
    check(changed(7, b"\1"), "reserved")
    assert pad > 0
    for at in range(8 + table, 8 + table + pad):
        check(changed(at, b"\1"), "padding")
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
    segment = [(2, [1, 4, 6], index_stream(2, [1, 4, 6], 8))]
    refused(frame_of(sparse_payload(8, 12, segment, entropy([5, 2, 4], 3, values=6) + b"\0\0")), "too many")
    # s = 257: codes 0 … 513, low = 2; digit 128 with low bits 3 is code 515
    payload = bytearray(entropy([513] * 3, 257, values=514))
    low_at = payload.index(struct.pack("<I", 1 << 16) * 32) - 4
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
    q = random_levels((1 << 14) + 1000, 64)
    raw = pack([x + 64 for x in q], 8)
    for c in (12, 13, 14, 17):
        data = frame(QSGD, len(q), struct.pack("<f", 64.0) + prefix(raw, c=c), layout=5, choice=8, levels=64)
        same(decode(data)[1], q)
    for bad in (11, 18, 255, 13 | 1 << 8, 13 | 1 << 31):
        payload = struct.pack("<fI", 64.0, bad) + prefix(raw)[4:]
        refused(frame(QSGD, len(q), payload, layout=5, choice=8, levels=64), "out of range|reserved")


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
    check(good[:4] + b"\x87" + good[5:], "incomplete")
    check(good[:4] + b"\x97" + good[5:], "incomplete")
    check(good[:4] + b"\xd8" + good[5:], "more than 12")
    check(good[:4] + bytes(128) + good[132:], "incomplete")
    sizes = struct.unpack("<8H", good[132:148])
    longer = struct.pack("<8H", *sizes[:7], sizes[7] + 1)
    check(good[:132] + longer + good[148:] + b"\0", "long")
    check(good[:132] + struct.pack("<8H", sizes[0] - 1, sizes[1] + 1, *sizes[2:]) + good[148:], "short")
    check(prefix(raw, flat_lengths(range(200))), n=92)  # another number of bytes
    odd = prefix(raw[:49], flat_lengths(range(200)))  # codes of 7 or 8 bits: streams that end within a byte
    ends = np.cumsum(struct.unpack("<8H", odd[132:148])) + 147
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
