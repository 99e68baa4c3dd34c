"""Block sizes and dequantising: known blocks by hand, llama.cpp's values, the gguf package."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from kernels.errors import KernelError, KernelLaunchError, UnsupportedQuantError
from kernels.quants import QuantType, removed_quant
from kernels.reference import make_grids
from kernels.reference.grids import grid
from kernels.reference.quants import dequantize

WEIGHT_TYPES = [quant for quant in QuantType if not quant.is_storage_only]
OUR_ONLY = {QuantType.Q1_0, QuantType.Q2_0}
"""Formats the gguf package has no dequantiser for; golden blocks cover them."""


def decode_one(quant: QuantType, block: bytes) -> list[float]:
    data = np.frombuffer(block, np.uint8)[None]
    assert data.shape[1] == quant.n_bytes
    return list(dequantize(data, quant, quant.n_weights)[0].tolist())


def f16(value: float) -> bytes:
    return struct.pack("<e", value)


# --------------------------------------------------------------------------- the table


def test_sizes_equal_those_of_the_gguf_package() -> None:
    import gguf

    for theirs, (n_weights, n_bytes) in gguf.GGML_QUANT_SIZES.items():
        ours = QuantType(int(theirs))
        assert ours.name == theirs.name
        if ours is QuantType.Q8_1:
            # ggml shrank both fields before the codes to f16; the package still counts f32.
            n_bytes = 36
        assert (ours.n_weights, ours.n_bytes) == (n_weights, n_bytes), ours.name


def test_q2_0_is_there_though_the_package_lacks_it() -> None:
    assert (QuantType.Q2_0, QuantType.Q2_0.n_weights, QuantType.Q2_0.n_bytes) == (42, 64, 18)


@pytest.mark.parametrize(
    ("quant_id", "name", "replacement"),
    [
        (4, "Q4_2", "Q4_0"),
        (5, "Q4_3", "Q4_1"),
        (31, "Q4_0_4_4", "Q4_0"),
        (33, "Q4_0_8_8", "Q4_0"),
        (36, "IQ4_NL_4_4", "IQ4_NL"),
        (38, "IQ4_NL_8_8", "IQ4_NL"),
    ],
)
def test_a_removed_format_names_its_replacement(quant_id: int, name: str, replacement: str) -> None:
    assert removed_quant(quant_id) == (name, replacement)
    with pytest.raises(UnsupportedQuantError) as caught:
        QuantType(quant_id)
    assert str(quant_id) in str(caught.value)
    assert name in str(caught.value)
    assert f"in {replacement} instead" in str(caught.value)
    assert caught.value.quant_id == quant_id


@pytest.mark.parametrize("quant_id", [43, 250, 2**32 - 1])
def test_an_unknown_format_asks_for_a_newer_version(quant_id: int) -> None:
    with pytest.raises(UnsupportedQuantError, match="newer version") as caught:
        QuantType(quant_id)
    assert isinstance(caught.value, KernelError)
    assert str(quant_id) in str(caught.value)
    assert "corrupt" not in str(caught.value)


def test_every_id_is_known_removed_or_unknown() -> None:
    known = {int(quant) for quant in QuantType}
    removed = {quant_id for quant_id in range(64) if removed_quant(quant_id)}
    assert removed == {4, 5, 31, 32, 33, 36, 37, 38}
    assert not known & removed
    assert known | removed == set(range(43))


def test_row_bytes() -> None:
    assert QuantType.Q4_1.row_bytes(576) == 360
    assert QuantType.F16.row_bytes(3) == 6
    assert QuantType.Q6_K.row_bytes(0) == 0
    with pytest.raises(UnsupportedQuantError, match="multiple of 256"):
        QuantType.Q6_K.row_bytes(576)


# --------------------------------------------------------------------------- known blocks


def test_f16_and_bf16_by_hand() -> None:
    halves = np.array([[0x00, 0x3C, 0x00, 0xC0, 0x01, 0x00]], np.uint8)
    assert dequantize(halves, QuantType.F16, 3).tolist() == [[1.0, -2.0, 2.0**-24]]
    brains = np.array([[0x80, 0x3F, 0x00, 0xC0, 0x49, 0x40]], np.uint8)
    assert dequantize(brains, QuantType.BF16, 3).tolist() == [[1.0, -2.0, 3.140625]]


def test_q4_0_by_hand() -> None:
    # Byte i: low nibble i is weight i, high nibble 15 - i is weight 16 + i; 8 is zero.
    block = f16(0.5) + bytes(i | (15 - i) << 4 for i in range(16))
    expected = [(i - 8) / 2 for i in range(16)] + [(7 - i) / 2 for i in range(16)]
    assert decode_one(QuantType.Q4_0, block) == expected


def test_q4_1_by_hand() -> None:
    block = f16(0.5) + f16(-1.0) + bytes(i | (15 - i) << 4 for i in range(16))
    expected = [i / 2 - 1 for i in range(16)] + [(15 - i) / 2 - 1 for i in range(16)]
    assert decode_one(QuantType.Q4_1, block) == expected


def test_q5_0_by_hand() -> None:
    # Fifth bits: set for weights 1 and 31 only.
    block = f16(2.0) + struct.pack("<I", 1 << 1 | 1 << 31) + bytes([0x21]) * 16
    expected = [(1 - 16) * 2.0] * 16 + [(2 - 16) * 2.0] * 16
    expected[1], expected[31] = 2.0, 4.0
    assert decode_one(QuantType.Q5_0, block) == expected


def test_q5_1_by_hand() -> None:
    block = f16(2.0) + f16(0.25) + struct.pack("<I", 1 << 0 | 1 << 16) + bytes([0x21]) * 16
    expected = [2.25] * 16 + [4.25] * 16
    expected[0], expected[16] = 34.25, 36.25
    assert decode_one(QuantType.Q5_1, block) == expected


def test_q8_0_by_hand() -> None:
    codes = [-128, 127, 0, -1, *range(28)]
    block = f16(0.25) + struct.pack("32b", *codes)
    assert decode_one(QuantType.Q8_0, block) == [code / 4 for code in codes]


def test_q2_0_by_hand() -> None:
    # 0b11_10_01_00: neighbours 0, 1, 2, 3, the lowest bits first; code 1 is zero.
    block = f16(0.5) + bytes([0b11100100]) * 16
    assert decode_one(QuantType.Q2_0, block) == [-0.5, 0.0, 0.5, 1.0] * 16


def test_q4_k_by_hand() -> None:
    # Scale j is j + 1, minimum j is 2 j; the last four of each need their two high bits: 5 + 32.
    scales = [1, 2, 3, 4, 5, 6, 7, 40]
    minima = [0, 2, 4, 6, 8, 10, 12, 62]
    packed = [scales[j] | scales[j + 4] >> 4 << 6 for j in range(4)]
    packed += [minima[j] | minima[j + 4] >> 4 << 6 for j in range(4)]
    packed += [scales[j + 4] & 15 | (minima[j + 4] & 15) << 4 for j in range(4)]
    block = f16(0.5) + f16(0.25) + bytes(packed) + bytes([0xF3]) * 128
    values = np.array(decode_one(QuantType.Q4_K, block)).reshape(8, 32)
    for run in range(8):
        code = 15 if run % 2 else 3
        assert (values[run] == 0.5 * scales[run] * code - 0.25 * minima[run]).all(), run


def test_q6_k_by_hand() -> None:
    # Low nibbles 1 and 2, high bits 0b11_10_01_00: runs of 32 get 0, 1, 2, 3; 32 is zero.
    scales = list(range(-8, 8))
    block = bytes([0x21]) * 128 + bytes([0b11100100]) * 64 + struct.pack("16b", *scales) + f16(1.0)
    values = np.array(decode_one(QuantType.Q6_K, block)).reshape(2, 4, 2, 16)
    for half in range(2):
        for run in range(4):
            code = (1 if run < 2 else 2) + 16 * run - 32
            for part in range(2):
                scale = scales[half * 8 + run * 2 + part]
                assert (values[half, run, part] == scale * code).all()


def test_iq4_nl_by_hand() -> None:
    block = f16(1.0) + bytes([0xF0]) * 16
    assert decode_one(QuantType.IQ4_NL, block) == [-127.0] * 16 + [113.0] * 16


def test_mxfp4_by_hand() -> None:
    # Scale byte 128 is 2^1; nibbles 1 and 15 are 0.5 and -6.
    assert (
        decode_one(QuantType.MXFP4, bytes([128]) + bytes([0xF1]) * 16) == [1.0] * 16 + [-12.0] * 16
    )
    # Scale byte 0 is 2^-127, below the normal floats.
    assert decode_one(QuantType.MXFP4, bytes([0]) + bytes([0x22]) * 16) == [2.0**-127] * 32


def test_iq2_xs_signs_by_hand() -> None:
    # Index 0 is eight times 8; seven sign bits 0b0000001 make weight 0 and, by parity, 7 negative.
    block = f16(1.0) + struct.pack("<32H", *[1 << 9] * 32) + bytes(8)
    expected = [-1.0, *[1.0] * 6, -1.0] * 32
    assert decode_one(QuantType.IQ2_XS, block) == expected


# --------------------------------------------------------------------------- oracles


@pytest.mark.shared
def test_equal_to_llama_cpp_bit_for_bit(shared_dir: Path) -> None:
    with np.load(shared_dir / "golden" / "blocks.npz") as golden:
        names = sorted(key[:-6] for key in golden.files if key.endswith(".bytes"))
        assert len(names) == 25
        for name in names:
            quant = QuantType[name]
            assert int(golden[f"{name}.type"]) == quant
            assert tuple(golden[f"{name}.block"]) == (quant.n_weights, quant.n_bytes)
            for kind in ("", "mixed_"):
                expected = golden[f"{name}.{kind}values"]
                values = dequantize(golden[f"{name}.{kind}bytes"], quant, expected.shape[1])
                assert values.dtype == np.float32
                assert values.tobytes() == expected.tobytes(), (name, kind)


@pytest.mark.parametrize("quant", [q for q in WEIGHT_TYPES if q not in OUR_ONLY])
def test_equal_to_the_gguf_package_on_random_blocks(quant: QuantType) -> None:
    import gguf

    rng = np.random.default_rng(int(quant))
    data = rng.integers(0, 256, (32, 3 * quant.n_bytes), dtype=np.uint8)
    # Any bits may be a scale, so infinities and their products are part of the test.
    with np.errstate(all="ignore"):
        expected = gguf.dequantize(data, gguf.GGMLQuantizationType(int(quant)))
        values = dequantize(data, quant, 3 * quant.n_weights)
    assert values.shape == (32, 3 * quant.n_weights)
    same = values.view(np.uint32) == expected.view(np.uint32)
    assert (same | np.isnan(values) & np.isnan(expected)).all()
    assert np.isfinite(values).mean() > 0.9


def test_result_is_own_memory() -> None:
    data = np.zeros((2, 8), np.uint8)
    data.flags.writeable = False
    values = dequantize(data, QuantType.F32, 2)
    values[0, 0] = 5
    assert not data.any()


def test_a_slice_of_columns_is_taken_too() -> None:
    rng = np.random.default_rng(3)
    wide = rng.integers(0, 200, (4, 68), dtype=np.uint8)
    narrow = wide[:, 34:]
    assert not narrow.flags.c_contiguous
    expected = dequantize(narrow.copy(), QuantType.Q8_0, 32)
    assert dequantize(narrow, QuantType.Q8_0, 32).tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    "data",
    [np.zeros((2, 17), np.uint8), np.zeros(18, np.uint8), np.zeros((2, 18), np.int8)],
)
def test_wrong_arrays_are_refused(data: npt.NDArray[np.uint8]) -> None:
    with pytest.raises(KernelLaunchError, match=r"wants u8\[n_rows, 18\]"):
        dequantize(data, QuantType.Q4_0, 32)


@pytest.mark.parametrize("quant", [QuantType.I32, QuantType.F64, QuantType.Q8_K])
def test_storage_only_formats_are_refused(quant: QuantType) -> None:
    with pytest.raises(UnsupportedQuantError, match="holds no weights"):
        dequantize(np.zeros((1, quant.n_bytes), np.uint8), quant, quant.n_weights)


# --------------------------------------------------------------------------- tables


def test_grid_files_are_what_the_script_makes() -> None:
    grids = make_grids.read_grids()
    assert make_grids.HEADER.read_text("ascii") == make_grids.header_text(grids)
    for name, expected in grids.items():
        assert np.array_equal(grid(name), expected)
        assert not grid(name).flags.writeable


def test_header_holds_the_same_tables_as_the_arrays() -> None:
    text = make_grids.HEADER.read_text("ascii")
    for name in make_grids.FORMATS:
        table = grid(name)
        body = re.search(rf"strata_grid_{name.lower()}\[{len(table)}\] = {{([^}}]*)}}", text)
        assert body is not None
        words = [int(word, 16) for word in re.findall(r"0x[0-9a-f]+", body[1])]
        packed = np.array(words, f"<u{table.shape[1]}")
        assert np.array_equal(packed.view(np.int8).reshape(table.shape), table)
