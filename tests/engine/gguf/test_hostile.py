"""Headers made to hurt: each ends at once in an error that names the place."""

from __future__ import annotations

import os
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.errors import GGUFFormatError
from engine.gguf.reader import open_model
from tests.builders import (
    ARRAY,
    BOOL,
    STRING,
    UINT8,
    UINT32,
    UINT64,
    encode_key,
    encode_string,
)


def start(n_tensors: int = 0, n_keys: int = 0) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", 3, n_tensors, n_keys)


def tensor_row(
    *,
    name: bytes = b"t",
    dims: tuple[int, ...] = (1,),
    n_dims: int | None = None,
    quant_id: int = 0,
    offset: int = 0,
) -> bytes:
    return (
        encode_string(name)
        + struct.pack("<I", len(dims) if n_dims is None else n_dims)
        + struct.pack(f"<{len(dims)}Q", *dims)
        + struct.pack("<IQ", quant_id, offset)
    )


def array_key(kind: int, n_items: int, items: bytes = b"") -> bytes:
    return encode_string("k") + struct.pack("<IIQ", ARRAY, kind, n_items) + items


PADDING = bytes(256)
HUGE = 1 << 60
HOSTILE: dict[str, tuple[bytes, str]] = {
    "key length 2^48-1": (
        start(n_keys=1) + struct.pack("<Q", (1 << 48) - 1) + PADDING,
        "name of key 0 is 281474976710655 bytes long, the format allows 65535",
    ),
    "kv count 2^60": (start(n_keys=HUGE) + PADDING, "announces 1152921504606846976 keys"),
    "more keys than any model has": (
        start(n_keys=(1 << 16) + 1) + bytes(2_000_000),
        "announces 65537 keys",
    ),
    "tensor count 2^60": (start(n_tensors=HUGE) + PADDING, "announces 1152921504606846976 tensors"),
    "n_dims 1000000": (start(1) + tensor_row(n_dims=1_000_000) + PADDING, "'t' has 1000000 dims"),
    "a dim of 0": (start(1) + tensor_row(dims=(32, 0)) + PADDING, r"dim of 0 \(dims \[32, 0\]\)"),
    "dims whose product wraps 2^64": (
        start(1) + tensor_row(dims=(1 << 32, 1 << 32)) + PADDING,
        "multiply to more than any file can hold",
    ),
    "dims that wrap to the right size": (
        start(1) + tensor_row(dims=((1 << 63) + 1, 2)) + PADDING,
        "multiply to more than any file can hold",
    ),
    "dims larger than the file": (
        start(1) + tensor_row(dims=(1 << 40,)) + PADDING,
        "bytes are missing",
    ),
    "tensor offset past the end": (
        start(1) + tensor_row(offset=1 << 20) + PADDING,
        "past the end of the file",
    ),
    "tensor offset near 2^64": (
        start(1) + tensor_row(offset=(1 << 64) - 32) + PADDING,
        "past the end of the file",
    ),
    "tensor offset off the alignment": (
        start(1) + tensor_row(offset=4) + PADDING,
        "no multiple of the alignment 32",
    ),
    "unknown type past the end": (
        start(1) + tensor_row(quant_id=250, offset=1 << 50) + PADDING,
        "past the end of the file",
    ),
    "row that is no whole number of blocks": (
        start(1) + tensor_row(dims=(33,), quant_id=2) + PADDING,
        "must be a multiple of 32",
    ),
    "string past the end": (
        start(n_keys=1) + encode_string("k") + struct.pack("<IQ", STRING, 1 << 20) + PADDING,
        "value of 'k' needs 1048576 bytes",
    ),
    "string length 2^64-1": (
        start(n_keys=1) + encode_string("k") + struct.pack("<IQ", STRING, (1 << 64) - 1) + PADDING,
        "value of 'k' needs",
    ),
    "string in an array past the end": (
        start(n_keys=1)
        + array_key(STRING, 3, encode_string("a") + struct.pack("<Q", HUGE))
        + PADDING,
        "item 1 of 'k' needs",
    ),
    "array of unknown element type with 2^60 items": (
        start(n_keys=1) + array_key(77, HUGE) + PADDING,
        "item type of 'k' is 77",
    ),
    "array of 2^60 numbers": (start(n_keys=1) + array_key(UINT32, HUGE) + PADDING, "needs"),
    "array of 2^61 u64, whose bytes wrap": (
        start(n_keys=1) + array_key(UINT64, 1 << 61) + PADDING,
        "needs",
    ),
    "array of 2^60 strings": (start(n_keys=1) + array_key(STRING, HUGE) + PADDING, "strings"),
    "array of 2^60 arrays": (start(n_keys=1) + array_key(ARRAY, HUGE) + PADDING, "arrays needs"),
    "array of a million arrays": (
        start(n_keys=1) + array_key(ARRAY, 1_000_000, struct.pack("<IQ", UINT8, 0) * 1_000_000),
        "more than 8192 nested arrays",
    ),
    "array nested 10000 deep": (
        start(n_keys=1) + array_key(ARRAY, 1, struct.pack("<IQ", ARRAY, 1) * 10_000) + PADDING,
        "nested more than 4 deep",
    ),
    "unknown value type": (
        start(n_keys=1) + encode_string("k") + struct.pack("<I", 13) + PADDING,
        "type of 'k' is 13",
    ),
    "bool of 2": (
        start(n_keys=1) + encode_string("k") + struct.pack("<IB", BOOL, 2) + PADDING,
        "bool of 2",
    ),
    "empty key": (start(n_keys=1) + encode_key("", 1) + PADDING, "name of key 0 is empty"),
    "empty tensor name": (start(1) + tensor_row(name=b"") + PADDING, "name of tensor 0 is empty"),
    "key that is no UTF-8": (start(n_keys=1) + encode_key(b"\xff\xfe", 1) + PADDING, "UTF-8"),
    "duplicate key": (
        start(n_keys=2) + encode_key("k", 1) + encode_key("k", 2) + PADDING,
        "'k' is there twice",
    ),
    "duplicate tensor": (
        start(2) + tensor_row() + tensor_row() + PADDING,
        "'t' is there twice",
    ),
    "tensors over one another": (
        start(2) + tensor_row(dims=(9,)) + tensor_row(name=b"u", offset=32) + PADDING,
        "'t' and 'u' lie over one another",
    ),
    "version 0": (b"GGUF" + bytes(64), "version is 0"),
    "empty file": (b"", "empty"),
    "magic only": (b"GGUF", "4 bytes are missing"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_headers(tmp_path: Path, case: str) -> None:
    encoded, said = HOSTILE[case]
    path = tmp_path / "m.gguf"
    path.write_bytes(encoded)
    tracemalloc.start()
    try:
        with pytest.raises(GGUFFormatError, match=said) as caught:
            open_model(path)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert isinstance(caught.value, ValueError)
    assert caught.value.offset_bytes is not None
    assert f"at byte {caught.value.offset_bytes}" in str(caught.value)
    assert 0 <= caught.value.offset_bytes <= len(encoded)
    assert peak_bytes < 100 << 20


def sparse_numbers(path: Path) -> None:
    path.write_bytes(start(n_keys=1) + array_key(UINT8, 1 << 40))
    os.truncate(path, 1 << 41)


def sparse_strings(path: Path) -> None:
    path.write_bytes(start(n_keys=1) + array_key(STRING, 1 << 30))
    os.truncate(path, 1 << 41)


def sparse_text(path: Path) -> None:
    path.write_bytes(start(n_keys=1) + encode_string("k") + struct.pack("<IQ", STRING, 1 << 40))
    os.truncate(path, 1 << 41)


@pytest.mark.skipif(os.name == "nt", reason="needs sparse files")
@pytest.mark.parametrize("fill", [sparse_numbers, sparse_strings, sparse_text])
def test_a_huge_file_does_not_make_huge_counts_right(
    tmp_path: Path, fill: Callable[[Path], None]
) -> None:
    path = tmp_path / "m.gguf"
    fill(path)
    tracemalloc.start()
    # Followed to their ends, a terabyte of zeros each: that it returns is the proof.
    with pytest.raises(GGUFFormatError, match="damaged"):
        open_model(path)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 100 << 20
