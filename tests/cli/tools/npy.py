"""Makes and shows .npy files with the standard library alone.

npy.py make OUT DTYPE [--shape S] [--version V] [--fortran] VALUE...   DTYPE as in the file: <f4, >f2, <i4
npy.py header OUT TEXT [HEX]                                           any dictionary text, then data bytes
npy.py sample OUT COUNT                                                seeded values with a peak and tails, some zero
npy.py show IN                                                         header and up to ten values
npy.py patch FILE OFFSET HEX                                           overwrites bytes; OFFSET below 0 is from the end
npy.py cut FILE SIZE                                                   keeps the first SIZE bytes
"""
import math
import random
import struct
import sys

FORMATS = {"f2": "e", "f4": "f", "f8": "d", "i4": "i"}


def container(dictionary, data, version=1):
    length = "<H" if version == 1 else "<I"
    start = 8 + struct.calcsize(length)
    body = dictionary.encode("utf-8")
    body += b" " * (-(start + len(body) + 1) % 64) + b"\n"
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack(length, len(body)) + body + data


def make(out, dtype, *rest):
    rest = list(rest)
    version, fortran, shape = 1, False, None
    while rest and rest[0].startswith("--"):
        option = rest.pop(0)
        if option == "--fortran":
            fortran = True
        elif option == "--version":
            version = int(rest.pop(0))
        elif option == "--shape":
            shape = rest.pop(0)
    code = FORMATS[dtype[-2:]]
    values = [float(v) if code in "efd" else int(v) for v in rest]
    data = b"".join(struct.pack(dtype[0] + code, v) for v in values)
    shape = shape or f"({len(values)},)"
    dictionary = f"{{'descr': '{dtype}', 'fortran_order': {fortran}, 'shape': {shape}, }}"
    with open(out, "wb") as f:
        f.write(container(dictionary, data, version))


def header(out, text, data=""):
    with open(out, "wb") as f:
        f.write(container(text, bytes.fromhex(data)))


def sample(out, count):
    generator = random.Random(1)
    values = []
    for i in range(int(count)):
        scale = 10.0 ** -(i * 4 // int(count))  # four layers, each a tenth of the one before
        value = scale * math.copysign(generator.expovariate(1.0), generator.random() - 0.5)
        values.append(0.0 if i % 8 == 7 else value)
    make(out, "<f4", *map(repr, values))


def show(path):
    with open(path, "rb") as f:
        raw = f.read()
    (length,) = struct.unpack_from("<H", raw, 8)
    dictionary = eval(raw[10 : 10 + length])
    code = FORMATS[dictionary["descr"][-2:]]
    data = raw[10 + length :]
    size = struct.calcsize(code)
    count = len(data) // size
    values = struct.unpack(f"{dictionary['descr'][0]}{count}{code}", data)
    aligned = "aligned" if (10 + length) % 64 == 0 else "not aligned"
    print(dictionary["descr"], dictionary["fortran_order"], dictionary["shape"], aligned, *values[:10])


def patch(path, offset, data):
    with open(path, "r+b") as f:
        f.seek(int(offset), 2 if int(offset) < 0 else 0)
        f.write(bytes.fromhex(data))


def cut(path, size):
    with open(path, "r+b") as f:
        f.truncate(int(size))


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
