# SPDX-License-Identifier: Apache-2.0
"""The numpy API: what goes in comes out, bad input is named, nothing is copied."""

import doctest
import itertools
import pickle
import subprocess
import sys
import threading

import numpy as np
import pytest
import tersegrad
from hypothesis import given
from hypothesis import strategies as st
from tersegrad import codec as codec_module
from tersegrad import spec as spec_module

EVERY = [row.name + (":density=0.1" if row.sparse else "") for row in tersegrad.codecs()]
DTYPES = [np.float32, np.float16]


def vector(seed: int, count: int, dtype: type = np.float32) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(count) * 0.1).astype(dtype)


@given(st.sampled_from(EVERY), st.sampled_from(DTYPES), st.integers(0, 3000), st.integers(0, 2**64 - 1))
def test_frames_decode_and_repeat(spec: str, dtype: type, count: int, seed: int) -> None:
    array = vector(count, count, dtype)
    before = array.copy()
    frame = tersegrad.encode(array, spec, seed=seed, step=3, tensor=4, rank=5)
    assert frame == tersegrad.encode(array, spec, seed=seed, step=3, tensor=4, rank=5)
    assert np.array_equal(array, before)
    decoded = tersegrad.decode(frame)
    assert decoded.dtype == np.float32 and decoded.shape == (count,)
    info = tersegrad.inspect(frame)
    assert isinstance(info, tersegrad.FrameInfo)
    assert (info.count, info.bytes, info.seed, info.step, info.tensor, info.rank) == (count, len(frame), seed, 3, 4, 5)
    assert info.spec == tersegrad.Spec(spec) and info.dtype == np.dtype(dtype).name
    out = np.ones(count, np.float32)
    tersegrad.decode_add(frame, out)
    assert np.array_equal(out, np.float32(1) + decoded)
    assert np.array_equal(tersegrad.decode([frame, frame], weight=0.5), decoded)


@given(st.sampled_from(EVERY), st.integers(1, 2000), st.integers(1, 4))
def test_feedback_loses_nothing(spec: str, count: int, steps: int) -> None:
    feedback = tersegrad.Feedback("ef", spec, count, insist=True)
    total, sent = np.zeros(count), np.zeros(count)
    for step in range(steps):
        gradient = vector(step, count)
        total += gradient
        sent += tersegrad.decode(tersegrad.encode(gradient, spec, feedback=feedback, step=step))
    # What was sent and what is kept are the sum of what was given, to the rounding of float32 in each step.
    assert np.allclose(sent + feedback.residual, total, atol=1e-5 * steps)
    assert feedback.stats()["steps"] == steps


@given(st.binary(max_size=200), st.integers(0, 400))
def test_bad_bytes_raise_and_leave_the_output(noise: bytes, cut: int) -> None:
    out = np.full(100, 7, np.float32)
    good = tersegrad.encode(vector(1, 100), "qsgd")
    for frame in (noise, good[: min(cut, len(good) - 1)], good + b"x", bytes([good[0]]) + noise + good[20:]):
        if frame != good:
            with pytest.raises(tersegrad.BadFrame):
                tersegrad.decode(frame, out)
            assert (out == 7).all()


@given(st.sampled_from(EVERY), st.integers(1, 500), st.integers(0, 499), st.sampled_from([np.nan, np.inf, -np.inf]))
def test_values_that_are_not_finite(spec: str, count: int, place: int, value: float) -> None:
    array = vector(2, count)
    array[place % count] = value
    feedback = tersegrad.Feedback("ef", spec, count, insist=True)
    with pytest.raises(tersegrad.NonFinite, match=str(place % count)):
        tersegrad.encode(array, spec, feedback=feedback)
    assert not feedback.residual.any()
    encoder = tersegrad.Encoder(spec, count)
    assert np.isfinite(tersegrad.decode(encoder.encode(array, nonfinite="zero"))).all()
    assert encoder.report.dropped == 1


