# SPDX-License-Identifier: Apache-2.0
"""The ctypes declarations are those of the header: a probe that is compiled against it says what it holds."""

import ctypes
import enum
import os
import re
import subprocess
from pathlib import Path

import pytest

from tersegrad import _library

HEADER = Path(__file__).resolve().parents[2] / "include" / "tersegrad.h"
ENUMS = {
    "tg_status": _library.Status,
    "tg_dtype": _library.Dtype,
    "tg_nonfinite": _library.Nonfinite,
    "tg_feedback_kind": _library.FeedbackKind,
    "tg_feedback_part": _library.FeedbackPart,
    "tg_exchange_kind": _library.ExchangeKind,
    "tg_algorithm": _library.Algorithm,
    "tg_bypass": _library.Bypass,
    "tg_exchange_role": _library.ExchangeRole,
    "tg_nonfinite_step": _library.NonfiniteStep,
}
CONSTANTS = ["TG_MAX_COUNT", "TG_SPEC_TEXT", "TG_MAX_PARAMETERS", "TG_MAX_NARROW_FRAMES", "TG_VERIFIED", "TG_ON_DEVICE"]
CONSTANTS += ["TG_NO_MESSAGE", "TG_UNKNOWN_SIZE"]
STRUCTS = {
    name: kind
    for name, kind in vars(_library).items()
    if isinstance(kind, type) and issubclass(kind, ctypes.Structure) and hasattr(kind, "_fields_")
}


def header() -> str:
    text = HEADER.read_text()
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL)
    return re.sub(r"^#.*$", "", text, flags=re.MULTILINE)


def enums_of_header() -> "dict[str, list[str]]":
    return {
        name: re.findall(r"\b(TG_\w+)", body)
        for body, name in re.findall(r"typedef enum \w+ \{(.*?)\} (\w+);", header(), flags=re.DOTALL)
    }


def structs_of_header() -> "dict[str, list[str]]":
    """Names of structs with a body, and of their fields in order."""
    result = {}
    for body, name in re.findall(r"typedef struct \w+ \{(.*?)\} (\w+);", header(), flags=re.DOTALL):
        fields = []
        for line in body.split(";"):
            fields += re.findall(r"(\w+)\s*(?:\[\w+\])?\s*(?=,|$)", line.strip())
        result[name] = fields
    return result


def probe(tmp_path: Path, lines: "list[str]") -> "dict[str, int]":
    source, program = tmp_path / "probe.c", tmp_path / "probe"
    body = "\n".join(f'    printf("%s %llu\\n", "{line}", (unsigned long long)({line}));' for line in lines)
    text = f"#include <stddef.h>\n#include <stdio.h>\n#include <tersegrad.h>\nint main(void) {{\n{body}\n    return 0;\n}}\n"
    source.write_text(text)
    compiler = os.environ.get("CC", "gcc").split()
    subprocess.run([*compiler, f"-I{HEADER.parent}", "-o", program, source], check=True)
    output = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    return {key: int(value) for key, value in (line.rsplit(" ", 1) for line in output.splitlines())}


def test_structs_have_the_sizes_and_offsets_of_the_header(tmp_path: Path) -> None:
    assert set(structs_of_header()) == set(STRUCTS)
    expected = {}
    for name, kind in STRUCTS.items():
        expected[f"sizeof({name})"] = ctypes.sizeof(kind)
        for field in kind._fields_:
            expected[f"offsetof({name}, {field[0]})"] = getattr(kind, field[0]).offset
            expected[f"sizeof((({name} *)0)->{field[0]})"] = getattr(kind, field[0]).size
    assert probe(tmp_path, list(expected)) == expected


def test_structs_have_the_fields_of_the_header_in_their_order() -> None:
    assert {name: [field[0] for field in kind._fields_] for name, kind in STRUCTS.items()} == structs_of_header()


def test_constants_have_the_values_of_the_header(tmp_path: Path) -> None:
    in_header = enums_of_header()
    assert set(in_header) == set(ENUMS)
    expected = {name: getattr(_library, name) for name in CONSTANTS}
    for name, kind in ENUMS.items():
        members = {f"TG_{member.name}": int(member) for member in kind}
        assert list(members) == in_header[name]
        expected.update(members)
    assert probe(tmp_path, list(expected)) == expected


def normal(text: str) -> str:
    """A C type with everything taken out that ctypes does not tell apart."""
    text = re.sub(r"\bconst\b", "", text)
    text = re.sub(r"\b(size_t|uint64_t)\b", "u64", text)
    text = re.sub(r"\b(uint32_t|unsigned)\b", "u32", text)
    text = re.sub(r"\bchar\s*\*", "void*", text)
    for name in ENUMS:
        text = re.sub(rf"\b{name}\b", "int", text)
    return re.sub(r"\s+", "", text)


def written(kind: object) -> str:
    """A ctypes type as C, in the same normal form."""
    simple = {
        None: "void",
        ctypes.c_char_p: "void*",
        ctypes.c_void_p: "void*",
        ctypes.c_size_t: "u64",
        ctypes.c_uint64: "u64",
        ctypes.c_uint32: "u32",
        ctypes.c_int: "int",
        ctypes.c_bool: "bool",
        ctypes.c_float: "float",
        ctypes.c_double: "double",
    }
    if kind in simple:
        return simple[kind]  # type: ignore[index]
    if isinstance(kind, type) and issubclass(kind, ctypes.Structure):
        return kind.__name__
    return written(kind._type_) + "*"  # type: ignore[attr-defined]


def signatures_of_header() -> "dict[str, tuple[str, list[str]]]":
    result = {}
    pattern = r"TG_API\s+(?:TG_MUST_CHECK\s+)?([\w\s]+?[\s*]+)(tg_\w+)\(([^)]*)\)\s*;"
    for returned, name, arguments in re.findall(pattern, header()):
        parts = [] if arguments.strip() == "void" else arguments.split(",")
        result[name] = (normal(returned), [normal(re.sub(r"\w+\s*$", "", part.strip())) for part in parts])
    return result


def test_signatures_are_those_of_the_header() -> None:
    declared = {
        name: (written(result), [written(argument) for argument in arguments])
        for name, (result, arguments) in _library.FUNCTIONS.items()
    }
    assert declared == signatures_of_header()


def test_each_function_is_declared_once() -> None:
    """Of two declarations in a dict, the second would win without a word."""
    names = re.findall(r'^    "(tg_\w+)": ', Path(_library.__file__).read_text(), re.MULTILINE)
    assert len(names) == len(_library.FUNCTIONS) and len(set(names)) == len(names)


def test_the_comparison_can_fail(tmp_path: Path) -> None:
    assert probe(tmp_path, ["sizeof(tg_spec)"]) != {"sizeof(tg_spec)": 11}
    assert normal("const tg_tensor *") != written(ctypes.POINTER(_library.tg_spec))
    assert len(signatures_of_header()) > 50
    assert all(issubclass(kind, enum.IntEnum) for kind in ENUMS.values())


def test_a_missing_library_is_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(_library, "_here", tmp_path / "python" / "tersegrad")
    with pytest.raises(ImportError, match="run 'make' in the clone"):
        _library.find()


def test_a_library_of_another_version_is_one_sentence() -> None:
    with pytest.raises(ImportError, match="another version"):
        _library._open(Path("libc.so.6"))
