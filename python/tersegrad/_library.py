# SPDX-License-Identifier: Apache-2.0
"""The C library through ctypes: the only module that knows its binary interface.

Names are those of include/tersegrad.h. tests/test_library.py compiles a probe against that header and compares every
struct, constant and signature here with it.
"""

from __future__ import annotations

import ctypes
import enum
from ctypes import (
    CDLL,
    POINTER,
    Structure,
    c_bool,
    c_char,
    c_char_p,
    c_double,
    c_float,
    c_int,
    c_size_t,
    c_uint,
    c_uint8,
    c_uint16,
    c_uint32,
    c_uint64,
    c_void_p,
)
from pathlib import Path
from typing import Any

# ---- Constants -------------------------------------------------------------------------------------------------------

TG_MAX_COUNT = 0xFFFFFFFF
TG_SPEC_TEXT = 192
TG_MAX_PARAMETERS = 8
TG_MAX_NARROW_FRAMES = 16
TG_VERIFIED = 1
TG_ON_DEVICE = 2
TG_NO_MESSAGE = ctypes.c_size_t(-1).value
TG_UNKNOWN_SIZE = TG_NO_MESSAGE - 1


class Status(enum.IntEnum):
    """tg_status: what became of a call."""

    OK = 0
    INVALID_ARGUMENT = 1
    INVALID_SPEC = 2
    UNKNOWN_CODEC = 3
    UNKNOWN_DEVICE = 4
    UNKNOWN_VERSION = 5
    OUT_OF_MEMORY = 6
    BUFFER_TOO_SMALL = 7
    SHAPE_MISMATCH = 8
    NOT_A_FRAME = 9
    TRUNCATED = 10
    CHECKSUM_MISMATCH = 11
    CORRUPT = 12
    NONFINITE = 13
    UNSTABLE = 14
    UNAVAILABLE = 15
    EXCHANGE = 16
    SKIPPED = 17
    LAYOUT_MISMATCH = 18
    BAD_RESIDUAL = 19
    TRAILING_BYTES = 20
    STATUS_COUNT = 21


class Dtype(enum.IntEnum):
    """tg_dtype."""

    FLOAT32 = 0
    FLOAT16 = 1
    BFLOAT16 = 2


class Nonfinite(enum.IntEnum):
    """tg_nonfinite: what an encoder does about infinities and NaN."""

    NONFINITE_REJECT = 0
    NONFINITE_ZERO = 1
    NONFINITE_TRUST = 2


class FeedbackKind(enum.IntEnum):
    """tg_feedback_kind."""

    FEEDBACK_NONE = 0
    FEEDBACK_EF = 1
    FEEDBACK_ECQ = 2
    FEEDBACK_DGC = 3


class FeedbackPart(enum.IntEnum):
    """tg_feedback_part."""

    RESIDUAL = 0
    MOMENTUM = 1


class ExchangeKind(enum.IntEnum):
    """tg_exchange_kind."""

    ALL_GATHER = 0
    ALL_TO_ALL = 1
    ALL_MINIMUM = 2


class Bypass(enum.IntEnum):
    """tg_bypass."""

    BYPASS_OFF = 0
    BYPASS_AUTO = 1
    BYPASS_REPLAY = 2


class Algorithm(enum.IntEnum):
    """tg_algorithm."""

    AUTO = 0
    GATHER = 1
    SHARD = 2
    SCATTER = 3


class ExchangeRole(enum.IntEnum):
    """tg_exchange_role."""

    ROLE_GRADIENTS = 1
    ROLE_PARTS = 2
    ROLE_RESULTS = 3
    ROLE_VERDICT = 4
    ROLE_RAW = 5
    ROLE_SPREAD = 6


class NonfiniteStep(enum.IntEnum):
    """tg_nonfinite_step: what a reducer does about infinities and NaN."""

    NONFINITE_STOP = 0
    NONFINITE_SKIP = 16
    NONFINITE_DROP = 17


# ---- Structs ---------------------------------------------------------------------------------------------------------


class tg_error(Structure):
    _fields_ = [("message", c_char * 256)]


class tg_tensor(Structure):
    _fields_ = [("data", c_void_p), ("count", c_uint64), ("dtype", c_int)]


class tg_spec(Structure):
    _fields_ = [
        ("codec", c_uint8),
        ("choices", c_uint8),
        ("levels", c_uint16),
        ("bucket", c_uint32),
        ("amount", c_uint32),
    ]


