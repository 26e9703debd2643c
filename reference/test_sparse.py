"""The reference decoder on sparse vectors made by hand."""

import struct

import numpy as np
import pytest

from decode import decode
from encoders import (
    CODERS, K_OF, MAX, TOPK, choices, frame, index_stream, level_values, random_levels, random_scales, refused,
    rice, same, sparse_payload, spread, to_bytes, topk, with_scales,
)  # fmt: skip


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
    values = with_scales(scales, CODERS[layout](q, 9), layout) if k else b""
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


def test_elias_tables():
    count = 8192
    for m in (1024, 1025, 2048, 2049, 5000):
        p = spread(count, m)
        table, x = -(-m // 1024) - 1, np.arange(m, dtype="<f4")
        good = index_stream(1, p, count)
        want = np.zeros(count, np.float32)
        want[p] = x
        same(decode(topk(count, sparse_payload(count, 13, [(1, p, good)], x.tobytes())))[1], want)
        for entry in range(table):
            for change in (1, -1, 8, 1 << 31):
                offset = struct.unpack_from("<I", good, 4 * entry)[0] + change & 0xFFFFFFFF
                bad = good[: 4 * entry] + struct.pack("<I", offset) + good[4 * entry + 4 :]
                refused(topk(count, sparse_payload(count, 13, [(1, p, bad)], x.tobytes())), "wrong offset")
        if table:
            refused(topk(count, sparse_payload(count, 13, [(1, p, good[4:])], x.tobytes())))


def test_truncated_sparse_frames():
    p = spread(4096, 300)
    for mode in range(3):
        payload = sparse_payload(4096, 12, [(mode, p, index_stream(mode, p, 4096))], bytes(1200))
        for cut in range(0, len(payload), 7):
            refused(topk(4096, payload[:cut]))
