"""Writes the small inputs of the golden frames. Run once; the files are checked in, so that no machine's libm matters."""

import struct
from pathlib import Path


def npy(path: Path, kind: str, values: bytes, count: int) -> None:
    header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': ({count},), }}".encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + values)


def numbers(count: int, seed: int) -> list[float]:
    """Bell-shaped, in layers of different scale, with zeros, ties, a subnormal and a few large ones: all by integer arithmetic."""
    state, out = seed, []
    for i in range(count):
        total = 0
        for _ in range(6):
            state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
            total += (state >> 40) - 2**23
        scale = [1.0, 2.0**-10, 8.0, 2.0**-20, 0.0][i // 97 % 5]
        out.append(total / 2**24 * scale)
    out[5:9] = [0.25, -0.25, 0.25, -0.25]
    out[20] = 2.0**-130 if seed == 1 else 2.0**-20
    out[30] = 100.0
    return out


here = Path(__file__).parent / "inputs"
npy(here / "float.npy", "<f4", b"".join(struct.pack("<f", x) for x in numbers(1500, 1)), 1500)
npy(here / "half.npy", "<f2", b"".join(struct.pack("<e", x) for x in numbers(700, 2)), 700)
npy(here / "empty.npy", "<f4", b"", 0)
few = [x if i % 47 == 5 else 0.0 for i, x in enumerate(numbers(1500, 3))]
npy(here / "few.npy", "<f4", b"".join(struct.pack("<f", x) for x in few), 1500)
npy(here / "zeros.npy", "<f4", bytes(4 * 5000), 5000)
