# SPDX-License-Identifier: Apache-2.0
"""What users of the numpy API get wrong is named before it reaches C, and nothing is cut off without a word."""

from __future__ import annotations

import copy
import pickle
import threading
from typing import Any, Callable

import numpy as np
import pytest
import tersegrad
from hypothesis import given
from hypothesis import strategies as st
from tersegrad import reducer
from tersegrad._library import Dtype

GOOD = np.arange(8, dtype=np.float32)
FRAME = tersegrad.encode(GOOD, "none")
HANG = 600.0  # seconds: it only ends what hangs
SPEC, LOOP = tersegrad.Spec("none"), tersegrad.FeedbackSpec("none")


def feedback(count: int = 8) -> tersegrad.Feedback:
    return tersegrad.Feedback("ef", "none", count)


def reducer_of(count: Any = 8, **options: Any) -> reducer.Reducer:
    return reducer.Reducer(0, 1, [reducer.TensorSpec("w", count, Dtype.FLOAT32, SPEC, LOOP)], **options)


# ---- Handles ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps], ids=["copy", "deepcopy", "pickle"])
@pytest.mark.parametrize(
    "make, instead",
    [
        (feedback, "its residual"),
        (lambda: tersegrad.Encoder("none", 8), r"Encoder\(spec, max_count\)"),
        (tersegrad.Device, r"Device\(name\)"),
        (reducer_of, "save"),
        (lambda: reducer_of().begin(0), "begin"),
    ],
    ids=["Feedback", "Encoder", "Device", "Reducer", "Reduction"],
)
def test_handles_are_not_copied(make: Callable[[], Any], instead: str, copied: Callable[[Any], Any]) -> None:
    """Two owners would free the same memory."""
    one = make()
    with pytest.raises(TypeError, match=f"a {type(one).__name__} cannot be copied or pickled: .*{instead}"):
        copied(one)


def test_threads_that_share_a_handle_take_turns() -> None:
    """Two calls at once on one handle hang, or give frames of each other's values."""
    spec, count = "topk:density=0.01", 500_000
    encoder, kept = tersegrad.Encoder(spec, count), tersegrad.Feedback("ef", spec, count)
    values = [np.random.default_rng(seed).standard_normal(count, dtype=np.float32) for seed in range(4)]
    expected = [encoder.encode(one) for one in values]
    wrong: list[object] = []

    def work(mine: int) -> None:
        try:
            for _ in range(10):
                if encoder.encode(values[mine]) != expected[mine]:
                    wrong.append(mine)
                tersegrad.verify(encoder.encode(values[mine], feedback=kept))
                if not np.isfinite(kept.residual).all():
                    wrong.append("residual")
        except Exception as problem:
            wrong.append(problem)

    threads = [threading.Thread(target=work, args=(mine,), daemon=True) for mine in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANG)
    assert not any(thread.is_alive() for thread in threads) and not wrong
    assert kept.stats()["steps"] == 40


# ---- Numbers ---------------------------------------------------------------------------------------------------------

COUNTS: dict[str, Callable[[Any], Any]] = {
    "Feedback": lambda n: feedback(n),
    "Encoder": lambda n: tersegrad.Encoder("none", n),
    "bound": lambda n: tersegrad.Encoder("none", 8).bound(n),
    "selected": lambda n: tersegrad.Spec("topk:density=0.1").selected(n),
    "stability": lambda n: tersegrad.stability("qsgd", "ef", n),
    "Reducer": lambda n: reducer_of(n),
}


@pytest.mark.parametrize("name", COUNTS)
def test_counts_are_not_cut_off(name: str) -> None:
    for bad in (-1, 2**32, 2**64 + 5, -(2**64) + 5):
        with pytest.raises(ValueError, match=rf"count.* is {bad}: it must be 0 \.\.\. 4294967295"):
            COUNTS[name](bad)
    for wrong in (1.5, "5", None, np.float32(5)):
        with pytest.raises(TypeError, match="count.* must be a whole number, not"):
            COUNTS[name](wrong)
    COUNTS[name](np.int64(5))


