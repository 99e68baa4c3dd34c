"""Every weight format in the native kernels: weights bit for bit, products to named tolerances.

Each at every level of instructions, on random blocks whose scales are tame, and on blocks by hand.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from kernels.cpu import records
from kernels.cpu.library import CpuLibrary, Level, QuantSupport, Team
from kernels.quants import QuantType
from kernels.reference import matmul
from kernels.reference.quants import dequantize
from tests.kernels import native

Array = npt.NDArray[Any]

EXACT = 3e-6
"""Products of floats, relative to the sum of their sizes: float32 sums of a few hundred terms."""
CODES = 1e-6
"""Products of codes against the codes' own values: whole numbers are exact, few sums are floats."""

FLOATS = [QuantType.F32, QuantType.F16, QuantType.BF16]
CODED = [
    QuantType.Q4_0,
    QuantType.Q4_1,
    QuantType.Q5_0,
    QuantType.Q5_1,
    QuantType.Q8_0,
    QuantType.Q2_K,
    QuantType.Q3_K,
    QuantType.Q4_K,
    QuantType.Q5_K,
    QuantType.Q6_K,
    QuantType.IQ1_S,
    QuantType.IQ1_M,
    QuantType.IQ2_XXS,
    QuantType.IQ2_XS,
    QuantType.IQ2_S,
    QuantType.IQ3_XXS,
    QuantType.IQ3_S,
    QuantType.IQ4_NL,
    QuantType.IQ4_XS,
    QuantType.MXFP4,
    QuantType.Q2_0,
]
"""Formats that have products with activation codes."""
HALVES_AT: dict[QuantType, tuple[int, ...]] = {
    QuantType.F16: (0,),
    QuantType.Q4_1: (0, 2),
    QuantType.Q5_1: (0, 2),
    QuantType.Q2_K: (80, 82),
    QuantType.Q3_K: (108,),
    QuantType.Q4_K: (0, 2),
    QuantType.Q5_K: (0, 2),
    QuantType.Q6_K: (208,),
}
"""Where the halves of a block lie, if not at 0 only."""


def named(quant: QuantType) -> str:
    return quant.name


every_format = pytest.mark.parametrize("quant", [*FLOATS, *CODED], ids=named)
every_coded = pytest.mark.parametrize("quant", CODED, ids=named)


