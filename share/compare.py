# What people use today for the work that `tersegrad bench` times. Run by `tersegrad bench --compare`, of which it is a part:
#
#   python3 -c "$(cat share/compare.py)" COUNT SECONDS THREADS DEVICE     DEVICE: cpu, or cuda:0 for what is compared on a card
#
# Prints a line for each: name, milliseconds (the minimum), the floor that it is held against (R, S, A), bits per element, note; with tabs
# in between. What is not installed is a line that says so.
import sys
import time
import warnings

warnings.simplefilter("ignore")

COUNT, SECONDS, THREADS = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])


def line(name, ms, floor, bits, note=""):
    text = [name, "-" if ms is None else "%.6g" % ms, floor, "-" if bits is None else "%.6g" % bits, note]
    print("\t".join(t.replace("\t", " ").replace("\n", " ") for t in text), flush=True)


def absent(name, floor, error):
    line(name, None, floor, None, "not installed" if isinstance(error, ImportError) else str(error)[:120])


def minimum(work):
    """Milliseconds of the quickest of at least three runs."""
    best, started, runs = float("inf"), time.perf_counter(), 0
    while runs < 3 or time.perf_counter() - started < SECONDS:
        begin = time.perf_counter()
        work()
        best = min(best, (time.perf_counter() - begin) * 1e3)
        runs += 1
    return best


def with_numpy():
    x = numpy.random.default_rng(1).standard_normal(COUNT, dtype=numpy.float32)
    for density in (0.1, 0.01, 0.001):
        k = max(1, int(COUNT * density))
        line("numpy.argpartition %g" % density, minimum(lambda: numpy.argpartition(numpy.abs(x), COUNT - k)[COUNT - k:]), "R", 64 * density,
             "indices alone")
    line("numpy float16", minimum(lambda: x.astype(numpy.float16)), "R", 16)
    return x


