#!/usr/bin/env python3
"""Writes the seeds of the fuzz targets: scripts/corpus.py [COMMAND]

Small frames of every codec, made by the command, and small inputs of the other targets go to tests/fuzz/corpus. Its own
files (seed-*) are written anew; inputs that a fuzzer found stay. Run it when the format or the table of codecs changes.
"""
import gzip
import itertools
import json
import math
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
CORPUS = ROOT / "tests" / "fuzz" / "corpus"
COMMAND = sys.argv[1] if len(sys.argv) > 1 else str(ROOT / "build" / "tersegrad")

# Values worth trying for parameters that are numbers; the first is the one that combinations use.
NUMBERS = {
    "levels": ["7", "1", "300"], "bucket": ["64", "0"], "clip": ["2.5", "0"],
    "density": ["0.05", "1"], "k": ["10"],
}  # fmt: skip
# LIBSVM's text: see train/libsvm.h.
LIBSVM = {
    "classes": b"+1 1:0.5 3:-2e1\n-1 2:1e-3\n", "real": b"0.25 1:1 # comment\n\n-1999.5 7:3\r\n", "alone": b"1\n2\n",
    "long": b"1 1:0.12345678901234567890123 67108864:1", "order": b"1 2:1 1:1\n", "inf": b"1 1:inf\n", "word": b"1 qid:3 1:1\n",
    "zero": b"1 1:1\x002:2\n",
}  # fmt: skip

# Layouts: see cli/layout.h.
LAYOUTS = {
    "two": b'[{"name": "a.\\u00e4", "shape": [2, 2], "offset": 0, "count": 4}, {"name": "b", "offset": 4, "count": 60}]', "none": b"[]",
    "outside": b'[{"name": "a", "offset": 60, "count": 5}]', "large": b'[{"name": "a", "offset": 0, "count": 9223372036854775807}]',
    "negative": b'[{"name": "a", "offset": -1, "count": 1}]', "real": b'[{"name": "a", "offset": 0, "count": 1.5}]', "object": b"{}",
    "product": b'[{"name": "a", "shape": [4294967296, 4294967296, 0], "offset": 0, "count": 0}]', "deep": b"[" * 3000,
    "twice": b'[{"name": "a", "name": "b", "offset": 0, "count": 1}]', "long": b'[{"name": "' + b"x" * 256 + b'", "offset": 0, "count": 1}]',
    "shapes": b'[{"name": "a", "shape": [' + b"1, " * 40 + b'1], "offset": 0, "count": 1}]', "cut": b'[{"name": "a", "off',
    "times": b'[{"name": "b", "offset": 1, "count": 2, "ready": 0}, {"name": "a", "offset": 0, "count": 1, "ready": 1.5e-3}]',
    "falling": b'[{"name": "b", "offset": 1, "count": 2, "ready": 2}, {"name": "a", "offset": 0, "count": 1, "ready": 1}]',
    "some": b'[{"name": "b", "offset": 1, "count": 2, "ready": 2}, {"name": "a", "offset": 0, "count": 1}]',
    "same": b'[{"name": "a", "offset": 1, "count": 2}, {"name": "a", "offset": 0, "count": 1}]',
    "late": b'[{"name": "a", "offset": 0, "count": 1, "ready": 1e308}]', "early": b'[{"name": "a", "offset": 0, "count": 1, "ready": -1}]',
}  # fmt: skip

LOG_HEADER = (b'{"tersegrad": "0.1.0", "command": "tersegrad train", "date": "2026", "host": "h", "data": "d", "model": "m", "link": "1gbit", '
              b'"hosts": 2, "workers": 4, "steps": 3, "batch": 8, "seed": 1, "on_test_rows": true, "point_rows": 10, "rows": 20}\n')  # fmt: skip


def log_line(run, step, **values):
    """See cli/train_log.c."""
    names = {"codec": "topk:density=0.05", "feedback": "ef", "step": step, "batch_loss": 1.5, "lr": 0.1, "bytes_sent": 100 * step,
             "frame_ratio": 7.5, "wire_ratio": 9.25, "skipped": False}  # fmt: skip
    return json.dumps({"run": run, **names, **values}).encode() + b"\n"


def log_point(run, step, loss):
    return log_line(run, step, loss=loss, accuracy=0.5, distance_to_optimum=None, residual_norm=1e-3, selected=5, seconds=0.25 * step)