class tg_parameter_info(Structure):
    _fields_ = [("name", c_char_p), ("range", c_char_p), ("standard", c_char * 24), ("summary", c_char_p)]


class tg_codec_info(Structure):
    _fields_ = [
        ("id", c_uint8),
        ("sparse", c_bool),
        ("unbiased", c_bool),
        ("wants_feedback", c_bool),
        ("name", c_char_p),
        ("summary", c_char_p),
        ("parameter_count", c_size_t),
        ("parameters", tg_parameter_info * TG_MAX_PARAMETERS),
    ]


class tg_draw(Structure):
    _fields_ = [("seed", c_uint64), ("step", c_uint64), ("tensor", c_uint32), ("rank", c_uint32)]


class tg_encode_options(Structure):
    _fields_ = [("draw", tg_draw), ("nonfinite", c_int), ("no_checksum", c_bool), ("on_device", c_bool)]


class tg_encode_report(Structure):
    _fields_ = [
        ("status", c_int),
        ("bytes", c_size_t),
        ("selected", c_uint64),
        ("saturated", c_uint64),
        ("dropped", c_uint64),
    ]


class tg_frame(Structure):
    _fields_ = [("data", c_void_p), ("size", c_size_t)]


class tg_frame_info(Structure):
    _fields_ = [
        ("spec", tg_spec),
        ("dtype", c_int),
        ("count", c_uint64),
        ("bytes", c_uint64),
        ("draw", tg_draw),
        ("version", c_uint),
        ("layout", c_uint),
        ("has_checksum", c_bool),
    ]


class tg_frame_parts(Structure):
    _fields_ = [
        ("selected", c_uint64),
        ("scale_bytes", c_uint64),
        ("index_bytes", c_uint64),
        ("value_bytes", c_uint64),
        ("level_entropy", c_double),
    ]


class tg_feedback_spec(Structure):
    _fields_ = [("kind", c_int), ("alpha", c_float), ("beta", c_float), ("momentum", c_float), ("clip", c_float)]


class tg_stats(Structure):
    _fields_ = [
        ("steps", c_uint64),
        ("bytes", c_uint64),
        ("saturated", c_uint64),
        ("dropped", c_uint64),
        ("gradient_norm", c_double),
        ("residual_norm", c_double),
        ("residual_peak", c_double),
        ("residual_growth", c_double),
    ]


class tg_stability(Structure):
    _fields_ = [("gamma", c_double), ("lambda", c_double), ("binding", c_bool)]


class tg_link(Structure):
    _fields_ = [
        ("bits_per_second", c_double),
        ("latency_seconds", c_double),
        ("host_of_rank", POINTER(c_uint32)),
    ]


class tg_exchange(Structure):
    _fields_ = [
        ("kind", c_int),
        ("world", c_uint32),
        ("send", POINTER(c_void_p)),
        ("send_size", POINTER(c_size_t)),
        ("receive", POINTER(c_void_p)),
        ("capacity", POINTER(c_size_t)),
        ("received", POINTER(c_size_t)),
        ("on_device", c_bool),
    ]


class tg_reducer_tensor(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("count", c_uint64),
        ("dtype", c_int),
        ("codec", tg_spec),
        ("feedback", tg_feedback_spec),
        ("insist", c_bool),
        ("boundaries", POINTER(c_uint64)),
    ]


class tg_density_change(Structure):
    _fields_ = [("from_step", c_uint64), ("density", c_double)]


class tg_reducer_options(Structure):
    _fields_ = [
        ("algorithm", c_int),
        ("nonfinite", c_int),
        ("seed", c_uint64),
        ("min_size", c_uint64),
        ("warmup", c_uint64),
        ("schedule", POINTER(tg_density_change)),
        ("schedule_count", c_size_t),
        ("depth", c_uint32),
        ("batch_elements", c_uint64),
        ("timeout", c_double),
        ("host_of_rank", POINTER(c_uint32)),
        ("bypass", c_int),
        ("bypass_changes", POINTER(c_uint64)),
        ("bypass_change_count", c_size_t),
        ("on_device", c_bool),
        ("minimum", c_bool),
    ]


class tg_state(Structure):
    _fields_ = [("data", c_void_p), ("size", c_size_t)]