def with_torch(torch, x):
    torch.set_num_threads(THREADS)
    g = torch.from_numpy(x)
    residual = torch.zeros_like(g)
    for density in (0.1, 0.01, 0.001):
        k = max(1, int(COUNT * density))

        def step():
            residual.add_(g)
            indices = torch.topk(residual.abs(), k, sorted=False).indices
            values = residual[indices]
            residual[indices] = 0
            return values, indices

        line("torch.topk %g" % density, minimum(lambda: torch.topk(g.abs(), k, sorted=False)), "R", 96 * density)
        line("torch.topk %g with feedback" % density, minimum(step), "A", 96 * density)
    line("torch float16", minimum(lambda: g.to(torch.float16)), "R", 16)
    half = g.to(torch.float16)
    total = torch.zeros_like(g)
    line("torch float16, added to a sum", minimum(lambda: total.add_(half)), "S", 16)

    def quantise(): # QSGD as GRACE has it: 4 bits, buckets of 512
        rows = g[: COUNT // 512 * 512].view(-1, 512)
        scale = rows.abs().amax(dim=1, keepdim=True)
        return torch.floor(rows / scale * 7 + torch.rand_like(rows)).to(torch.int8), scale

    line("qsgd 4 bits in torch", minimum(quantise), "R", 8, "unpacked")


def with_piquant(piquant, x):
    import torch
    import piquant.torch
    context, t = piquant.Context(THREADS), torch.from_numpy(x)

    def quantise(dtype, rounding):
        scale, zero = piquant.torch.compute_quant_params(t, dtype=dtype, ctx=context)
        return piquant.torch.quantize(t, scale=scale, zero_point=zero, dtype=dtype, round_mode=rounding, ctx=context)

    for bits, dtype in ((4, torch.quint4x2), (8, torch.quint8)):
        for rounding in ("nearest", "stochastic"):
            line("pypiquant %d bits, %s" % (bits, rounding), minimum(lambda: quantise(dtype, rounding)), "R", bits, "one scale for all")


def with_hivemind(hivemind, x):
    import torch
    from hivemind.compression import BlockwiseQuantization, CompressionInfo, Uniform8BitQuantization
    t = torch.from_numpy(x)
    info = CompressionInfo.from_tensor(t)
    for codec in (Uniform8BitQuantization, BlockwiseQuantization):
        try:
            line("hivemind %s" % codec.__name__, minimum(lambda: codec().compress(t, info)), "R", 8)
        except Exception as error:
            absent("hivemind %s" % codec.__name__, "R", error)


def with_zstandard(zstandard, x):
    n = COUNT // 512 * 512
    rows = x[:n].reshape(-1, 512)
    draws = numpy.random.default_rng(2).random(rows.shape, dtype=numpy.float32)
    for norm in ("max", "l2"):
        scale = numpy.abs(rows).max(axis=1, keepdims=True) if norm == "max" else numpy.linalg.norm(rows, axis=1, keepdims=True)
        levels = numpy.floor(rows / scale * 7 + draws).astype(numpy.int8).tobytes()
        packer, sizes = zstandard.ZstdCompressor(level=3), []
        ms = minimum(lambda: sizes.append(len(packer.compress(levels))))
        line("zstd -3 on qsgd levels, %s" % norm, ms, "R", 8 * sizes[0] / n, "levels only, already quantised")
        frame, unpacker = packer.compress(levels), zstandard.ZstdDecompressor()
        line("zstd -d of those", minimum(lambda: unpacker.decompress(frame)), "R", None, "to levels, not added")


def with_card(torch, device):
    """Calls behind each other on the stream, by events; microseconds of a call are what is left of launches."""
    g = torch.randn(COUNT, device=device)
    residual = torch.zeros_like(g)

    def on_card(work, calls=8):
        best, started, runs = float("inf"), time.perf_counter(), 0
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        while runs < 4 or time.perf_counter() - started < SECONDS: # the first is a warm-up
            begin.record()
            for _ in range(calls):
                work()
            end.record()
            end.synchronize()
            if runs > 0:
                best = min(best, begin.elapsed_time(end) / calls)
            runs += 1
        return best

    for density in (0.01, 0.001):
        k = max(1, int(COUNT * density))
        threshold = 2**0.5 * torch.erfinv(torch.tensor(1 - density)).item()

        def exact():
            residual.add_(g)
            indices = torch.topk(residual.abs(), k, sorted=False).indices
            values = residual[indices]
            residual[indices] = 0
            return values, indices

        def gaussian(): # as its paper has it: the threshold of a normal distribution, made larger or smaller up to four times
            residual.add_(g)
            magnitudes = residual.abs()
            t = residual.std() * threshold
            for _ in range(4):
                found = (magnitudes > t).sum().item()
                if 2 * k <= 3 * found <= 4 * k:
                    break
                t = t * (0.5 if 3 * found < 2 * k else 1.5)
            indices = torch.nonzero(magnitudes > t).squeeze(1)
            values = residual[indices]
            residual[indices] = 0
            return values, indices

        line("torch.topk %g" % density, on_card(lambda: torch.topk(g.abs(), k, sorted=False)), "R", 96 * density)
        residual.zero_()
        line("torch.topk %g with feedback" % density, on_card(exact), "A", 96 * density)
        residual.zero_()
        line("Gaussian-k %g in torch with feedback" % density, on_card(gaussian), "A", 96 * density)
    total = torch.zeros_like(g)
    line("fp16 hook: to float16", on_card(lambda: g.to(torch.float16).div_(4)), "R", 16)
    half = g.to(torch.float16)
    line("fp16 hook: back to float32", on_card(lambda: total.copy_(half)), "S", 16)
    rows = g[: COUNT // 512 * 512].view(-1, 512)

    def quantise(): # QSGD as GRACE has it: 4 bits, buckets of 512
        scale = rows.abs().amax(dim=1, keepdim=True)
        return torch.floor(rows / scale * 7 + torch.rand_like(rows)).to(torch.int8), scale

    line("qsgd 4 bits in torch", on_card(quantise), "R", 8, "unpacked")


def attempt(name, floor, module, work, *arguments):
    try:
        work(__import__(module), *arguments)
    except Exception as error: # whatever another version of it does, the others still have their say
        absent(name, floor, error)


DEVICE = sys.argv[4] if len(sys.argv) > 4 else "cpu"
if DEVICE != "cpu":
    attempt("torch", "R", "torch", with_card, DEVICE)
    sys.exit(0)
try:
    import numpy
except ImportError as missing:
    for what in ("numpy", "torch", "pypiquant", "hivemind", "zstd"):
        absent(what, "R", missing)
    sys.exit(0)
vector = with_numpy()
attempt("torch", "R", "torch", with_torch, vector)
attempt("pypiquant", "R", "piquant", with_piquant, vector)
attempt("hivemind", "R", "hivemind", with_hivemind, vector)
attempt("zstd", "R", "zstandard", with_zstandard, vector)
