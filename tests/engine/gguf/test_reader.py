"""Opening single files: layout, alignment, versions, damage."""

from __future__ import annotations

import os
import sys
import tracemalloc
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.errors import GGUFFormatError, ModelFileError, UnsupportedModelError
from engine.gguf.header import MAX_ALIGNMENT
from engine.gguf.reader import GGUFModel, extended_path, open_model
from kernels.quants import QuantType
from tests.builders import (
    ARRAY,
    INT32,
    STRING,
    UINT8,
    RawTensor,
    Typed,
    gguf_bytes,
    gguf_parts,
    make_gguf,
    make_tiny_llama,
)
from tests.call_count import count_calls

KEYS = {"general.architecture": "llama"}


def floats(*shape: int, start: int = 0) -> np.ndarray[Any, np.dtype[np.float32]]:
    n_weights = int(np.prod(shape))
    return np.arange(start, start + n_weights, dtype=np.float32).reshape(shape)


def write(tmp_path: Path, encoded: bytes, name: str = "model.gguf") -> Path:
    path = tmp_path / name
    path.write_bytes(encoded)
    return path


def values(model: GGUFModel, name: str) -> list[float]:
    return list(model.tensor_bytes(name).view("<f4").tolist())


# --------------------------------------------------------------------------- what is right


@pytest.mark.parametrize("version", [2, 3])
def test_tensors_and_their_bytes(tmp_path: Path, version: int) -> None:
    path = make_gguf(
        tmp_path / "m.gguf",
        KEYS,
        {"a": floats(3, 4), "b": floats(5, start=100), "c": np.arange(7, dtype=np.float16)},
        version=version,
    )
    with open_model(path) as model:
        assert model.headers[0].version == version
        assert list(model.tensors) == ["a", "b", "c"]
        first = model.tensors["a"]
        assert (first.dims, first.shape, first.n_rows, first.n_cols) == ((4, 3), (3, 4), 3, 4)
        assert first.quant is QuantType.F32
        assert first.n_weights == 12
        assert first.n_bytes == 48
        assert values(model, "a") == list(range(12))
        assert values(model, "b") == [100, 101, 102, 103, 104]
        assert model.tensors["c"].quant is QuantType.F16
        assert model.tensor_rows("a").shape == (3, 16)
        assert model.file_bytes == path.stat().st_size
        assert model.paths == (path,)


def test_tensor_bytes_are_a_read_only_view(tmp_path: Path) -> None:
    path = make_gguf(tmp_path / "m.gguf", KEYS, {"a": floats(2)})
    model = open_model(path)
    view = model.tensor_bytes("a")
    assert not view.flags.owndata
    with pytest.raises(ValueError, match="read-only"):
        view[0] = 1
    model.close()
    assert view.view("<f4").tolist() == [0, 1], "a view in use must outlive close()"
    with pytest.raises(ModelFileError, match="closed"):
        model.tensor_bytes("a")
    model.close()


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    with (
        open_model(make_gguf(tmp_path / "m.gguf", KEYS)) as model,
        pytest.raises(GGUFFormatError, match=r"'output\.weight' is missing"),
    ):
        model.tensor_bytes("output.weight")


@pytest.mark.parametrize("alignment", [None, 1, 8, 16, 32, 64, 4096])
@pytest.mark.parametrize("remainder", [0, 1, -1])
def test_alignment_with_the_header_ending_anywhere(
    tmp_path: Path, alignment: int | None, remainder: int
) -> None:
    # Grow a string key until the header ends where the case wants it.
    used = alignment or 32
    keys: dict[str, Any] = {**KEYS, "pad": ""}
    if alignment is not None:
        keys["general.alignment"] = alignment
    tensors = {"a": floats(3), "b": floats(9, start=50)}
    n_header = len(gguf_parts(keys, tensors, alignment=used)[0])
    keys["pad"] = "x" * ((remainder - n_header) % used)
    n_header += len(keys["pad"])
    assert n_header % used == remainder % used
    encoded = gguf_bytes(keys, tensors, alignment=used)
    with open_model(write(tmp_path, encoded)) as model:
        expected = n_header + -n_header % used
        assert model.headers[0].data_offset_bytes == expected
        assert model.tensors["a"].offset_bytes == expected
        assert model.tensors["b"].offset_bytes % used == 0
        assert values(model, "a") == [0, 1, 2]
        assert values(model, "b") == list(range(50, 59))


def test_int32_alignment_is_taken(tmp_path: Path) -> None:
    keys = {**KEYS, "general.alignment": Typed(INT32, 64)}
    with open_model(make_gguf(tmp_path / "m.gguf", keys, {"a": floats(2)}, alignment=64)) as model:
        assert model.headers[0].alignment == 64
        assert values(model, "a") == [0, 1]