def tame_blocks(quant: QuantType, n_out: int, n_cols: int, *, seed: int = 3) -> Array:
    """Return rows of random blocks whose scales are ordinary numbers: u8[n_out, row_bytes]."""
    rng = np.random.default_rng([seed, int(quant)])
    if quant is QuantType.F32:
        return rng.standard_normal((n_out, n_cols)).astype("<f4").view(np.uint8)
    if quant is QuantType.BF16:
        bits = rng.standard_normal((n_out, n_cols)).astype("<f4").view("<u4") >> 16
        return bits.astype("<u2").view(np.uint8)
    n_blocks = n_out * (n_cols // quant.n_weights)
    blocks = rng.integers(0, 256, (n_blocks, quant.n_bytes), dtype=np.uint8)
    if quant is QuantType.MXFP4:
        blocks[:, 0] = rng.integers(110, 130, n_blocks)
    elif quant is QuantType.IQ1_M:  # the top bits of d: an ordinary exponent
        blocks[:, 55] = blocks[:, 55] & 0x0F | 0x30
        blocks[:, 53] = blocks[:, 53] & 0x0F | 0x40
    else:
        for at in HALVES_AT.get(quant, (0,)):
            halves = rng.uniform(0.01, 0.2, n_blocks) * rng.choice([-1, 1], n_blocks)
            blocks[:, at : at + 2] = halves.astype("<f2").reshape(-1, 1).view(np.uint8)
    return blocks.reshape(n_out, -1)


def activations(n_rows: int, n_cols: int) -> Array:
    """Return ordinary rows with a few outliers, as models have them."""
    rng = np.random.default_rng(n_rows * 10007 + n_cols)
    x = rng.standard_normal((n_rows, n_cols)).astype(np.float32)
    x[rng.integers(0, n_rows, 3), rng.integers(0, n_cols, 3)] *= 50
    return x


def sizes_of(x: Array, weights: Array) -> Array:
    """Return what errors of products are measured by: the sum of the sizes of all terms."""
    return np.abs(x).astype(np.float64) @ np.abs(weights).astype(np.float64).T + 1e-30


def embed(team: Team, table: Array, quant: QuantType, n_cols: int) -> Array:
    """Return all rows of a table as the kernels of a team read them."""
    n_rows = len(table)
    ids, y = np.arange(n_rows, dtype=np.int32), np.full((n_rows, n_cols), np.nan, np.float32)
    native.run(
        team,
        records.Embed(
            quant=quant,
            table=native.at(table),
            ids=native.at(ids),
            y=native.at(y),
            n_rows=n_rows,
            n_cols=n_cols,
            row_bytes=table.shape[1],
        ),
    )
    return y


def assert_same_bits(had: Array, wanted: Array) -> None:
    is_number = ~np.isnan(wanted)
    assert np.array_equal(np.isnan(had), np.isnan(wanted))
    assert np.array_equal(had.view(np.uint32)[is_number], wanted.view(np.uint32)[is_number])


# --------------------------------------------------------------------------- weights


@every_format
def test_weights_have_the_bits_of_their_definition(team: Team, quant: QuantType) -> None:
    # Any bits at all: scales are NaN, infinite and subnormal too.
    n_cols = 3 * max(quant.n_weights, 32)
    rng = np.random.default_rng(int(quant))
    table = rng.integers(0, 256, (40, quant.row_bytes(n_cols)), dtype=np.uint8)
    with np.errstate(all="ignore"):
        wanted = dequantize(table, quant, n_cols)
    assert_same_bits(embed(team, table, quant, n_cols), wanted)


@pytest.mark.shared
@every_coded
def test_weights_have_the_bits_of_the_golden_blocks(
    team: Team, shared_dir: Path, quant: QuantType
) -> None:
    with np.load(shared_dir / "golden" / "blocks.npz") as golden:
        for kind in ("", "mixed_"):
            wanted = golden[f"{quant.name}.{kind}values"]
            table = np.ascontiguousarray(golden[f"{quant.name}.{kind}bytes"])
            had = embed(team, table, quant, wanted.shape[1])
            assert had.tobytes() == wanted.tobytes(), kind


@every_format
def test_weights_outside_of_a_tape_have_the_same_bits(
    library: CpuLibrary, team: Team, quant: QuantType
) -> None:
    n_cols = 2 * max(quant.n_weights, 32)
    table = tame_blocks(quant, 5, n_cols)
    had = np.full((5, n_cols), np.nan, np.float32)
    status = library.native.strata_dequantize(
        int(quant), native.at(table), native.at(had), had.size
    )
    assert status == 0
    assert had.tobytes() == embed(team, table, quant, n_cols).tobytes()


def test_every_format_is_supported_at_every_level(library: CpuLibrary) -> None:
    for level in Level:
        for quant in QuantType:
            had = library.quant_support(quant, level=level)
            if quant in CODED:
                assert had is QuantSupport.CODES, quant.name
            elif quant in FLOATS:
                assert had is QuantSupport.FLOATS, quant.name
            else:
                assert had is QuantSupport.NONE, quant.name


# --------------------------------------------------------------------------- known answers

HALF = np.array([0.5], "<f2").tobytes()
ONE = np.array([1.0], "<f2").tobytes()
NIBBLES = bytes(i | (15 - i) << 4 for i in range(16))
UP, DOWN = list(range(16)), list(range(15, -1, -1))
KNOWN = {
    QuantType.F16: (HALF, [0.5]),
    QuantType.BF16: (bytes([0x49, 0x40]), [3.140625]),
    QuantType.Q4_0: (HALF + NIBBLES, [(i - 8) / 2 for i in UP + DOWN]),
    QuantType.Q4_1: (HALF + ONE + NIBBLES, [i / 2 + 1 for i in UP + DOWN]),
    QuantType.Q5_0: (
        HALF + bytes([0b10, 0, 0, 0x80]) + NIBBLES,
        [(i - 16) / 2 + (8 if k in (1, 31) else 0) for k, i in enumerate(UP + DOWN)],
    ),
    QuantType.Q5_1: (
        HALF + ONE + bytes([0, 0b10, 1, 0]) + NIBBLES,
        [i / 2 + 1 + (8 if k in (9, 16) else 0) for k, i in enumerate(UP + DOWN)],
    ),
    QuantType.Q8_0: (
        HALF + np.arange(-16, 16, dtype=np.int8).tobytes(),
        [i / 2 for i in range(-16, 16)],
    ),
    QuantType.Q2_0: (HALF + bytes([0b11100100] * 16), [-0.5, 0.0, 0.5, 1.0] * 16),
    QuantType.IQ4_NL: (ONE + bytes([0xF0] * 16), [-127.0] * 16 + [113.0] * 16),
    QuantType.MXFP4: (bytes([128]) + bytes([0xF1] * 16), [1.0] * 16 + [-12.0] * 16),
}
"""A block by hand, and its weights."""


@pytest.mark.parametrize("quant", KNOWN, ids=named)
def test_a_block_by_hand_gives_its_known_weights(team: Team, quant: QuantType) -> None:
    block, wanted = KNOWN[quant]
    n_blocks = 32 // len(wanted) if len(wanted) < 32 else 1
    row = np.frombuffer(block * n_blocks, np.uint8)[None].copy()
    wanted = wanted * n_blocks
    assert embed(team, row, quant, len(wanted))[0].tolist() == wanted
    # A product with a row that is 1 at one column and 0 elsewhere picks a weight.
    ones = np.eye(len(wanted), dtype=np.float32)
    assert np.allclose(native.matmul(team, ones, row, quant)[:, 0], wanted, rtol=1e-6, atol=1e-6)


# --------------------------------------------------------------------------- products


@every_coded
def test_every_column_meets_its_weight(team: Team, quant: QuantType) -> None:
    n_cols = max(quant.n_weights, 96 if quant.n_weights == 32 else 64)
    weight = tame_blocks(quant, 3, n_cols)
    plain = dequantize(weight, quant, n_cols)
    had = native.matmul(team, np.eye(n_cols, dtype=np.float32), weight, quant)
    largest = np.abs(plain).max()
    assert np.abs(had - plain.T).max() <= 1e-6 * 64 * largest


@pytest.mark.parametrize("n_rows", range(1, 10))
@every_coded
def test_products_of_codes_mean_their_definition(team: Team, quant: QuantType, n_rows: int) -> None:
    n_cols, n_out = (512, 21) if quant.n_weights == 256 else (64 * (n_rows + 3), 21)
    if quant.n_weights == 32:
        n_cols += 32 * (n_rows % 2)
    weight, x = tame_blocks(quant, n_out, n_cols), activations(n_rows, n_cols)
    plain = dequantize(weight, quant, n_cols)
    sizes = sizes_of(x, plain)
    had = native.matmul(team, x, weight, quant)
    of_codes = matmul.matmul_codes(x, weight, quant)
    assert (np.abs(had - of_codes) / sizes).max() < CODES
    # Against x itself: each activation is at most half a step of its code away.
    steps = np.repeat(matmul.quantize(x)[1], matmul.CODE_BLOCK, axis=1)[:, :n_cols]
    exact = x.astype(np.float64) @ plain.astype(np.float64).T
    assert (np.abs(had - exact) <= sizes_of(steps, plain) / 2 + CODES * sizes).all()


@pytest.mark.parametrize("quant", [q for q in CODED if q.n_weights < 256], ids=named)
def test_rows_may_end_anywhere_in_a_strip(team: Team, quant: QuantType) -> None:
    for n_cols in range(quant.n_weights, 600, quant.n_weights):
        weight, x = tame_blocks(quant, 3, n_cols), activations(3, n_cols)
        sizes = sizes_of(x, dequantize(weight, quant, n_cols))
        of_codes = matmul.matmul_codes(x, weight, quant)
        together = native.matmul(team, x, weight, quant)
        assert (np.abs(together - of_codes) / sizes).max() < CODES, n_cols
        alone = native.matmul(team, x[1:2].copy(), weight, quant)
        assert np.array_equal(alone[0], together[1]), n_cols


@pytest.mark.parametrize("n_rows", [1, 5])
@every_format
def test_exact_products_mean_their_definition(team: Team, quant: QuantType, n_rows: int) -> None:
    n_cols = 3 * max(quant.n_weights, 32)
    weight, x = tame_blocks(quant, 19, n_cols), activations(n_rows, n_cols)
    plain = dequantize(weight, quant, n_cols)
    had = native.matmul(team, x, weight, quant, is_exact=True)
    exact = x.astype(np.float64) @ plain.astype(np.float64).T
    assert (np.abs(had - exact) / sizes_of(x, plain)).max() < EXACT


@pytest.mark.parametrize("n_out", [1, 2, 15, 16, 17, 33, 50])
@pytest.mark.parametrize("quant", [QuantType.Q4_1, QuantType.Q6_K], ids=named)
def test_any_number_of_outputs(team: Team, quant: QuantType, n_out: int) -> None:
    weight, x = tame_blocks(quant, n_out, 256), activations(6, 256)
    bias = np.arange(n_out, dtype=np.float32)
    sizes = sizes_of(x, dequantize(weight, quant, 256)) + bias
    for n_rows in (1, 6):
        had = native.matmul(team, x[:n_rows].copy(), weight, quant, bias=bias)
        of_codes = matmul.matmul_codes(x[:n_rows], weight, quant, bias)
        assert (np.abs(had - of_codes) / sizes[:n_rows]).max() < CODES


@pytest.mark.parametrize("is_exact", [False, True], ids=["codes", "exact"])
@every_format
def test_a_product_is_the_same_in_any_company(
    library: CpuLibrary, team: Team, quant: QuantType, is_exact: bool
) -> None:
    n_cols = 512 if quant.n_weights == 256 else 320
    x, weight = activations(39, n_cols), tame_blocks(quant, 70, n_cols)
    together = native.matmul(team, x, weight, quant, is_exact=is_exact)
    for first, stop in ((0, 1), (3, 5), (4, 11), (10, 13), (14, 19), (38, 39)):
        part = native.matmul(team, x[first:stop].copy(), weight, quant, is_exact=is_exact)
        assert np.array_equal(part, together[first:stop]), (first, stop)
    for first, stop in ((0, 1), (13, 17), (5, 70)):
        some = weight[first:stop].copy()
        part = native.matmul(team, x, some, quant, is_exact=is_exact)
        assert np.array_equal(part, together[:, first:stop]), (first, stop)
    for n_threads in (1, 3):
        other = Team(library, n_threads, level=team.level)
        assert np.array_equal(native.matmul(other, x, weight, quant, is_exact=is_exact), together)
        other.close()


@every_coded
def test_blocks_may_lie_anywhere_and_nothing_else_is_read(team: Team, quant: QuantType) -> None:
    n_cols = 256 if quant.n_weights == 256 else 320 + (32 if quant.n_weights == 32 else 0)
    x, weight = activations(3, n_cols), tame_blocks(quant, 5, n_cols)
    wanted = native.matmul(team, x, weight, quant)
    for shift in (1, 3):
        held = np.full(weight.size + 64, 0xFF, np.uint8)  # halves of these bytes are NaN
        view = held[shift : shift + weight.size].reshape(weight.shape)
        view[:] = weight
        assert np.array_equal(native.matmul(team, x, view, quant), wanted)


@every_coded
def test_the_largest_codes_do_not_overflow(team: Team, quant: QuantType) -> None:
    # Scales and codes of all bits set, none set and alternating, against the largest codes of x.
    n_cols = 512
    patterns = np.array([0xFF, 0x00, 0x7F, 0x80, 0xAA], np.uint8)
    weight = np.repeat(patterns[:, None], quant.row_bytes(n_cols), axis=1)
    tame = tame_blocks(quant, 1, quant.n_weights)[0]
    blocks = weight.reshape(len(patterns), -1, quant.n_bytes)
    if quant is QuantType.MXFP4:
        blocks[:, :, 0] = 120
    elif quant is QuantType.IQ1_M:
        for at in (49, 51, 53, 55):
            blocks[:, :, at] = blocks[:, :, at] & 0x0F | tame[at] & 0xF0
    else:
        for at in HALVES_AT.get(quant, (0,)):
            blocks[:, :, at : at + 2] = tame[at : at + 2]
    plain = dequantize(weight, quant, n_cols)
    x = np.concatenate([np.full((1, n_cols), 3.0), np.full((1, n_cols), -3.0)]).astype(np.float32)
    signs = np.where(plain < 0, -3, 3).astype(np.float32)
    x = np.concatenate([x, signs, -signs])
    had = native.matmul(team, x, weight, quant)
    exact = x.astype(np.float64) @ plain.astype(np.float64).T
    # x is as large everywhere, so its codes are exact but for the rounding of their scale.
    assert (np.abs(had - exact) / sizes_of(x, plain)).max() < CODES


@every_coded
def test_levels_agree_within_rounding(library: CpuLibrary, quant: QuantType) -> None:
    n_cols = 512 if quant.n_weights == 256 else 320
    x, weight = activations(5, n_cols), tame_blocks(quant, 18, n_cols)
    sizes = sizes_of(x, dequantize(weight, quant, n_cols))
    results = []
    for level in Level:
        if level <= library.best_level:
            team = Team(library, 1, level=level)
            results.append(native.matmul(team, x, weight, quant))
            team.close()
    for result in results[1:]:
        assert (np.abs(result - results[0]) / sizes).max() < CODES


def test_rows_of_nothing_and_tiny_values_give_zeros(team: Team) -> None:
    x = np.zeros((3, 96), np.float32)
    x[1] = 1e-38
    x[2, 5] = 1
    weight = tame_blocks(QuantType.Q8_0, 4, 96)
    had = native.matmul(team, x, weight, QuantType.Q8_0)
    assert (had[:2] == 0).all()
    assert (had[2] != 0).any()