class tg_described_exchange(Structure):
    _fields_ = [
        ("role", c_int),
        ("kind", c_int),
        ("first_tensor", c_size_t),
        ("tensor_count", c_size_t),
        ("after", c_size_t),
        ("peers", c_uint32),
        ("bytes_sent", c_uint64),
        ("bytes_received", c_uint64),
        ("largest_sent", c_uint64),
        ("largest_received", c_uint64),
        ("summed", c_uint64),
        ("encoded", c_uint64),
        ("checked", c_uint64),
        ("frames", c_uint64),
    ]


class tg_description_info(Structure):
    _fields_ = [
        ("algorithm", c_int),
        ("exchange_count", c_size_t),
        ("applied", c_uint64),
        ("estimated", c_bool),
    ]


class tg_reducer_stats(Structure):
    _fields_ = [
        ("algorithm", c_int),
        ("applied", c_uint64),
        ("skipped", c_uint64),
        ("bytes_sent", c_uint64),
        ("bytes_received", c_uint64),
        ("frame_bytes", c_uint64),
        ("float32_bytes", c_uint64),
        ("ring_bytes", c_uint64),
        ("ratio", c_double),
        ("dense_parts", c_uint64),
        ("saturated", c_uint64),
        ("dropped", c_uint64),
        ("residual_norm", c_double),
        ("residual_growth", c_double),
        ("encode_seconds", c_double),
        ("exchange_seconds", c_double),
        ("verify_seconds", c_double),
        ("decode_seconds", c_double),
        ("selected", c_uint64),
    ]


# Handles: structs that only the library knows.
class tg_device(Structure):
    pass


class tg_codec(Structure):
    pass


class tg_feedback(Structure):
    pass


class tg_transport(Structure):
    pass


class tg_reducer(Structure):
    pass


class tg_reduction(Structure):
    pass


class tg_description(Structure):
    pass


class tg_encode_call(Structure):
    _fields_ = [
        ("codec", POINTER(tg_codec)),
        ("feedback", POINTER(tg_feedback)),
        ("gradient", tg_tensor),
        ("options", tg_encode_options),
        ("step", POINTER(c_uint64)),
        ("frame", c_void_p),
        ("capacity", c_size_t),
        ("report", POINTER(tg_encode_report)),
    ]


class tg_decode_call(Structure):
    _fields_ = [
        ("frames", POINTER(tg_frame)),
        ("frame_count", c_size_t),
        ("like", POINTER(tg_frame_info)),
        ("weight", c_float),
        ("verified", c_bool),
        ("out", tg_tensor),
        ("status", POINTER(c_int)),
    ]


# ---- Functions: what they return, what they take ---------------------------------------------------------------------

_device, _codec, _feedback = POINTER(tg_device), POINTER(tg_codec), POINTER(tg_feedback)
_transport, _reducer, _reduction = POINTER(tg_transport), POINTER(tg_reducer), POINTER(tg_reduction)
_description = POINTER(tg_description)
_error, _tensor, _spec = POINTER(tg_error), POINTER(tg_tensor), POINTER(tg_spec)
_frames, _exchange = POINTER(tg_frame), POINTER(tg_exchange)

FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "tg_version": (c_char_p, []),
    "tg_status_text": (c_char_p, [c_int]),
    "tg_dtype_size": (c_size_t, [c_int]),
    "tg_spec_parse": (c_int, [c_char_p, _spec, _error]),
    "tg_spec_print": (c_int, [_spec, c_char_p, c_size_t, _error]),
    "tg_spec_selected": (c_uint64, [_spec, c_uint64]),
    "tg_codec_list": (c_int, [c_size_t, POINTER(tg_codec_info)]),
    "tg_device_open": (c_int, [c_char_p, c_void_p, POINTER(_device), _error]),
    "tg_device_free": (None, [_device]),
    "tg_device_name": (c_char_p, [_device]),
    "tg_device_list": (c_char_p, [c_size_t]),
    "tg_device_allocate": (c_int, [_device, c_size_t, POINTER(c_void_p), _error]),
    "tg_device_release": (None, [_device, c_void_p]),
    "tg_device_reserve": (c_int, [_device, _spec, c_uint64, c_size_t, _error]),
    "tg_device_allocate_shared": (c_int, [_device, c_size_t, POINTER(c_void_p), _error]),
    "tg_device_release_shared": (None, [_device, c_void_p]),
    "tg_device_copy_in": (c_int, [_device, c_void_p, c_void_p, c_size_t, _error]),
    "tg_device_copy": (c_int, [_device, c_void_p, c_void_p, c_size_t, _error]),
    "tg_device_copy_out": (c_int, [_device, c_void_p, c_void_p, c_size_t, _error]),
    "tg_device_wait": (c_int, [_device, _error]),
    "tg_codec_create": (c_int, [_device, _spec, c_uint64, POINTER(_codec), _error]),
    "tg_codec_free": (None, [_codec]),
    "tg_codec_spec": (_spec, [_codec]),
    "tg_frame_bound": (c_size_t, [_codec, c_uint64]),
    "tg_encode": (
        c_int,
        [_codec, _tensor, POINTER(tg_encode_options), c_void_p, c_size_t, POINTER(tg_encode_report), _error],
    ),
    "tg_layout_text": (c_char_p, [c_uint]),
    "tg_frame_read": (c_int, [tg_frame, POINTER(tg_frame_info), _error]),
    "tg_frame_verify": (c_int, [_device, tg_frame, POINTER(tg_frame_info), _error]),
    "tg_frame_measure": (c_int, [_device, tg_frame, POINTER(tg_frame_parts), _error]),
    "tg_decode": (c_int, [_device, _frames, c_size_t, c_float, c_uint, _tensor, _error]),
    "tg_decode_add": (c_int, [_device, _frames, c_size_t, c_float, c_uint, _tensor, _error]),
    "tg_feedback_parse": (c_int, [c_char_p, POINTER(tg_feedback_spec), _error]),
    "tg_feedback_print": (c_int, [POINTER(tg_feedback_spec), c_char_p, c_size_t, _error]),
    "tg_feedback_create": (
        c_int,
        [_device, POINTER(tg_feedback_spec), _spec, c_uint64, c_bool, POINTER(_feedback), _error],
    ),
    "tg_feedback_free": (None, [_feedback]),
    "tg_feedback_read": (c_int, [_feedback, c_int, c_uint64, c_uint64, POINTER(c_float), _error]),
    "tg_feedback_write": (c_int, [_feedback, c_int, c_uint64, c_uint64, POINTER(c_float), _error]),
    "tg_encode_with_feedback": (
        c_int,
        [_codec, _feedback, _tensor, POINTER(tg_encode_options), c_void_p, c_size_t, POINTER(tg_encode_report), _error],
    ),
    "tg_encode_later": (c_int, [POINTER(tg_encode_call), c_size_t, _error]),
    "tg_decode_add_later": (c_int, [_device, POINTER(tg_decode_call), c_size_t, _error]),
    "tg_feedback_compensate": (c_int, [_feedback, _tensor, _tensor, _error]),
    "tg_feedback_update": (c_int, [_feedback, _tensor, tg_frame, _error]),
    "tg_feedback_return": (c_int, [_feedback, tg_frame, POINTER(c_uint32), c_size_t, _error]),
    "tg_feedback_reset": (None, [_feedback]),
    "tg_feedback_stats": (c_int, [_feedback, POINTER(tg_stats), _error]),
    "tg_stability_of": (c_int, [_spec, POINTER(tg_feedback_spec), c_uint64, POINTER(tg_stability), _error]),
    "tg_transport_local": (c_int, [c_uint32, POINTER(_transport), _error]),
    "tg_transport_local_link": (c_int, [c_uint32, POINTER(tg_link), POINTER(_transport), _error]),
    "tg_transport_mpi": (c_int, [c_char_p, POINTER(_transport), _error]),
    "tg_transport_mpi_on": (c_int, [c_char_p, c_void_p, POINTER(_transport), _error]),
    "tg_transport_name": (c_char_p, [_transport]),
    "tg_transport_rank": (c_uint32, [_transport]),
    "tg_transport_nccl": (c_int, [c_char_p, _transport, c_void_p, c_double, POINTER(_transport), _error]),
    "tg_transport_world": (c_uint32, [_transport]),
    "tg_transport_on_device": (c_bool, [_transport]),
    "tg_transport_abort": (None, [_transport, c_int]),
    "tg_transport_free": (None, [_transport]),
    "tg_transport_start": (c_int, [_transport, _exchange, _error]),
    "tg_transport_wait": (c_int, [_transport, _exchange, c_double, _error]),
    "tg_reducer_create": (
        c_int,
        [
            _device,
            c_uint32,
            c_uint32,
            POINTER(tg_reducer_tensor),
            c_size_t,
            POINTER(tg_reducer_options),
            POINTER(_reducer),
            _error,
        ],
    ),
    "tg_reducer_share_memory": (c_int, [_reducer, _transport, POINTER(c_bool), _error]),
    "tg_reducer_gradient_memory": (POINTER(c_float), [_reducer, c_size_t]),
    "tg_reducer_free": (None, [_reducer]),
    "tg_description_create": (
        c_int,
        [
            c_uint32,
            POINTER(tg_reducer_tensor),
            c_size_t,
            POINTER(tg_reducer_options),
            POINTER(_description),
            _error,
        ],
    ),
    "tg_description_free": (None, [_description]),
    "tg_description_of": (c_int, [_description, POINTER(tg_description_info), _error]),
    "tg_description_exchange": (
        c_int,
        [_description, c_uint32, c_size_t, POINTER(tg_described_exchange), _error],
    ),
    "tg_algorithm_text": (c_char_p, [c_int]),
    "tg_reduce": (c_int, [_reducer, _transport, _tensor, c_uint64, _error]),
    "tg_reduce_start": (c_int, [_reducer, _transport, _tensor, c_uint64, POINTER(_reduction), _error]),
    "tg_reduce_finish": (c_int, [_reduction, _transport, _error]),
    "tg_reduce_begin": (c_int, [_reducer, _tensor, c_uint64, POINTER(_reduction), _error]),
    "tg_reduce_next": (c_int, [_reduction, POINTER(_exchange), _error]),
    "tg_reduce_feed": (c_int, [_reduction, _exchange, _error]),
    "tg_reduce_end": (c_int, [_reduction, _error]),
    "tg_reduce_abandon": (None, [_reduction]),
    "tg_reduce_ready": (c_int, [_reduction, c_size_t, _tensor, _error]),
    "tg_reduce_absent": (c_int, [_reduction, c_size_t, _tensor, _error]),
    "tg_reduce_present": (c_int, [_reduction, c_size_t, POINTER(c_bool), _error]),
    "tg_reducer_save": (c_int, [_reducer, c_void_p, c_size_t, POINTER(c_size_t), _error]),
    "tg_reducer_load": (c_int, [_reducer, POINTER(tg_state), c_size_t, _error]),
    "tg_reducer_scale": (c_int, [_reducer, c_float, _error]),
    "tg_reducer_bypass_log": (c_int, [_reducer, POINTER(c_uint64), c_size_t, POINTER(c_size_t), _error]),
    "tg_reducer_tensor_stats": (c_int, [_reducer, c_size_t, POINTER(tg_stats), _error]),
    "tg_reducer_residual_read": (c_int, [_reducer, c_size_t, POINTER(c_float), c_uint64, _error]),
    "tg_reducer_stats_of": (c_int, [_reducer, POINTER(tg_reducer_stats), _error]),
}

