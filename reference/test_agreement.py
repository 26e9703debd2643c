"""The C library and the second decoder must agree: on every frame the library writes, and on damaged ones, which both refuse or both
decode to the same bits. The library is called through ctypes, so this is also a test of the ABI that other languages see."""

from __future__ import annotations

import ctypes
import struct
from pathlib import Path

import numpy as np
import pytest
import xxhash

import decode as reference

ROOT = Path(__file__).resolve().parent.parent
LIBRARY = ROOT / "build" / "libtersegrad.so"
GOLDEN = ROOT / "tests" / "golden" / "frames"

pytestmark = pytest.mark.skipif(not LIBRARY.exists(), reason="build/libtersegrad.so is not built; run make")


class Spec(ctypes.Structure):
    _fields_ = [("codec", ctypes.c_uint8), ("choices", ctypes.c_uint8), ("levels", ctypes.c_uint16),
                ("bucket", ctypes.c_uint32), ("amount", ctypes.c_uint32)]


class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("count", ctypes.c_uint64), ("dtype", ctypes.c_int)]


class Options(ctypes.Structure):
    _fields_ = [("seed", ctypes.c_uint64), ("step", ctypes.c_uint64), ("tensor", ctypes.c_uint32), ("rank", ctypes.c_uint32),
                ("nonfinite", ctypes.c_int), ("no_checksum", ctypes.c_bool)]


class Report(ctypes.Structure):
    _fields_ = [("status", ctypes.c_int), ("bytes", ctypes.c_size_t), ("selected", ctypes.c_uint64), ("saturated", ctypes.c_uint64),
                ("dropped", ctypes.c_uint64)]


class Frame(ctypes.Structure):
    _fields_ = [("data", ctypes.c_char_p), ("size", ctypes.c_size_t)]


class Library:
    """As much of tersegrad.h as these tests need."""

    def __init__(self) -> None:
        self.lib = ctypes.CDLL(str(LIBRARY))
        self.lib.tg_frame_bound.restype = ctypes.c_size_t
        self.lib.tg_frame_bound.argtypes = [ctypes.c_void_p, ctypes.c_uint64]
        self.lib.tg_codec_free.argtypes = [ctypes.c_void_p]
        self.lib.tg_decode.argtypes = [ctypes.c_void_p, ctypes.POINTER(Frame), ctypes.c_size_t, ctypes.c_float,
                                       ctypes.c_uint, ctypes.POINTER(Tensor), ctypes.c_char_p]
        self.device = ctypes.c_void_p()
        assert self.lib.tg_device_open(b"cpu", None, ctypes.byref(self.device), None) == 0

    def encode(self, text: str, values: np.ndarray, step: int = 0, checksum: bool = True) -> bytes:
        spec, codec, report = Spec(), ctypes.c_void_p(), Report()
        error = ctypes.create_string_buffer(256)
        assert self.lib.tg_spec_parse(text.encode(), ctypes.byref(spec), error) == 0, error.value
        assert self.lib.tg_codec_create(self.device, ctypes.byref(spec), ctypes.c_uint64(values.size), ctypes.byref(codec),
                                        error) == 0, error.value
        bound = self.lib.tg_frame_bound(codec, values.size)
        buffer = ctypes.create_string_buffer(bound)
        tensor = Tensor(values.ctypes.data, values.size, {"float32": 0, "float16": 1}[values.dtype.name])
        options = Options(seed=1, step=step, no_checksum=not checksum)
        assert self.lib.tg_encode(codec, ctypes.byref(tensor), ctypes.byref(options), buffer, ctypes.c_size_t(bound),
                                  ctypes.byref(report), error) == 0, error.value
        self.lib.tg_codec_free(codec)
        return buffer.raw[: report.bytes]

    def decode(self, frame: bytes, count: int) -> np.ndarray | None:
        """The values, or None if the library refuses the frame."""
        out = np.full(count, np.nan, np.float32)
        tensor = Tensor(out.ctypes.data, count, 0)
        status = self.lib.tg_decode(self.device, ctypes.byref(Frame(frame, len(frame))), 1, 1.0, 0, ctypes.byref(tensor), None)
        if status == 0:
            return out
        assert np.isnan(out).all(), "a refused frame changed the output"
        return None