# Logs: see cli/report_logs.h.
LOGS = {
    "one": LOG_HEADER + log_point(0, 1, 2.5) + log_line(0, 2) + log_point(0, 3, 1.25),
    "two": LOG_HEADER + log_point(0, 1, 2) + log_point(1, 1, 3) + log_point(1, 2, 1e-9), "none": b"", "header": LOG_HEADER,
    "cut": LOG_HEADER + log_point(0, 1, 2.5)[:-9], "order": log_line(1, 1), "word": b"nonsense\n", "alone": b'{"run": 0, "step": 1}\n',
    "back": log_line(0, 1) + log_line(1, 1) + log_line(0, 2), "large": log_point(0, 2**63 - 1, 1e308) + log_point(0, 1, -1e308),
    "huge": log_line(0, 1, bytes_sent=2**63 - 1, wire_ratio=1e300), "negative": log_line(0, 1, bytes_sent=100, wire_ratio=-3),
    "long": log_line(0, 1, codec="\u00e4" * 200), "tiny": log_point(0, 1, 5e-324) + log_point(0, 2, 1),
}  # fmt: skip


def save(target, name, data):
    path = CORPUS / target / f"seed-{name}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def gradient(count):
    """Heavy-tailed values, an eighth of them zero."""
    draw = random.Random(count)
    return [0.0 if i % 8 == 3 else draw.gauss(0, 1e-2) * math.exp(draw.gauss(0, 0.8)) for i in range(count)]


def npy(descr, values, version=1):
    header = "{'descr': '%s', 'fortran_order': False, 'shape': (%d,), }" % (descr, len(values))
    length = "<H" if version == 1 else "<I"
    start = 8 + struct.calcsize(length)
    header += " " * (-(start + len(header) + 1) % 64) + "\n"
    code = {"2": "e", "4": "f", "8": "d"}[descr[-1]]
    data = struct.pack(f"{descr[0]}{len(values)}{code}", *values)
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack(length, len(header)) + header.encode() + data


def specs(codec, seen):
    """The codec alone; and, for the first codec with such parameters, each value of each and each pair of words."""
    name, choices = codec["name"], {}
    for parameter in codec["parameters"]:
        words = parameter["range"].split("|")
        choices[parameter["name"]] = words if len(words) > 1 else NUMBERS[parameter["name"]]
    yield name
    if tuple(choices) in seen:
        return
    seen.add(tuple(choices))
    for key, values in choices.items():
        for value in values:
            yield f"{name}:{key}={value}"
    words = {key: values for key, values in choices.items() if key not in NUMBERS}
    for (one, ones), (other, others) in itertools.combinations(words.items(), 2):
        for first, second in itertools.product(ones, others):
            yield f"{name}:{one}={first},{other}={second}"


def encode(spec, data, folder, *options):
    """The frame, or None where the library refuses the spec."""
    source, frame = folder / "in.npy", folder / "out.tg"
    source.write_bytes(data)
    done = subprocess.run([COMMAND, "encode", "--force", *options, spec, source, frame], capture_output=True, check=False)
    return frame.read_bytes() if done.returncode == 0 else None


def file_name(spec):
    return spec.replace(":", "-").replace(",", "-").replace("=", "_")