def test_composed_feedback_is_the_fused_one() -> None:
    spec = "topk:density=0.05"
    fused, composed = (tersegrad.Feedback("ef", spec, 1000) for _ in range(2))
    for step in range(3):
        gradient = vector(step, 1000)
        frame = tersegrad.encode(gradient, spec, feedback=fused, step=step)
        assert tersegrad.encode(composed.compensate(gradient), spec, step=step) == frame
        composed.update(gradient, frame)
        assert np.array_equal(fused.residual, composed.residual)
    before = fused.residual.copy()
    fused.give_back(frame)
    assert np.array_equal(fused.residual, before + tersegrad.decode(frame))
    fused.give_back(frame, applied=np.arange(1000))
    assert np.array_equal(fused.residual, before + tersegrad.decode(frame))
    fused.reset()
    assert not fused.residual.any()


def test_residuals_are_read_and_written_by_copies() -> None:
    feedback = tersegrad.Feedback("dgc:momentum=0.9", "topk:density=0.1", 50)
    residual, momentum = feedback.residual, feedback.momentum
    assert momentum is not None and momentum.shape == (50,)
    residual[3] = momentum[4] = 2
    assert not feedback.residual.any()
    feedback.residual, feedback.momentum = residual, momentum
    assert np.array_equal(feedback.residual, residual) and np.array_equal(feedback.momentum, momentum)
    residual[5] = np.nan
    with pytest.raises(tersegrad.Error, match="value 5"):
        feedback.residual = residual
    with pytest.raises(ValueError, match="shape"):
        feedback.residual = residual[:7]
    assert tersegrad.Feedback("ef", "topk:density=0.1", 50).momentum is None
    assert tersegrad.Feedback("ef", "topk:density=0.1", 0).residual.size == 0


def test_what_cannot_be_encoded_is_named() -> None:
    good = vector(0, 12)
    cases = [
        ([1.0, 2.0], TypeError, "numpy array, not list"),
        (good.astype(np.float64), TypeError, "float64: it must be float32, float16 or bfloat16"),
        (good.astype(np.uint16), TypeError, "dtype='bfloat16'"),
        (good[::2], ValueError, "not contiguous"),
        (good.astype(">f4"), TypeError, "byte order"),
    ]
    for array, kind, words in cases:
        with pytest.raises(kind, match=words):
            tersegrad.encode(array, "none")  # type: ignore[arg-type]
    for name in ("seed", "step", "tensor", "rank"):
        with pytest.raises(ValueError, match=f"{name} is -1"):
            tersegrad.encode(good, "none", **{name: -1})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="nonfinite is 'drop'"):
        tersegrad.encode(good, "none", nonfinite="drop")
    with pytest.raises(ValueError, match="5 elements, and this encoder was made for 4"):
        tersegrad.Encoder("none", 4).encode(good[:5])
    frame = tersegrad.encode(good, "none")
    read_only = np.zeros(12, np.float32)
    read_only.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        tersegrad.decode(frame, read_only)
    with pytest.raises(tersegrad.ShapeMismatch):
        tersegrad.decode(frame, np.zeros(11, np.float32))
    with pytest.raises(TypeError, match="contiguous bytes, not str"):
        tersegrad.decode("frame")  # type: ignore[arg-type]
    with pytest.raises(tersegrad.InvalidArgument):
        tersegrad.decode([])
    tersegrad.encode(good.reshape(3, 4), "none")


def test_bfloat16_of_ml_dtypes() -> None:
    kind = pytest.importorskip("ml_dtypes", reason="ml_dtypes not installed").bfloat16
    values = np.array([0.0, -1.5, 3.0, 0.25], kind)
    frame = tersegrad.encode(values, "none")
    assert frame == tersegrad.encode(values.view(np.uint16), "none", dtype="bfloat16")
    out = np.empty(4, kind)
    assert np.array_equal(tersegrad.decode(frame, out), values)
    residual = tersegrad.Feedback("ef", "topk:density=0.25", 4)
    tersegrad.encode(values, "topk:density=0.25", feedback=residual, step=0, rank=0)
    assert residual.residual.tolist() == [0.0, -1.5, 0.0, 0.25]