@pytest.mark.parametrize(
    "alignment", [0, 3, -32, 1 << 30, 2 * MAX_ALIGNMENT, "32", 32.0, [32], True]
)
def test_bad_alignment_names_the_key(tmp_path: Path, alignment: Any) -> None:
    path = make_gguf(tmp_path / "m.gguf", {"general.alignment": alignment}, {"a": floats(2)})
    with pytest.raises(GGUFFormatError, match=r"general\.alignment") as caught:
        open_model(path)
    assert caught.value.offset_bytes == 24


def test_metadata_and_list_do_not_touch_tensor_bytes(tmp_path: Path) -> None:
    # 4 GiB of tensor data that no disk holds: a sparse file.
    encoded = gguf_bytes(KEYS, {"big": RawTensor((1 << 30,), QuantType.F32, b"")})
    path = write(tmp_path, encoded)
    os.truncate(path, len(encoded) + (4 << 30))
    tracemalloc.start()
    with open_model(path) as model:
        assert model.tensors["big"].n_bytes == 4 << 30
        assert not model.tensor_bytes("big")[-16:].any()
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


def test_a_vocabulary_of_250000_tokens_is_skipped_over(tmp_path: Path) -> None:
    tokens = [f"token{index}" for index in range(250_000)]
    merges = [f"tok en{index}" for index in range(250_000)]
    encoded = gguf_bytes(
        {
            "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.merges": merges,
            "tokenizer.ggml.token_type": Typed(ARRAY, [1] * 250_000, INT32),
            "last": "here",
        }
    )
    path = write(tmp_path, encoded)
    made: list[GGUFModel] = []
    n_calls = count_calls(lambda: made.append(open_model(path)))
    # One for each string: its length says where the next one begins.
    assert n_calls < 1.5 * (len(tokens) + len(merges))
    model = made[0]
    assert model.metadata.get_str("last") == "here"
    model.close()
    assert model.metadata.get_array("tokenizer.ggml.tokens", str) == tokens
    assert model.metadata.get_array("tokenizer.ggml.merges", str) == merges


# --------------------------------------------------------------------------- paths


@pytest.mark.parametrize(
    "folder",
    ["Users/Тест/models", "模型", "é ü", "temp\u3000folder", "a b (1)%20#?"],
)
def test_non_ascii_paths(tmp_path: Path, folder: str) -> None:
    path = tmp_path / folder / "m\u00e9 模型.gguf"
    path.parent.mkdir(parents=True)
    with open_model(make_tiny_llama(path)) as model:
        assert model.paths == (path,)
        assert model.metadata.get_str("general.name") == "Tiny Llama"


def test_a_path_of_more_than_260_characters(tmp_path: Path) -> None:
    folder = tmp_path
    while len(str(folder)) < 300:
        folder /= "a-long-folder-name-with-many-letters"
    os.makedirs(extended_path(str(folder)) if os.name == "nt" else folder)
    encoded = gguf_bytes(KEYS, {"a": floats(2)})
    path = folder / "m.gguf"
    with open(extended_path(str(path)) if os.name == "nt" else path, "wb") as file:
        file.write(encoded)
    with open_model(path) as model:
        assert values(model, "a") == [0, 1]


def test_long_windows_paths_take_the_extended_form() -> None:
    long = "a" * 300
    assert extended_path(f"C:\\{long}\\m.gguf") == f"\\\\?\\C:\\{long}\\m.gguf"
    assert extended_path(f"\\\\server\\{long}") == f"\\\\?\\UNC\\server\\{long}"
    assert extended_path(f"\\\\?\\C:\\{long}") == f"\\\\?\\C:\\{long}"
    assert extended_path("C:\\models\\m.gguf") == "C:\\models\\m.gguf"


def test_no_file_and_a_folder(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"absent\.gguf: there is no such file"):
        open_model(tmp_path / "absent.gguf")
    with pytest.raises(ModelFileError, match="a folder, not a model file"):
        open_model(tmp_path)


# --------------------------------------------------------------------------- other files


@pytest.mark.parametrize(
    ("encoded", "said"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:1\n", "Git LFS"),
        (b"<!DOCTYPE html><html></html>", "web page"),
        (b"lmgg" + bytes(100), "before GGUF"),
        (b"PK\x03\x04" + bytes(100), r"starts with b'PK"),
        (b"GG", "ends after 2 bytes"),
        (b"", "empty"),
        (b"GGUF", "version needs 4 bytes, but the file ends after 0: 4 bytes are missing"),
    ],
)
def test_files_that_are_something_else(tmp_path: Path, encoded: bytes, said: str) -> None:
    with pytest.raises(GGUFFormatError, match=said) as caught:
        open_model(write(tmp_path, encoded))
    assert caught.value.offset_bytes is not None


