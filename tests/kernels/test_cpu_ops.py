"""Every native op against its definition, at every level, and against itself in other company."""

from __future__ import annotations

import ctypes
import platform
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from kernels.cpu import records
from kernels.cpu.build import TARGETS, find_target, source_stamp
from kernels.cpu.layer_records import LAYER_RECORDS
from kernels.cpu.library import (
    CpuLibrary,
    Level,
    Team,
    load_library,
    make_tape,
)
from kernels.errors import KernelCompileError, KernelLaunchError
from kernels.quants import QuantType
from kernels.reference import attention, embed, matmul, rms_norm, rope, rows, swiglu
from tests.builders import quantize as quantize_weights
from tests.kernels import native

Array = npt.NDArray[Any]

ROUNDING = 2e-6
"""Relative to the largest value: float32 sums of up to a few thousand terms against float64."""
CODES_ROUNDING = 4e-6
"""The same for products of codes: as exact, since the reference takes the codes' own values."""
HALF_ROUNDING = 1e-3
"""Values that were stored as float16."""

DIRECT = [QuantType.F32, QuantType.F16, QuantType.BF16]
CODED = [QuantType.Q4_1, QuantType.Q8_0]
"""Two of the formats; all are in test_formats.py."""
WIDTHS = [32, 64, 96, 576, 1536]


def rng() -> np.random.Generator:
    return np.random.default_rng(11)


def normal(*shape: int) -> Array:
    return rng().standard_normal(shape).astype(np.float32)


def weights(quant: QuantType, n_out: int, n_cols: int) -> Array:
    plain = np.random.default_rng(12).standard_normal((n_out, n_cols)).astype(np.float32)
    encoded = quantize_weights(plain, quant).encoded
    assert isinstance(encoded, bytes)
    return np.frombuffer(encoded, np.uint8).reshape(n_out, quant.row_bytes(n_cols)).copy()


def assert_close(had: Array, wanted: Array, tolerance: float) -> None:
    assert np.isfinite(had).all()
    np.testing.assert_allclose(had, wanted, rtol=0, atol=tolerance * float(np.abs(wanted).max()))


# --------------------------------------------------------------------------- rows


@pytest.mark.parametrize("n_cols", [1, 7, 16, 33, 64, 576])
def test_rms_norm_means_its_definition(team: Team, n_cols: int) -> None:
    x, weight = normal(5, n_cols) * 3, normal(n_cols)
    had = native.rms_norm(team, x, weight, 1e-5)
    assert_close(had, rms_norm.rms_norm(x, weight, 1e-5), ROUNDING)


def test_rms_norm_of_zeros_is_zeros(team: Team) -> None:
    x = np.zeros((2, 48), np.float32)
    assert (native.rms_norm(team, x, normal(48), 1e-5) == 0).all()


@pytest.mark.parametrize("n_cols", [1, 15, 16, 100])
def test_swiglu_means_its_definition(team: Team, n_cols: int) -> None:
    gate, up = normal(3, n_cols) * 20, normal(3, n_cols)
    gate[0, 0], gate[-1, -1] = -1000, 1000
    y = np.full_like(gate, np.nan)
    native.run(
        team,
        records.Swiglu(
            gate=native.at(gate), up=native.at(up), y=native.at(y), n_rows=3, n_cols=n_cols
        ),
    )
    wanted = swiglu.swiglu(gate, up)
    assert np.isfinite(y).all()
    np.testing.assert_allclose(y, wanted, rtol=ROUNDING, atol=1e-30)


def test_add_gather_and_argmax_mean_their_definitions(team: Team) -> None:
    x, y = normal(6, 37), normal(6, 37)[::-1].copy()
    wanted = rows.add(x, y)
    native.run(team, records.Add(x=native.at(x), y=native.at(y), n_rows=6, n_cols=37))
    assert np.array_equal(x, wanted)

    picked = np.array([5, 0, 0], np.int32)
    some = np.empty((3, 37), np.float32)
    native.run(
        team,
        records.GatherRows(
            x=native.at(x), rows=native.at(picked), y=native.at(some), n_rows=3, n_cols=37
        ),
    )
    assert np.array_equal(some, rows.gather_rows(x, picked))

    x[2, 9] = x[2, 30] = 100  # the first of equals
    best = np.empty(6, np.int32)
    native.run(team, records.Argmax(x=native.at(x), ids=native.at(best), n_rows=6, n_cols=37))
    assert np.array_equal(best, rows.argmax(x))
    assert best[2] == 9


