"""Products of every weight format with 1 to 8 rows against the definition in float64."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.cuda.device import Device
from kernels.cuda.matvec import CODED, FLOATS, matvec, matvec_float
from kernels.cuda.module import KernelSet
from kernels.cuda.shapes import Activations, Matrix, Output
from kernels.errors import KernelLaunchError
from kernels.quants import QuantType
from kernels.reference import activations
from kernels.reference.quants import dequantize
from tests.kernels.cuda.arrays import (
    Array,
    poisoned,
    quantized,
    upload_matrix,
    upload_rows,
)
from tests.kernels.cuda.random_blocks import random_matrix

pytestmark = pytest.mark.gpu

ROUNDING = 2e-6
"""Of the sum of magnitudes: float32 sums of exact products of up to 10,240 terms, by parts."""
INT8_ERROR = 0.012
"""Of the norm of the result: 8-bit codes, one scale for 32 normal values."""
INT15_ERROR = 1e-4
"""The same with two planes."""


def product(
    device: Device, kernels: KernelSet, weight: Matrix, x: Array, *, n_planes: int = 1
) -> Array:
    y = poisoned(device, len(x) * weight.n_out * 4)
    out = Output(y.address, len(x), weight.n_out)
    if weight.quant in FLOATS:
        matvec_float(kernels, device.stream, weight=weight, x=upload_rows(device, x), y=out)
    else:
        codes = quantized(device, kernels, x, n_planes)
        matvec(kernels, device.stream, weight=weight, x=codes, y=out)
    return y.read(np.float32, (len(x), weight.n_out))


def assert_close(had: Array, x: Array, blocks: Array, quant: QuantType, n_planes: int = 1) -> None:
    wanted = activations.matvec(x, blocks, quant, n_planes)
    magnitudes = np.abs(x).astype(np.float64) @ np.abs(dequantize(blocks, quant, x.shape[1])).T
    assert np.isfinite(had).all()
    assert (np.abs(had - wanted) <= ROUNDING * magnitudes + 1e-30).all()


def case(quant: QuantType, n_rows: int, n_out: int, n_cols: int) -> tuple[Array, Array]:
    rng = np.random.default_rng([int(quant), n_rows, n_out, n_cols])
    x = rng.standard_normal((n_rows, n_cols)).astype(np.float32)
    return random_matrix(quant, n_out, n_cols, rng), x


@pytest.mark.parametrize("n_rows", range(1, 9))
@pytest.mark.parametrize("quant", [*FLOATS, *CODED], ids=lambda quant: quant.name)
def test_every_format_and_row_count(
    device: Device, kernels: KernelSet, quant: QuantType, n_rows: int
) -> None:
    blocks, x = case(quant, n_rows, 75, 768)
    had = product(device, kernels, upload_matrix(device, blocks, quant, 768), x)
    assert_close(had, x, blocks, quant)


@pytest.mark.parametrize("n_out", [1, 33, 640])
@pytest.mark.parametrize("n_blocks", [1, 3, 10, 24, 40])
@pytest.mark.parametrize("quant", CODED, ids=lambda quant: quant.name)
def test_odd_shapes(
    device: Device, kernels: KernelSet, quant: QuantType, n_blocks: int, n_out: int
) -> None:
    n_cols = n_blocks * quant.n_weights
    for n_rows in (1, 3):
        blocks, x = case(quant, n_rows, n_out, n_cols)
        had = product(device, kernels, upload_matrix(device, blocks, quant, n_cols), x)
        assert_close(had, x, blocks, quant)


@pytest.mark.parametrize(("n_out", "n_cols"), [(1, 1), (3, 7), (512, 2560), (320, 10240), (9, 320)])
@pytest.mark.parametrize("quant", FLOATS, ids=lambda quant: quant.name)
def test_odd_shapes_of_floats(
    device: Device, kernels: KernelSet, quant: QuantType, n_out: int, n_cols: int
) -> None:
    for n_rows in (1, 5):
        blocks, x = case(quant, n_rows, n_out, n_cols)
        had = product(device, kernels, upload_matrix(device, blocks, quant, n_cols), x)
        assert_close(had, x, blocks, quant)


@pytest.mark.parametrize("quant", [*FLOATS, *CODED], ids=lambda quant: quant.name)
def test_a_row_is_the_same_bits_in_any_company(
    device: Device, kernels: KernelSet, quant: QuantType
) -> None:
    blocks, x = case(quant, 8, 100, 2560)
    weight = upload_matrix(device, blocks, quant, 2560)
    alone = np.concatenate([product(device, kernels, weight, x[i : i + 1]) for i in range(8)])
    for n_rows in range(2, 9):
        together = product(device, kernels, weight, x[:n_rows])
        np.testing.assert_array_equal(together.view(np.uint32), alone[:n_rows].view(np.uint32))


@pytest.mark.parametrize("n_rows", [1, 2, 3, 4])
@pytest.mark.parametrize("quant", CODED, ids=lambda quant: quant.name)
def test_two_planes_are_nearly_exact(
    device: Device, kernels: KernelSet, quant: QuantType, n_rows: int
) -> None:
    blocks, x = case(quant, n_rows, 64, 1536)
    weight = upload_matrix(device, blocks, quant, 1536)
    exact = x.astype(np.float64) @ dequantize(blocks, quant, 1536).astype(np.float64).T
    for n_planes, limit in ((1, INT8_ERROR), (2, INT15_ERROR)):
        had = product(device, kernels, weight, x, n_planes=n_planes)
        assert np.linalg.norm(had - exact) <= limit * np.linalg.norm(exact)


def test_bias_and_adding(device: Device, kernels: KernelSet) -> None:
    for quant in (QuantType.Q4_K, QuantType.F16):
        blocks, x = case(quant, 2, 50, 256)
        rng = np.random.default_rng(3)
        bias = rng.standard_normal(50).astype(np.float32)
        before = rng.standard_normal((2, 50)).astype(np.float32)
        weight = upload_matrix(device, blocks, quant, 256)
        y = device.upload(before)
        out = Output(y.address, 2, 50, bias=device.upload(bias).address, is_added=True)
        if quant in FLOATS:
            matvec_float(kernels, device.stream, weight=weight, x=upload_rows(device, x), y=out)
        else:
            codes = quantized(device, kernels, x)
            matvec(kernels, device.stream, weight=weight, x=codes, y=out)
        plain = product(device, kernels, weight, x)
        np.testing.assert_array_equal(y.read(np.float32, (2, 50)), before + (plain + bias))


def test_shapes_that_do_not_fit_are_refused(device: Device, kernels: KernelSet) -> None:
    weight = Matrix(256, QuantType.Q8_0, 8, 64)
    for x, y, said in (
        (Activations(256, 1, 32), Output(256, 1, 8), "n_cols = 64, but got 32"),
        (Activations(256, 1, 64), Output(256, 1, 9), "n_out = 8, but got 9"),
        (Activations(256, 2, 64), Output(256, 1, 8), "n_rows = 2, but got 1"),
        (Activations(256, 9, 64), Output(256, 9, 8), "n_rows in 1..8, but got 9"),
        (Activations(256, 5, 64, 2), Output(256, 5, 8), "n_rows in 1..4, but got 5"),
    ):
        with pytest.raises(KernelLaunchError, match=said):
            matvec(kernels, device.stream, weight=weight, x=x, y=y)