@given(st.integers() | st.floats() | st.text(max_size=3) | st.none() | st.binary(max_size=2))
def test_any_count_is_taken_as_it_is_or_refused(value: Any) -> None:
    if isinstance(value, int) and 0 <= value <= 10_000:
        assert tersegrad.Encoder("none", value).max_count == feedback(value).count == value
        return
    for name, make in COUNTS.items():
        if not (isinstance(value, int) and 0 <= value < 2**32):
            with pytest.raises((TypeError, ValueError), match="count"):
                make(value)


def test_random_numbers_have_whole_keys() -> None:
    for name in ("seed", "step", "tensor", "rank"):
        for wrong in (None, "1", 1.5):
            with pytest.raises(TypeError, match=f"{name} must be a whole number, not {type(wrong).__name__}"):
                tersegrad.encode(GOOD, "none", **{name: wrong})
        with pytest.raises(ValueError, match=f"{name} is {2**64}"):
            tersegrad.encode(GOOD, "none", **{name: 2**64})
    assert tersegrad.encode(GOOD, "none", seed=np.uint64(3)) == tersegrad.encode(GOOD, "none", seed=3)


def test_numbers_of_a_reducer_are_not_cut_off() -> None:
    for name in ("seed", "warmup", "batch_elements"):
        with pytest.raises(ValueError, match=f"{name} is -1"):
            reducer_of(**{name: -1})
        with pytest.raises(TypeError, match=f"{name} must be a whole number"):
            reducer_of(**{name: None})
    with pytest.raises(ValueError, match=r"step is 18446744073709551621"):
        reducer_of().begin(2**64 + 5)
    with pytest.raises(ValueError, match=r"world is 4294967297"):
        reducer.Reducer(0, 2**32 + 1, [])
    with pytest.raises(ValueError, match="host"):
        reducer_of(hosts=[-1])
    with pytest.raises(ValueError, match="boundar"):
        ends = (0, 2**64 + 8)
        reducer.Reducer(0, 1, [reducer.TensorSpec("w", 8, Dtype.FLOAT32, SPEC, LOOP, False, ends)], algorithm="scatter")


def test_weights_are_numbers() -> None:
    add = tersegrad.decode_add
    for call in (lambda w: tersegrad.decode(FRAME, weight=w), lambda w: add(FRAME, np.zeros(8, np.float32), weight=w)):
        for wrong in ("1", None, 1j):
            with pytest.raises(TypeError, match=f"weight must be a number, not {type(wrong).__name__}"):
                call(wrong)
        for bad in (np.nan, np.inf, 1e300, 10**400):
            with pytest.raises(ValueError, match="weight"):
                call(bad)
        assert np.array_equal(call(np.float64(1)), call(1))


# ---- Text ------------------------------------------------------------------------------------------------------------


def test_text_does_not_end_early() -> None:
    """C's text ends at the first NUL."""
    for make, good in ((tersegrad.Spec, "topk:density=0.1"), (tersegrad.FeedbackSpec, "ef"), (tersegrad.Device, "cpu")):
        for bad in ("\0junk", "\ud800"):
            with pytest.raises(tersegrad.Error, match="junk" if "junk" in bad else "ud800"):
                make(good + bad)
    for wrong in (5, None, b"cpu"):
        with pytest.raises(TypeError, match=f"a device is text such as 'cpu', not {type(wrong).__name__}"):
            tersegrad.Device(wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="stream"):
        tersegrad.Device("cpu", stream="x")  # type: ignore[arg-type]


def test_a_device_is_an_object() -> None:
    name: Any = "cpu"
    encoder, loop = tersegrad.Encoder, tersegrad.Feedback
    for make in (lambda: encoder("none", 5, device=name), lambda: loop("ef", "none", 5, device=name)):
        with pytest.raises(TypeError, match=r"device must be a tersegrad.Device, not str: give Device\('cpu'\)"):
            make()