@pytest.mark.parametrize("is_pairs", [True, False], ids=["pairs", "halves"])
@pytest.mark.parametrize("n_pairs", [8, 3])
def test_rope_means_its_definition(team: Team, n_pairs: int, is_pairs: bool) -> None:
    positions = np.array([0, 1, 8191, 262143], np.int32)
    frequencies = (10000.0 ** -(np.arange(n_pairs) / n_pairs)).astype(np.float32)
    angles = np.empty((4, n_pairs, 2), np.float32)
    x = normal(4, 3, 16)
    wanted = rope.rope(
        x, rope.rope_angles(positions, frequencies, magnitude=1.5), is_pairs=is_pairs
    )
    native.run(
        team,
        records.RopeAngles(
            magnitude=1.5,
            positions=native.at(positions),
            frequencies=native.at(frequencies),
            angles=native.at(angles),
            n_rows=4,
            n_pairs=n_pairs,
        ),
        records.Rope(
            style=records.ROPE_PAIRS if is_pairs else records.ROPE_HALVES,
            x=native.at(x),
            angles=native.at(angles),
            n_rows=4,
            n_heads=3,
            head_dim=16,
            n_pairs=n_pairs,
        ),
    )
    assert_close(x, wanted, ROUNDING)


# --------------------------------------------------------------------------- weights


def test_an_unknown_format_is_told_apart(library: CpuLibrary) -> None:
    assert library.native.strata_dequantize(4, None, None, 0) == -1


@pytest.mark.parametrize("quant", [*DIRECT, *CODED], ids=lambda quant: quant.name)
def test_embed_means_its_definition(team: Team, quant: QuantType) -> None:
    table, ids = weights(quant, 10, 64), np.array([9, 0, 3, 3, 7], np.int32)
    y = np.full((5, 64), np.nan, np.float32)
    native.run(
        team,
        records.Embed(
            quant=quant,
            table=native.at(table),
            ids=native.at(ids),
            y=native.at(y),
            n_rows=5,
            n_cols=64,
            row_bytes=table.shape[1],
        ),
    )
    assert np.array_equal(y, embed.embed(table, ids, quant, 64))