def main():
    codecs = json.loads(subprocess.run([COMMAND, "codecs", "--json"], capture_output=True, check=True).stdout)["codecs"]
    for old in CORPUS.glob("*/seed-*"):
        old.unlink()
    with tempfile.TemporaryDirectory() as name:
        folder, seen = pathlib.Path(name), set()
        for index, codec in enumerate(codecs):
            for spec in specs(codec, seen):
                frame = encode(spec, npy("<f4", gradient(70)), folder)
                if frame is None:
                    continue
                save("decode", file_name(spec), frame)
                save("spec", file_name(spec), spec.encode())
            # More than one group, chunk of lanes and segment; no elements; sixteen bits; no checksum.
            save("decode", codec["name"] + "-long", encode(codec["name"], npy("<f4", gradient(700)), folder))
            save("decode", codec["name"] + "-empty", encode(codec["name"], npy("<f4", []), folder))
            save("decode", codec["name"] + "-half",
                 encode(codec["name"], npy("<f2", gradient(40)), folder, "--no-checksum"))  # fmt: skip
            # codec, eight parameters, options, draw, least count, then the elements: see tests/fuzz/roundtrip.c
            for options, least in ((0, 0), (32, 200), (64, 254), (96, 0)):
                head = bytes([index] + [0] * 8 + [options, index, least])
                save("roundtrip", f"{codec['name']}-{options}", head + struct.pack("<40f", *gradient(40)))
        # Nearly all zeros: levels that are listed with their positions.
        few = npy("<f4", [x if i % 40 == 1 else 0.0 for i, x in enumerate(gradient(200))])
        save("decode", "listed", encode("qsgd:levels=300,coding=entropy", few, folder))
        save("decode", "listed-values",
             encode("topk:density=1,values=levels,levels=300,bucket=0,coding=entropy", few, folder))  # fmt: skip
        save("decode", "listed-none", encode("qsgd:coding=entropy", npy("<f4", [0.0] * 100), folder))
        # A prefix code, which the encoder has for long vectors only: every byte as it is, its first bit last.
        frame = bytearray(encode("qsgd:bucket=0,coding=entropy", npy("<f4", gradient(70)), folder, "--no-checksum"))
        streams = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(35))
        sizes = [len(streams[s::8]) for s in range(8)]
        payload = frame[64:68] + struct.pack("<I", 12) + b"\x88" * 128 + struct.pack("<8H", *sizes) + b"".join(streams[s::8] for s in range(8))
        frame[7], frame[32:40] = 5, struct.pack("<Q", len(payload))
        save("decode", "prefix", bytes(frame[:64]) + payload)
        # Long runs: indices as Elias codes, enough of them for a table.
        runs = npy("<f4", [1.0 if i % 2600 < 1300 else 0.0 for i in range(7000)])
        save("decode", "runs", encode("topk:k=3700,values=levels,levels=1,bucket=0", runs, folder))
        for number in range(1, 5):
            head = bytes([3] + [number] * 5 + [0] * 3 + [3 * number, 0, 2])
            save("roundtrip", f"parameters-{number}", head + struct.pack("<5f", 1, -2.5, math.inf, 1e-42, math.nan))
    for text in ("none", "ef", "ecq:alpha=0.2,beta=0.9", "dgc:momentum=0.9,clip=1", "dgc", "qsgd:levels=", "topk:k=1,k=2",
                 "qsgd:levels=99999"):  # fmt: skip
        save("spec", "feedback-" + file_name(text), text.encode())
    for text in ("cpu", "cpu/scalar", "cpu/avx2:threads=2", "cpu:threads=0", "cpu:threads=257", "cuda:0", "cpu/none"):
        save("spec", "device-" + text.replace("/", "-").replace(":", "-").replace("=", "_"), text.encode())
    for name, text in LOGS.items():
        save("log", name, text)
    for descr, version in itertools.product(("<f2", "<f4", ">f4", "<f8", ">f8"), (1, 2, 3)):
        save("npy", f"{descr[1:]}{'le' if descr[0] == '<' else 'be'}-{version}", npy(descr, gradient(5), version))
    save("npy", "shape", npy("<f4", gradient(6)).replace(b"(6,), }  ", b"(2, 3), }"))
    for name, text in LIBSVM.items():
        save("libsvm", name, text)
    for name, header, data in (("labels", [2], b"ab"), ("images", [2, 2, 3], bytes(12)), ("empty", [0], b""), ("short", [9], b"a"),
                               ("huge", [2**32 - 1] * 4, b"")):  # fmt: skip
        save("idx", name, bytes([0, 0, 8, len(header)]) + struct.pack(f">{len(header)}I", *header) + data)
    # kind, real targets, then files with their lengths: see tests/fuzz/dataset.c
    def idx(*shape):
        data = bytes(i * 37 % 10 for i in range(math.prod(shape)))
        return bytes([0, 0, 8, len(shape)]) + struct.pack(f">{len(shape)}I", *shape) + data

    x, y = npy("<f4", gradient(6)).replace(b"(6,), }  ", b"(2, 3), }"), npy("<f8", [1.0, 2.0])
    sets = {
        "libsvm": (0, 0, [LIBSVM["classes"], b"1 9:1\n"]), "real": (0, 1, [LIBSVM["real"]]), "gzip": (0, 0, [gzip.compress(LIBSVM["classes"], mtime=0)]),
        "mnist": (1, 0, [idx(3, 2, 2), idx(3), idx(2, 2, 2), idx(2)]), "mnist-gz": (1, 0, [gzip.compress(idx(3, 2, 2), mtime=0), idx(3), idx(2, 4), idx(2)]),
        "npy": (3, 0, [x, y]), "npy-test": (3, 1, [x, y, x, y]), "npy-half": (3, 0, [x, npy("<f2", [1.0, 2.0])]),
        "npy-big": (3, 1, [x.replace(b"<f4", b">f4"), npy(">f4", [1.5, 2.0])]),
        "npy-wide": (3, 1, [npy("<f2", gradient(200)).replace(b"(200,), }  ", b"(2, 100), }"), y]),
        # What must be refused: files that do not fit each other, and values beyond float32.
        "mnist-labels": (1, 0, [idx(3, 2, 2), idx(2), idx(2, 2, 2), idx(2)]), "mnist-sizes": (1, 0, [idx(3, 2, 2), idx(3), idx(2, 2, 3), idx(2)]),
        "npy-targets": (3, 1, [x, npy("<f4", [1.0, 2.0, 3.0])]), "large": (0, 1, [b"1 1:1e39\n"]),
        "test-sizes": (3, 1, [x, y, npy("<f4", gradient(8)).replace(b"(8,), }  ", b"(2, 4), }"), y]),
    }  # fmt: skip
    for name, (kind, real, parts) in sets.items():
        save("dataset", name, bytes([kind, real]) + b"".join(struct.pack("<H", len(part)) + part for part in parts))
    for name, rows, data in (("cifar", 2, b"\1\2"), ("cifar-odd", 2 + 2**15, b"\1\2"), ("cifar-label", 2, b"\1\12")):
        save("dataset", name, bytes([2, 0]) + struct.pack("<H", rows) + data + struct.pack("<H", 1) + b"\3")  # the length says how many rows
    # algorithm, exchange, forged checksums, bytes cut, edits of three bytes: see tests/fuzz/message.c
    draw = random.Random(4)
    for what, exchange, forged in itertools.product((0, 1, 16), (0, 1, 2, 3, 5), (0, 1)):
        edits = bytes(draw.choice((draw.randrange(256), 1, 0)) for _ in range(3 * draw.randrange(4)))
        head = bytes([what, exchange, forged, draw.choice((0, 0, 1, 64))])
        save("message", f"{what}-{exchange}-{forged}", head + edits)
    # the same over hosts, with messages and with memory: raw parts, what is between hosts, and what is spread
    over_hosts = random.Random(5)
    for what, exchange, forged in itertools.product((64, 65, 192, 193), (2, 3, 14, 21, 40), (0, 1)):
        edits = bytes(over_hosts.choice((over_hosts.randrange(256), 48 + over_hosts.randrange(16), 0)) for _ in range(3 * over_hosts.randrange(4)))
        head = bytes([what, exchange, forged + 2 * over_hosts.randrange(16), over_hosts.choice((0, 0, 1, 64))])
        save("message", f"hosts-{what}-{exchange}-{forged}", head + edits)
    # algorithms, who loads, which is edited, bytes cut, a wrong checksum, edits: see tests/fuzz/state.c
    for what, loader, edited in itertools.product((0, 1, 2, 3), range(6), (0, 1)):
        edits = bytes(draw.choice((draw.randrange(256), 1, 0)) for _ in range(3 * draw.randrange(4)))
        save("state", f"{what}-{loader}-{edited}", bytes([what, loader, edited, draw.choice((0, 0, 5, 10)), 0]) + edits)
    for what, loader in itertools.product((4, 9, 14, 15, 28, 29), range(6)):  # there were hosts, there are, the own state alone
        edits = bytes(over_hosts.choice((over_hosts.randrange(256), 1, 0)) for _ in range(3 * over_hosts.randrange(4)))
        save("state", f"hosts-{what}-{loader}", bytes([what, loader, over_hosts.randrange(4), over_hosts.choice((0, 0, 5, 10)), 0]) + edits)
    # the root of how many elements the gradient has, then JSON: see tests/fuzz/layout.c
    for name, text in LAYOUTS.items():
        save("layout", name, b"\x08" + text)
    # which one, a wrong checksum, bytes taken out, where, edits: see tests/fuzz/checkpoint.c
    for which, out in itertools.product(range(3), (0, 8, 248)):
        edits = bytes(draw.choice((draw.randrange(256), draw.randrange(16), 1)) for _ in range(3 * draw.randrange(3)))
        save("checkpoint", f"{which}-{out}", bytes([which, 0, out, draw.randrange(256), draw.randrange(16)]) + edits)
    for which, where in itertools.product(range(3), (1, 2, 3)):
        save("checkpoint", f"{which}-longer-{where}", bytes([which, 2 * where, 8, 0, 0]))
    files = [path for path in CORPUS.glob("*/*") if path.is_file()]
    print(f"{len(files)} files, {sum(path.stat().st_size for path in files)} bytes in {CORPUS.relative_to(ROOT)}")


main()
