"""Typed access to keys: right values, and errors that name the key."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.errors import GGUFFormatError
from engine.gguf.metadata import Metadata, ValueKind
from engine.gguf.reader import open_model
from tests.builders import (
    ARRAY,
    FLOAT64,
    INT8,
    INT16,
    INT64,
    UINT8,
    UINT16,
    UINT64,
    Typed,
    make_gguf,
)

KEYS: dict[str, Any] = {
    "text": "größe 🙂",
    "empty": "",
    "bad text": b"a\xffb",
    "u8": Typed(UINT8, 255),
    "i8": Typed(INT8, -128),
    "u16": Typed(UINT16, 65535),
    "i16": Typed(INT16, -32768),
    "u32": 4_000_000_000,
    "i32": -5,
    "u64": Typed(UINT64, 2**64 - 1),
    "i64": Typed(INT64, -(2**63)),
    "f32": 0.1,
    "f64": Typed(FLOAT64, 0.1),
    "yes": True,
    "no": False,
    "words": ["a", "", "größe"],
    "bad words": [b"\xff", b"ok"],
    "numbers": [3, -1, 2],
    "big": Typed(ARRAY, [2**64 - 1, 2**45 + 1], UINT64),
    "floats": [0.5, -2.0],
    "flags": [True, False, True],
    "nothing": [],
}


@pytest.fixture
def meta(tmp_path: Path) -> Metadata:
    with open_model(make_gguf(tmp_path / "m.gguf", KEYS)) as model:
        return model.metadata


def test_values_of_every_type_after_the_file_is_closed(meta: Metadata) -> None:
    assert list(meta.keys()) == list(KEYS) == list(meta)
    assert len(meta) == len(KEYS)
    assert "text" in meta
    assert "absent" not in meta
    assert meta.get_str("text") == "größe 🙂"
    assert meta.get_str("empty") == ""
    assert meta.get_str("bad text") == "a\ufffdb"
    integers = {"u8": 255, "i8": -128, "u16": 65535, "i16": -32768, "u32": 4_000_000_000}
    integers |= {"i32": -5, "u64": 2**64 - 1, "i64": -(2**63)}
    assert {key: meta.get_int(key) for key in integers} == integers
    assert meta.get_float("f32") == float(np.float32(0.1))
    assert meta.get_float("f64") == 0.1
    assert meta.get_float("i32") == -5.0
    assert meta.get_bool("yes") is True
    assert meta.get_bool("no") is False


def test_arrays(meta: Metadata) -> None:
    assert meta.get_array("words", str) == ["a", "", "größe"]
    assert meta.get_array("words", bytes) == [b"a", b"", "größe".encode()]
    assert meta.get_array("bad words", str) == ["\ufffd", "ok"]
    assert meta.get_array("bad words", bytes) == [b"\xff", b"ok"]
    assert meta.get_array("numbers", int) == [3, -1, 2]
    assert meta.get_array("numbers", float) == [3.0, -1.0, 2.0]
    assert meta.get_array("big", int) == [2**64 - 1, 2**45 + 1], "never through a float"
    assert meta.get_array("floats", float) == [0.5, -2.0]
    assert meta.get_array("flags", bool) == [True, False, True]
    assert meta.get_array("nothing", int) == []
    assert meta.get_array("nothing", str) == []
    assert all(type(item) is int for item in meta.get_array("numbers", int))


def test_an_array_can_be_changed_without_changing_the_metadata(meta: Metadata) -> None:
    meta.get_array("words", bytes).clear()
    meta.get_array("numbers", int).clear()
    assert meta.get_array("words", bytes)
    assert meta.get_array("numbers", int)


def test_defaults_stand_in_for_missing_keys_only(meta: Metadata) -> None:
    assert meta.get_str("absent", "x") == "x"
    assert meta.get_str("absent", None) is None
    assert meta.get_int("absent", 7) == 7
    assert meta.get_int("absent", None) is None
    assert meta.get_float("absent", 1.5) == 1.5
    assert meta.get_bool("absent", False) is False
    assert meta.get_array("absent", str, None) is None
    with pytest.raises(GGUFFormatError, match="'text' should be a whole number"):
        meta.get_int("text", 7)


@pytest.mark.parametrize(
    ("access", "said"),
    [
        (lambda m: m.get_str("absent"), "'absent' is missing"),
        (lambda m: m.get_int("absent"), "'absent' is missing"),
        (lambda m: m.get_float("absent"), "'absent' is missing"),
        (lambda m: m.get_bool("absent"), "'absent' is missing"),
        (lambda m: m.get_array("absent", int), "'absent' is missing"),
        (lambda m: m.value("absent"), "'absent' is missing"),
        (lambda m: m.get_str("u32"), "'u32' should be a string, but is uint32"),
        (lambda m: m.get_int("f32"), "'f32' should be a whole number, but is float32"),
        (lambda m: m.get_int("yes"), "'yes' should be a whole number, but is bool"),
        (lambda m: m.get_int("numbers"), "but is an array of 3 int32"),
        (lambda m: m.get_float("yes"), "'yes' should be a number, but is bool"),
        (lambda m: m.get_float("text"), "'text' should be a number, but is string"),
        (lambda m: m.get_bool("u8"), "'u8' should be a bool, but is uint8"),
        (lambda m: m.get_array("text", str), "'text' should be an array of str, but is string"),
        (lambda m: m.get_array("words", int), "an array of int, but is an array of 3 string"),
        (lambda m: m.get_array("floats", int), "an array of int, but is an array of 2 float32"),
        (lambda m: m.get_array("flags", int), "an array of int, but is an array of 3 bool"),
        (lambda m: m.get_int("i32", minimum=0), "'i32' should be at least 0, but is -5"),
        (lambda m: m.get_int("u64", maximum=9), "'u64' should be at most 9, but is 1844674"),
    ],
)
def test_errors_name_key_wanted_and_had(
    meta: Metadata, access: Callable[[Metadata], object], said: str
) -> None:
    with pytest.raises(GGUFFormatError, match=said) as caught:
        access(meta)
    assert str(caught.value).startswith("m.gguf: ")
    if "missing" not in said:
        assert caught.value.offset_bytes is not None
        assert caught.value.offset_bytes >= 24


def test_per_layer(meta: Metadata) -> None:
    assert meta.get_per_layer("u8", 3) == [255, 255, 255]
    assert meta.get_per_layer("numbers", 3) == [3, -1, 2]
    assert meta.get_per_layer("absent", 2, 4) == [4, 4]
    with pytest.raises(GGUFFormatError, match="'numbers' should be 4 numbers, one a layer"):
        meta.get_per_layer("numbers", 4)
    with pytest.raises(GGUFFormatError, match="'absent' is missing"):
        meta.get_per_layer("absent", 2)


def test_kinds_follow_the_format() -> None:
    assert [kind.value for kind in ValueKind] == list(range(13))
    assert [kind.name for kind in ValueKind if kind.is_integer] == [
        "UINT8", "INT8", "UINT16", "INT16", "UINT32", "INT32", "UINT64", "INT64",
    ]  # fmt: skip
    assert [kind.n_bytes for kind in ValueKind] == [1, 1, 2, 2, 4, 4, 4, 1, None, None, 8, 8, 8]