@pytest.fixture(autouse=True)
def small_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A damaged count may be legal and huge."""
    monkeypatch.setattr(reference, "MAX_COUNT", 1 << 20)


@pytest.fixture(scope="module")
def library() -> Library:
    return Library()


SPECS = [
    "none", "fp16", "bf16", "qsgd", "qsgd:norm=l2", "qsgd:levels=1", "qsgd:levels=32767", "qsgd:levels=100,bucket=100",
    "qsgd:range=minmax", "qsgd:range=minmax,bucket=0,levels=3", "qsgd:coding=elias", "qsgd:coding=elias,norm=l2,levels=2",
    "qsgd:coding=elias,levels=32767,bucket=0", "qsgd:coding=entropy", "qsgd:coding=entropy,levels=1,norm=l2,bucket=0",
    "qsgd:coding=entropy,levels=127", "qsgd:coding=entropy,levels=3000", "qsgd:coding=auto", "qsgd:coding=auto,norm=l2",
    "terngrad", "terngrad:clip=2.5,coding=entropy", "terngrad:bucket=0,coding=auto", "onebit", "onebit:bucket=0",
    "onebit:bucket=100", "topk", "topk:density=0.3", "topk:density=1", "topk:k=3,values=fp16", "topk:density=0.9,values=bf16",
    "topk:density=0.2,values=levels", "topk:density=0.2,values=levels,coding=entropy,levels=127",
    "topk:density=0.2,values=levels,coding=elias,range=minmax", "topk:density=0.5,values=levels,coding=auto,bucket=10",
    "randk:density=0.05", "gaussiank", "dgck", "trimk", "sidco:density=0.1,values=fp16",
]


def data(shape: str, count: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(count)
    if shape == "layered":
        x *= 10.0 ** rng.integers(-6, 3, count // 50 + 1).repeat(50)[:count]
        x[rng.random(count) < 0.2] = 0
    elif shape == "signs":
        x = np.sign(x)
    elif shape == "scattered":
        x[rng.random(count) >= 0.02] = 0
    elif shape == "clustered":
        x *= np.where(np.arange(count) // 700 % 5 == 0, 10.0, 1e-3)
    return x.astype(np.float32)


def assert_same(frame: bytes, ours: np.ndarray | None) -> None:
    try:
        theirs = reference.decode(frame)[1]
    except reference.Refused as reason:
        assert ours is None, f"the library accepts what the reference refuses: {reason}"
        return
    assert ours is not None, "the library refuses what the reference accepts"
    assert ours.tobytes() == theirs.astype("<f4").tobytes()


@pytest.mark.parametrize("text", SPECS)
def test_whole_frames(library: Library, text: str) -> None:
    for seed, count in enumerate([0, 1, 2, 17, 511, 512, 513, 1000, 4096, 5001, 70001]):
        for shape in ("gaussian", "layered", "signs", "clustered", "scattered"):
            frame = library.encode(text, data(shape, count, seed), step=seed, checksum=seed % 4 != 0)
            assert_same(frame, library.decode(frame, count))


def test_halves(library: Library) -> None:
    for text in SPECS:
        values = data("layered", 3001, 5).astype(np.float16)
        frame = library.encode(text, values)
        assert_same(frame, library.decode(frame, values.size))


def test_pairs_of_digits(library: Library) -> None:
    """From 2^18 elements on, small levels are coded in pairs."""
    for levels, norm in ((3, "max"), (2, "max")):  # those of 2, 4 and 8 bits have a prefix code
        values = data("gaussian", (1 << 18) + 77, levels)
        frame = library.encode(f"qsgd:levels={levels},norm={norm},coding=entropy", values)
        assert frame[64 + 4 * -(-values.size // 512) + 1] == 2, "the test wants pairs and has none"
        assert_same(frame, library.decode(frame, values.size))


def test_prefix_codes(library: Library) -> None:
    for text in ("qsgd:levels=7", "qsgd:levels=7,norm=l2,bucket=128", "qsgd:levels=127,bucket=0", "terngrad:bucket=100", "qsgd:levels=5,range=minmax"):
        for count in (1 << 18, (1 << 18) + 77, 1 << 20):
            values = data("gaussian", count, count % 100)
            frame = library.encode(f"{text}{',' if ':' in text else ':'}coding=entropy", values)
            assert frame[7] == 5, "the test wants a prefix code and has none"
            assert_same(frame, library.decode(frame, values.size))


def test_many_leaves(library: Library) -> None:
    """More than 512 leaves: their digests are digested in nodes."""
    for count in (512 * 1024, 512 * 1024 + 1, 900001):
        frame = library.encode("none", data("gaussian", count, 3))
        assert_same(frame, library.decode(frame, count))


def with_checksum(frame: bytearray) -> bytes:
    frame[60:64] = bytes(4)
    if frame[6] & 1:
        digests = b"".join(xxhash.xxh3_64(frame[at:at + 4096]).intdigest().to_bytes(8, "little")
                           for at in range(64, len(frame), 4096))
        frame[60:64] = (xxhash.xxh3_64(bytes(frame[:64]) + digests).intdigest() & 0xFFFFFFFF).to_bytes(4, "little")
    return bytes(frame)


@pytest.mark.parametrize("text", SPECS)
def test_damaged_frames(library: Library, text: str) -> None:
    rng = np.random.default_rng(len(text))
    for count in (1, 40, 1300, 2000, 5000):
        whole = library.encode(text, data({1300: "layered", 2000: "scattered"}.get(count, "gaussian"), count, count))
        for _ in range(60):
            frame = bytearray(whole)
            for _ in range(rng.integers(1, 4)):
                # Damage near the front, where the structure is, as often as anywhere.
                end = min(len(frame), 200) if rng.random() < 0.5 else len(frame)
                at = int(rng.integers(4, end)) if end > 4 else 4
                frame[at] = int(rng.integers(256)) if rng.random() < 0.5 else frame[at] ^ (1 << int(rng.integers(8)))
            damaged = with_checksum(frame)
            claimed = struct.unpack_from("<Q", damaged, 24)[0]
            if claimed > reference.MAX_COUNT:
                continue
            assert_same(damaged, library.decode(damaged, claimed))


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.tg")), ids=lambda path: path.stem)
def test_golden_frames(library: Library, path: Path) -> None:
    frame = path.read_bytes()
    header, _ = reference.decode(frame)
    assert_same(frame, library.decode(frame, header.count))