def test_feedback_as_text_is_explained() -> None:
    for wrong in ("ef", tersegrad.FeedbackSpec("ef")):
        for call in (tersegrad.encode, lambda a, s, **o: tersegrad.Encoder(s, 8).encode(a, **o)):
            with pytest.raises(TypeError, match=r"Feedback\('ef', 'none', 8\)"):
                call(GOOD, "none", feedback=wrong)
    with pytest.raises(TypeError, match="not int"):
        tersegrad.encode(GOOD, "none", feedback=5)  # type: ignore[arg-type]


def test_other_options_are_named() -> None:
    with pytest.raises(ValueError, match="nonfinite is "):
        tersegrad.encode(GOOD, "none", nonfinite=["zero"])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="dtype is "):
        tersegrad.encode(GOOD, "none", dtype=["float32"])  # type: ignore[arg-type]


# ---- Arrays ----------------------------------------------------------------------------------------------------------


def test_arrays_that_are_no_vectors_of_floats() -> None:
    masked = np.ma.array(GOOD, mask=[1] * 8)
    for call in (lambda a: tersegrad.encode(a, "none"), lambda a: tersegrad.inspect(a)):
        with pytest.raises(TypeError, match="mask"):
            call(masked)
    for strange in ("f4,f4", complex, object, "longdouble", bool, "U3", "M8[s]"):
        with pytest.raises(TypeError, match="it must be float32, float16 or bfloat16"):
            tersegrad.encode(np.zeros(3, strange), "none")
    for backwards in (GOOD[::-1], np.asfortranarray(GOOD.reshape(2, 4)), np.broadcast_to(np.float32(1), (4,))):
        with pytest.raises(ValueError, match=r"not contiguous: give numpy.ascontiguousarray\(array\)"):
            tersegrad.encode(backwards, "none")
    with pytest.raises(ValueError, match="out is not contiguous, and would be written to"):
        tersegrad.decode(FRAME, np.zeros(16, np.float32)[::2])
    with pytest.raises(TypeError, match=r"out has the byte order of another machine: give one of dtype float32"):
        tersegrad.decode(FRAME, np.zeros(8, ">f4"))
    for kind in (np.float64, np.int32):
        with pytest.raises(TypeError, match="out has dtype"):
            tersegrad.decode(FRAME, np.zeros(8, kind))
    with pytest.raises(ValueError, match="read-only"):
        tersegrad.decode_add(FRAME, _read_only())
    packed = np.zeros(1, "u1,8f4")["f1"][0]
    with pytest.raises(ValueError, match="aligned"):
        tersegrad.encode(packed, "none")


def _read_only() -> np.ndarray:
    values = np.zeros(8, np.float32)
    values.flags.writeable = False
    return values


def test_small_arrays_of_any_shape() -> None:
    one = np.array(3, np.float32)
    frame = tersegrad.encode(one, "none")
    assert tersegrad.decode(frame).shape == (1,)
    assert tersegrad.decode(frame, np.zeros((), np.float32)) == 3
    for empty in (np.empty(0, np.float32), np.empty((0, 4), np.float16)):
        assert tersegrad.decode(tersegrad.encode(empty, "topk:density=0.1")).size == 0
        assert tersegrad.inspect(empty).count == 0
    assert tersegrad.decode(FRAME, np.zeros((2, 4), np.float32)).shape == (2, 4)
    with pytest.raises(TypeError, match="numpy array, not float32"):
        tersegrad.encode(np.float32(3), "none")  # type: ignore[arg-type]


def test_what_is_inspected_says_what_it_is() -> None:
    with pytest.raises(TypeError, match="say dtype='bfloat16'"):
        tersegrad.inspect(GOOD.astype(np.uint16))
    for kind in (np.uint32, np.int8, np.float64):
        with pytest.raises(TypeError, match=f"dtype {np.dtype(kind).name}: it must be float32, float16 or bfloat16"):
            tersegrad.inspect(GOOD.astype(kind))
    info = tersegrad.inspect(np.frombuffer(FRAME, np.uint8))
    assert isinstance(info, tersegrad.FrameInfo) and info.count == 8
    strided = tersegrad.inspect(GOOD[::2])  # it only reads
    assert isinstance(strided, tersegrad.ArrayInfo) and strided.count == 4