@pytest.mark.parametrize("n_cols", WIDTHS)
def test_codes_are_those_of_the_definition(team: Team, n_cols: int) -> None:
    x = normal(4, n_cols) * np.array([1e-3, 1, 50, 0], np.float32)[:, None]
    x[1, 5] = 1e4  # an outlier
    qs, ds = native.quantize(team, x)
    codes, scales = matmul.quantize(x)
    n_blocks = scales.shape[1]
    wanted = np.zeros(qs.shape, np.int32)
    wanted[:, :n_cols] = codes
    quarters = wanted.reshape(4, -1, 4, 16)[:, :, [0, 2, 1, 3]]
    assert np.array_equal(qs, quarters.reshape(qs.shape))
    assert np.array_equal(ds[:, 16 * n_blocks :], scales)
    sums = np.zeros((4, 16 * n_blocks))
    sums[:, : n_cols // 16] = codes.reshape(4, -1, 16).sum(axis=-1)
    sums *= np.repeat(scales, 16, axis=1)
    np.testing.assert_allclose(ds[:, : 16 * n_blocks], sums, rtol=1e-6)


@pytest.mark.parametrize("n_cols", WIDTHS)
@pytest.mark.parametrize("quant", CODED, ids=lambda quant: quant.name)
def test_products_of_codes_mean_their_definition(team: Team, quant: QuantType, n_cols: int) -> None:
    x, weight, bias = normal(6, n_cols), weights(quant, 37, n_cols), normal(37)
    had = native.matmul(team, x, weight, quant, bias=bias)
    assert_close(had, matmul.matmul_codes(x, weight, quant, bias), CODES_ROUNDING)


@pytest.mark.parametrize("quant", CODED, ids=lambda quant: quant.name)
def test_the_largest_codes_do_not_overflow(team: Team, quant: QuantType) -> None:
    n_cols = 512
    x = np.full((1, n_cols), -3.0, np.float32)
    x[:, ::2] = 3.0
    blocks = np.full((2, n_cols // 32, quant.n_bytes), 0xFF, np.uint8)
    if quant is QuantType.Q8_0:
        blocks[0, :, 2::2], blocks[0, :, 3::2] = 0x80, 0x7F  # -128 and 127
        blocks[1, :, 2::2], blocks[1, :, 3::2] = 0x7F, 0x80
    blocks[:, :, :2] = np.array([0x00, 0x3C], np.uint8)  # a scale of 1
    if quant is QuantType.Q4_1:
        blocks[:, :, 2:4] = 0
    weight = blocks.reshape(2, -1)
    had = native.matmul(team, x, weight, quant)
    assert_close(
        had + 1, matmul.matmul(x, weight, quant) + 1, CODES_ROUNDING
    )  # + 1: a sum may be 0


@pytest.mark.parametrize("n_cols", [5, 16, 40, 576])
@pytest.mark.parametrize("quant", DIRECT, ids=lambda quant: quant.name)
def test_products_of_floats_mean_their_definition(
    team: Team, quant: QuantType, n_cols: int
) -> None:
    x, weight = normal(6, n_cols), weights(quant, 11, n_cols)
    had = native.matmul(team, x, weight, quant)
    assert_close(had, matmul.matmul(x, weight, quant), ROUNDING)


@pytest.mark.parametrize("quant", [*CODED, QuantType.Q4_0], ids=lambda quant: quant.name)
def test_exact_products_mean_their_definition(team: Team, quant: QuantType) -> None:
    x, weight = normal(6, 96), weights(quant, 11, 96)
    had = native.matmul(team, x, weight, quant, is_exact=True)
    assert_close(had, matmul.matmul(x, weight, quant), ROUNDING)


@pytest.mark.parametrize("is_exact", [False, True], ids=["codes", "exact"])
@pytest.mark.parametrize("quant", [*DIRECT, *CODED, QuantType.Q4_0], ids=lambda q: q.name)
def test_a_product_is_the_same_in_any_company(
    library: CpuLibrary, team: Team, quant: QuantType, is_exact: bool
) -> None:
    x, weight = normal(11, 96), weights(quant, 70, 96)
    together = native.matmul(team, x, weight, quant, is_exact=is_exact)
    for first, stop in ((0, 1), (3, 5), (4, 11), (10, 11)):
        part = native.matmul(team, x[first:stop].copy(), weight, quant, is_exact=is_exact)
        assert np.array_equal(part, together[first:stop])
    for n_threads in (1, 3):
        other = Team(library, n_threads, level=team.level)
        assert np.array_equal(native.matmul(other, x, weight, quant, is_exact=is_exact), together)
        other.close()


# --------------------------------------------------------------------------- attention


def scene(
    *, n_cells: int, chunk_cells: int, dtype: Any, n_lanes: int = 2, is_scrambled: bool = True
) -> tuple[Array, Array]:
    """Return filled cells [n_chunks, 2, chunk_cells, 2, 24] and tables; each lane has its own."""
    n_table = -(-n_cells // chunk_cells)
    order = np.arange(n_lanes * n_table, dtype=np.int32)
    if is_scrambled:
        np.random.default_rng(5).shuffle(order)
    tables = order.reshape(n_lanes, n_table)
    flat = np.random.default_rng(6).standard_normal((n_lanes, n_table * chunk_cells, 2, 2, 24))
    cells = np.empty((n_lanes * n_table, 2, chunk_cells, 2, 24), dtype)
    for lane in range(n_lanes):
        for i, chunk in enumerate(tables[lane]):
            run = flat[lane, i * chunk_cells : (i + 1) * chunk_cells]
            cells[chunk] = run.transpose(1, 0, 2, 3)
    return cells, tables


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("is_split", [False, True], ids=["whole", "split"])
def test_attention_means_its_definition(team: Team, dtype: Any, is_split: bool) -> None:
    cells, tables = scene(n_cells=1200, chunk_cells=100, dtype=dtype)
    positions = np.array([0, 1, 15, 16, 63, 64, 511, 512, 1100, 1199, 700, 5], np.int32)
    lanes = np.array([0, 0, 0, 0, 1, 1, 1, 1, 0, 1, 0, 1], np.int32)
    q = normal(len(positions), 6, 24) * 3
    had = native.attend(
        team, q, cells, tables, lanes=lanes, positions=positions, scale=0.3, is_split=is_split
    )
    wanted = attention.attend(
        attention.Cells(k=cells[:, 0], v=cells[:, 1], tables=tables),
        q,
        lanes=lanes,
        positions=positions,
        scale=0.3,
    )
    assert_close(had, wanted, 5 * ROUNDING)


def test_attention_has_the_same_bits_however_it_is_asked(library: CpuLibrary, team: Team) -> None:
    cells, tables = scene(n_cells=1300, chunk_cells=52, dtype=np.float16)
    plain_cells, plain_tables = scene(
        n_cells=1300, chunk_cells=1300, dtype=np.float16, is_scrambled=False
    )
    # The same values lie in both: lay the scrambled ones out in order.
    for lane in range(2):
        for i, chunk in enumerate(tables[lane]):
            plain_cells[lane, :, 52 * i : 52 * (i + 1)] = cells[chunk]
    positions = np.concatenate([np.arange(560, 579), np.arange(1280, 1300)]).astype(np.int32)
    lanes = np.repeat(np.array([1, 0], np.int32), [19, 20])
    q = normal(len(positions), 4, 24)
    asked = {"lanes": lanes, "positions": positions, "scale": 0.2}
    together = native.attend(team, q, cells, tables, **asked)
    assert np.array_equal(native.attend(team, q, plain_cells, plain_tables, **asked), together)
    assert np.array_equal(native.attend(team, q, cells, tables, is_split=True, **asked), together)
    alone = Team(library, 1, level=team.level)
    for row in (0, 7, 18, 19, 38):
        one = slice(row, row + 1)
        had = native.attend(
            alone,
            q[one].copy(),
            cells,
            tables,
            lanes=lanes[one].copy(),
            positions=positions[one].copy(),
            scale=0.2,
        )
        assert np.array_equal(had, together[one])
    alone.close()


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_store_writes_only_its_own_cells(team: Team, dtype: Any) -> None:
    cells, tables = scene(n_cells=40, chunk_cells=8, dtype=dtype)
    wanted = cells.copy()
    k, v = normal(3, 2, 24), normal(3, 2, 24) + 1
    lanes, positions = np.array([1, 0, 1], np.int32), np.array([0, 39, 17], np.int32)
    attention.store_kv(
        attention.Cells(k=wanted[:, 0], v=wanted[:, 1], tables=tables),
        k,
        v,
        lanes=lanes,
        positions=positions,
    )
    native.run(
        team,
        records.StoreKv(
            is_half=dtype is np.float16,
            k=native.at(k),
            v=native.at(v),
            kv=native.place(cells, tables, lanes, positions),
            n_rows=3,
            kv_dim=48,
        ),
    )
    assert np.array_equal(cells, wanted)


# --------------------------------------------------------------------------- the library


def test_levels_agree_within_rounding(library: CpuLibrary) -> None:
    x, weight = normal(3, 576), weights(QuantType.Q4_1, 64, 576)
    results = []
    for level in Level:
        if level <= library.best_level:
            team = Team(library, 1, level=level)
            results.append(native.matmul(team, x, weight, QuantType.Q4_1))
            team.close()
    for result in results[1:]:
        assert_close(result, results[0], CODES_ROUNDING)


def test_a_level_beyond_the_processor_is_refused(library: CpuLibrary) -> None:
    if library.best_level is Level.AVX512:
        assert library.native.strata_team_start(1, int(Level.AVX512) + 1) is None
    else:
        with pytest.raises(KernelLaunchError, match="can only run"):
            Team(library, 1, level=Level(library.best_level + 1))


def test_the_level_is_what_the_system_says(library: CpuLibrary) -> None:
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        pytest.skip("processor flags are read from Linux")
    flags = set(Path("/proc/cpuinfo").read_text().split("flags", 1)[1].splitlines()[0].split())
    expected = Level.GENERIC
    if {"avx2", "fma", "f16c"} <= flags:
        expected = Level.AVX2
        if {"avx512f", "avx512dq", "avx512bw", "avx512vl", "avx512_vnni"} <= flags:
            expected = Level.AVX512
    assert library.best_level is expected


def test_records_are_laid_out_as_in_c(library: CpuLibrary) -> None:
    every = (*records.RECORDS, *LAYER_RECORDS)
    for record in every:
        assert library.native.strata_op_bytes(record.KIND) == ctypes.sizeof(record)
        assert ctypes.sizeof(record) <= records.OP_BYTES
    assert library.native.strata_op_bytes(len(every) + 1) == 0


def test_an_unknown_record_stops_the_tape_before_it_runs(team: Team) -> None:
    x, y = normal(1, 16), normal(1, 16)
    before = x.copy()
    good = records.Add(kind=8, x=native.at(x), y=native.at(y), n_rows=1, n_cols=16)
    bad = records.Add(kind=99)
    with pytest.raises(KernelLaunchError, match="Record 1 "):
        team.run(make_tape([good, bad]))
    assert np.array_equal(x, before)


def test_a_stopped_team_says_so(library: CpuLibrary) -> None:
    team = Team(library, 2)
    team.close()
    team.close()
    with pytest.raises(KernelLaunchError, match="stopped"):
        team.run(b"")


def test_a_missing_library_says_how_to_build_it(tmp_path: Path) -> None:
    with pytest.raises(KernelLaunchError, match=r"python -m kernels\.cpu\.build"):
        load_library(tmp_path / "libstrata_cpu.so")


def test_a_damaged_library_says_how_to_build_it(tmp_path: Path) -> None:
    broken = tmp_path / "libstrata_cpu.so"
    broken.write_bytes(b"not a library")
    with pytest.raises(KernelLaunchError, match=r"python -m kernels\.cpu\.build"):
        load_library(broken)


def test_a_library_of_other_sources_is_refused(
    library: CpuLibrary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert library.stamp == source_stamp()
    monkeypatch.setattr("kernels.cpu.library.source_stamp", lambda: "0" * 16)
    with pytest.raises(KernelLaunchError, match="other sources"):
        load_library()


def test_targets_are_known_by_name() -> None:
    assert find_target("windows-x86_64").file_name == "strata_cpu.dll"
    with pytest.raises(KernelCompileError, match="amiga"):
        find_target("amiga-m68k")
    assert all(target.wheel_tag and target.triple for target in TARGETS.values())