# ---- Finding and opening it ------------------------------------------------------------------------------------------

_here = Path(__file__).resolve().parent


def find() -> Path:
    """The library in the wheel; in a clone that is not installed, the one that `make` built."""
    places = [_here / "libtersegrad.so", _here.parent.parent / "build" / "libtersegrad.so"]
    for place in places:
        if place.exists():
            return place
    raise ImportError(
        f"libtersegrad.so is neither in {places[0].parent} nor in {places[1].parent}: "
        "run 'make' in the clone, or 'pip install .'"
    )


def _open(path: Path) -> CDLL:
    # CDLL lets go of the interpreter lock for the length of every call.
    library = CDLL(str(path))
    for name, (result, arguments) in FUNCTIONS.items():
        try:
            function = getattr(library, name)
        except AttributeError:
            raise ImportError(f"{path} has no {name}: it is of another version than this package") from None
        function.restype = result
        function.argtypes = arguments
    return library


lib: Any = _open(find())

_memory_view = ctypes.pythonapi.PyMemoryView_FromMemory
_memory_view.restype = ctypes.py_object
_memory_view.argtypes = [c_void_p, ctypes.c_ssize_t, c_int]


def view(address: int, size: int) -> memoryview:
    """`size` writable bytes at an address; the caller keeps their owner alive."""
    result: memoryview = _memory_view(address, size, 0x200)  # PyBUF_WRITE
    return result