@pytest.mark.parametrize(
    ("version", "said"),
    [
        (b"\x00\x00\x00\x03", "big-endian GGUF file .*not supported"),
        (b"\x00\x00\x00\x02", "big-endian"),
        (b"\x01\x00\x00\x00", "version 1, which is not supported"),
        (b"\x04\x00\x00\x00", "version 4, but this version of Strata reads 2 and 3"),
    ],
)
def test_versions_that_are_not_read(tmp_path: Path, version: bytes, said: str) -> None:
    with pytest.raises(UnsupportedModelError, match=said) as caught:
        open_model(write(tmp_path, b"GGUF" + version + bytes(64)))
    assert "50331648" not in str(caught.value)


@pytest.mark.parametrize(
    ("quant_id", "said"),
    [
        (36, r"'odd'.*format 36 \(IQ4_NL_4_4\) was removed.*IQ4_NL instead"),
        (4, r"'odd'.*format 4 \(Q4_2\) was removed.*Q4_0 instead"),
        (250, r"'odd'.*format 250 is not known.*newer version"),
    ],
)
def test_unknown_and_removed_tensor_types(tmp_path: Path, quant_id: int, said: str) -> None:
    path = make_gguf(
        tmp_path / "m.gguf", KEYS, {"a": floats(2), "odd": RawTensor((32,), quant_id, bytes(32))}
    )
    with pytest.raises(UnsupportedModelError, match=said):
        open_model(path)
    with open_model(path, allows_unknown_types=True) as model:
        assert list(model.tensors) == ["a"]
        assert [(t.name, t.quant_id) for t in model.unknown_tensors] == [("odd", quant_id)]


# --------------------------------------------------------------------------- damage


def test_a_truncated_file_says_how_much_is_missing(tmp_path: Path) -> None:
    encoded = gguf_bytes(KEYS, {"a": floats(8), "b": floats(100)})
    encoded = encoded[: len(encoded) - 16]  # The last 16 bytes are padding: 400 + 16 = 13 * 32.
    open_model(write(tmp_path, encoded)).close()
    with pytest.raises(GGUFFormatError, match="'b'.*123 bytes are missing"):
        open_model(write(tmp_path, encoded[:-123]))


def test_every_truncation_ends_in_a_clean_error(tmp_path: Path) -> None:
    keys = {
        **KEYS,
        "words": ["a", "bc"],
        "numbers": [1, 2],
        "nested": Typed(ARRAY, [Typed(ARRAY, [1, 2], UINT8), Typed(ARRAY, ["x"], STRING)], ARRAY),
        "flag": True,
    }
    encoded = gguf_bytes(keys, {"a": floats(8)})
    with open_model(write(tmp_path, encoded)) as model:
        assert model.metadata.value("nested") == [[1, 2], ["x"]]
    for n_bytes in range(len(encoded)):
        with pytest.raises(GGUFFormatError):
            open_model(write(tmp_path, encoded[:n_bytes]))


def test_a_failed_open_leaves_the_file_free(tmp_path: Path) -> None:
    path = make_gguf(tmp_path / "m.gguf", KEYS, {"odd": RawTensor((32,), 250, bytes(32))})
    with pytest.raises(UnsupportedModelError):
        open_model(path)
    path.rename(tmp_path / "other.gguf")
    (tmp_path / "other.gguf").unlink()


def test_single_rows_are_expected_where_the_system_takes_advice(tmp_path: Path) -> None:
    table = np.arange(64 * 1024, dtype=np.float32).reshape(1024, 64)
    tensors = {"a": np.zeros((64, 64), np.float32), "table": table, "z": np.zeros(9, np.float32)}
    model = open_model(make_gguf(tmp_path / "table.gguf", {}, tensors))
    model.expect_single_rows("table")
    assert np.array_equal(model.tensor_rows("table")[1023].view(np.float32), table[1023])
    if sys.platform == "linux":
        # The kernel flags the part of the mapping: rr = random reads.
        maps = Path("/proc/self/smaps").read_text().split("VmFlags:")
        flags = [
            after.split("\n", 1)[0] for before, after in pairwise(maps) if "table.gguf" in before
        ]
        assert [" rr " in f"{flag} " for flag in flags] in ([False, True], [False, True, False])
    with pytest.raises(GGUFFormatError, match="nowhere"):
        model.expect_single_rows("nowhere")
    model.close()
    with pytest.raises(ModelFileError, match="closed"):
        model.expect_single_rows("table")