def test_dtype_is_of_an_array_that_is_given() -> None:
    for kind in ("float16", "bfloat16"):
        with pytest.raises(TypeError, match=f"without out .* cannot hold {kind}"):
            tersegrad.decode(FRAME, dtype=kind)
    with pytest.raises(ValueError, match="dtype is 'nonsense'"):
        tersegrad.decode(FRAME, dtype="nonsense")
    assert tersegrad.decode(FRAME, dtype="float32").dtype == np.float32
    with pytest.raises(TypeError, match="frame"):
        tersegrad.inspect(FRAME, dtype="bfloat16")


# ---- Frames ----------------------------------------------------------------------------------------------------------


def test_frames_may_be_any_bytes() -> None:
    views = [bytearray(FRAME), memoryview(FRAME), memoryview(FRAME).cast("b"), np.frombuffer(FRAME, np.uint8)]
    for view in views:
        assert np.array_equal(tersegrad.decode(view), GOOD)
        tersegrad.verify(view)
    with pytest.raises(TypeError, match="contiguous bytes"):
        tersegrad.decode(memoryview(FRAME + FRAME)[::2])
    strange = [(GOOD, "float32"), (GOOD.astype(np.uint16), "uint16"), (5, "int"), (None, "NoneType"), ({FRAME}, "set")]
    for wrong, words in strange:
        for call in (tersegrad.decode, tersegrad.verify, lambda f: tersegrad.decode([FRAME, f])):
            with pytest.raises(TypeError, match=f"a frame must be contiguous bytes, .*{words}"):
                call(wrong)
    with pytest.raises(TypeError, match="list"):
        tersegrad.decode(iter([FRAME]))  # type: ignore[arg-type]


def test_a_frame_may_not_lie_in_what_is_written() -> None:
    """What was verified could be overwritten before it is used."""
    room = np.zeros(len(FRAME), np.uint8)
    room[:] = np.frombuffer(FRAME, np.uint8)
    out = room.view(np.float32)[:8]
    for call in (tersegrad.decode, tersegrad.decode_add):
        with pytest.raises(tersegrad.InvalidArgument, match="overlap"):
            call(room, out)
    assert room.tobytes() == FRAME


def test_a_gradient_may_not_overlap_its_sum() -> None:
    room = np.zeros(9, np.float32)
    with pytest.raises(tersegrad.InvalidArgument):
        feedback().compensate(room[:8], room[1:])
    feedback().compensate(room[:8], room[:8])  # in place


# ---- Residuals -------------------------------------------------------------------------------------------------------


def test_residuals_take_floats_of_their_shape() -> None:
    one = feedback()
    for wrong in (None, "x", np.ones(8, complex), np.ma.ones(8)):
        with pytest.raises(TypeError, match="values"):
            one.residual = wrong  # type: ignore[assignment]
    for shape in ((2, 4), (7,), ()):
        with pytest.raises(ValueError, match="shape"):
            one.residual = np.zeros(shape, np.float32)
    with np.errstate(all="raise"), pytest.raises(tersegrad.NonFinite):
        one.residual = np.full(8, 1e300)
    for fine in (np.arange(8), np.arange(8.0), np.arange(8, dtype=">f4"), np.repeat(GOOD, 2)[::2], list(range(8))):
        one.residual = fine  # type: ignore[assignment]
        assert np.array_equal(one.residual, GOOD)


def test_applied_indices_are_whole_and_small() -> None:
    for wrong in (np.array([1.5]), "x", np.array([None]), [[1, 2]], [2**70]):
        with pytest.raises((TypeError, ValueError), match="applied"):
            feedback().give_back(FRAME, applied=wrong)  # type: ignore[arg-type]
    for bad in ([-1], [2**32], [2**32 + 1, 3]):
        with pytest.raises(ValueError, match="applied"):
            feedback().give_back(FRAME, applied=bad)  # type: ignore[arg-type]
    for fine in ([], np.empty(0), [1, 2], np.array([1, 2], np.int8), range(3)):
        feedback().give_back(FRAME, applied=fine)  # type: ignore[arg-type]