def test_bfloat16_by_name_of_the_bits() -> None:
    exact = np.array([1.0, -2.5, 0.0, 3.0], np.float32)
    bits = (exact.view(np.uint32) >> 16).astype(np.uint16)
    frame = tersegrad.encode(bits, "none", dtype="bfloat16")
    assert np.array_equal(tersegrad.decode(frame), exact)
    out = np.zeros(4, np.uint16)
    assert np.array_equal(tersegrad.decode(frame, out, dtype="bfloat16"), bits)
    info = tersegrad.inspect(bits, dtype="bfloat16")
    assert isinstance(info, tersegrad.ArrayInfo)
    assert (info.dtype, info.zeros, info.largest) == ("bfloat16", 1, 3.0)


def test_specs_are_values() -> None:
    spec = tersegrad.Spec("topk:density=0.01")
    assert spec == tersegrad.Spec(str(spec)) == pickle.loads(pickle.dumps(spec)) == tersegrad.Spec(spec)
    assert len({spec, tersegrad.Spec(str(spec)), tersegrad.Spec("qsgd")}) == 2
    assert spec.name == "topk" and spec.codec.sparse and spec.selected(1000) == 10
    loop = tersegrad.FeedbackSpec("ecq:alpha=0.2,beta=0.9")
    assert loop == pickle.loads(pickle.dumps(loop)) and loop.name == "ecq" and loop.bytes_per_element == 4
    for text, kind in (("nothing", tersegrad.UnknownCodec), ("topk:density=2", tersegrad.InvalidSpec)):
        with pytest.raises(kind) as caught:
            tersegrad.Spec(text)
        assert isinstance(caught.value, tersegrad.Error) and caught.value.status == kind.status
    with pytest.raises(TypeError, match="not int"):
        tersegrad.Spec(4)  # type: ignore[arg-type]
    assert tersegrad.stability("qsgd:norm=l2,bucket=0,levels=1", "ef", 10000).binding
    with pytest.raises(tersegrad.Unstable):
        tersegrad.Feedback("ef", "qsgd:norm=l2,bucket=0,levels=1", 10000)


def test_every_status_has_a_class_or_cannot_happen_here() -> None:
    have = {kind.status for kind in tersegrad.errors._by_status.values()}
    every = set(tersegrad._library.Status)
    assert {status.name for status in every - have} == {"OK", "STATUS_COUNT", "BUFFER_TOO_SMALL"}
    with pytest.raises(tersegrad.Error) as caught:
        tersegrad.errors.check(tersegrad._library.Status.BUFFER_TOO_SMALL)
    assert caught.value.status == tersegrad._library.Status.BUFFER_TOO_SMALL


def test_threads_encode_side_by_side() -> None:
    array = vector(0, 20000)
    expected = tersegrad.encode(array, "qsgd", seed=1)
    results: "list[bool]" = []

    def work() -> None:
        results.append(all(tersegrad.encode(array, "qsgd", seed=1) == expected for _ in range(20)))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 4


def test_devices_agree() -> None:
    array = vector(0, 5000)
    frames = {tersegrad.Encoder("qsgd", 5000, device=tersegrad.Device(name)).encode(array) for name in tersegrad.devices()}
    assert len(frames) == 1
    with pytest.raises(tersegrad.UnknownDevice):
        tersegrad.Device("abacus")


def test_numpy_is_all_that_is_imported() -> None:
    program = "import sys, tersegrad; sys.exit('torch' in sys.modules)"
    path = str(codec_module.__file__).rsplit("/", 2)[0]
    subprocess.run([sys.executable, "-c", program], check=True, env={"PYTHONPATH": path})


def test_examples_in_the_docstrings() -> None:
    for module in (spec_module, codec_module):
        result = doctest.testmod(module)
        assert result.attempted and not result.failed


def test_handles_may_be_freed_in_any_order() -> None:
    """At the end of the interpreter, and in cycles, finalisers run in any order."""
    for holders in itertools.permutations(range(3)):
        device = tersegrad.Device("cpu")
        things = [device, tersegrad.Encoder("topk:k=3", 100, device=device)]
        things.append(tersegrad.Feedback("ef", "topk:k=3", 100, device=device))
        for index in holders:
            things[index].__del__()
            things[index]._handle = None  # type: ignore[assignment]
