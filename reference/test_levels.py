"""The reference decoder on quantised levels made by hand: packed and in Elias codes."""

import struct

import numpy as np
import pytest

import decode as dut
from decode import Refused, decode
from encoders import (
    F32_MAX, QSGD, TERNGRAD, TINY, choices, entropy, f32, frame, level_values, omega, pack, padded, qsgd, random_levels,
    random_scales, refused, same, to_bytes, width,
)  # fmt: skip


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
    why = None if layout == 4 else "too many"  # there index streams are found from the end
    refused(frame(QSGD, 60, data[64:] + b"\0", layout=layout, choice=choice, levels=1), why)
    refused(frame(QSGD, 0, b"\0", layout=layout, choice=choice, levels=1), "too many")


def test_codes_above_2s_are_read_as_2s():
    payload = padded(pack([7, 6, 5, 0] * 129, 3)) + struct.pack("<f", 3.0)
    got = decode(frame(QSGD, 516, payload, levels=2))[1]
    same(got, [3.0, 3.0, 3.0, -3.0] * 129)
    # s = 129: codes 0 … 258 of 9 bits, low = 1: digit 129 with low bit 1 is code 259
    assert width(129) == 9
    payload = bytearray(entropy([129] * 3, 129))
    low_at = payload.index(struct.pack("<I", 1 << 16) * 32) - 4  # the word before the states of the only stream
    assert payload[low_at] == 0
    payload[low_at] = 0b101  # the low bits of elements 0 and 2
    same(decode(frame(QSGD, 3, struct.pack("<f", 1.0) + payload, layout=3, choice=8, levels=129))[1], [1, 1, 1])


def test_packed_padding():
    codes = padded(pack([1] * 513, 2))
    assert len(codes) == 132
    assert decode(frame(QSGD, 513, codes + struct.pack("<f", 3.0), levels=1))[1].shape == (513,)
    for bit in range(2, 32):  # of the last byte, and of the bytes that pad to 4
        at = 128 + bit // 8
        bad = codes[:at] + bytes([codes[at] | 1 << bit % 8]) + codes[at + 1 :]
        refused(frame(QSGD, 513, bad + struct.pack("<f", 3.0), levels=1), "padding")


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
    q = [0] * 20000
    for i in (0, 8191, 8192, 10000, 16383, 16384, 19999):
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
    payload = struct.pack("<fH", 1.0, len(stream)) + stream
    refused(frame(QSGD, 2, payload, layout=layout, choice=choices(coding=1), levels=3), why)
