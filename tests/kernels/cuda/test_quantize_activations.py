"""Codes of activations on the card against the definition."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.cuda.device import Device
from kernels.cuda.module import KernelSet
from kernels.cuda.quantize_activations import quantize_activations, rms_norm_quantize
from kernels.cuda.shapes import Activations, Rows
from kernels.errors import KernelLaunchError
from kernels.reference import activations
from kernels.reference.rms_norm import rms_norm
from tests.kernels.cuda.arrays import Array, poisoned, take_apart, upload_rows

pytestmark = pytest.mark.gpu

NORM_ROUNDING = 3e-6
"""Relative: a float32 sum of squares, a reciprocal root, two products."""
EPSILON = 1e-6


def hard_rows(n_rows: int, n_cols: int, seed: int) -> Array:
    """Rows with blocks of zeros, huge and tiny values."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n_rows, n_cols // 32, 32)).astype(np.float32)
    x *= np.float32(10.0) ** rng.integers(-4, 5, (n_rows, n_cols // 32, 1)).astype(np.float32)
    x[rng.random((n_rows, n_cols // 32)) < 0.1] = 0
    return x.reshape(n_rows, n_cols)


@pytest.mark.parametrize("n_planes", [1, 2])
@pytest.mark.parametrize(("n_rows", "n_cols"), [(1, 32), (3, 96), (2, 640), (8, 2560), (1, 10240)])
def test_codes_are_the_reference_bit_for_bit(
    device: Device, kernels: KernelSet, n_planes: int, n_rows: int, n_cols: int
) -> None:
    x = hard_rows(n_rows, n_cols, n_cols + n_rows)
    codes = Activations(0, n_rows, n_cols, n_planes)
    out = poisoned(device, codes.n_bytes)
    placed = Activations(out.address, n_rows, n_cols, n_planes)
    quantize_activations(kernels, device.stream, x=upload_rows(device, x), codes=placed)
    had = take_apart(out.read(np.uint8, (codes.n_bytes,)), n_rows * n_planes, n_cols)
    wanted, scales = activations.quantize(x, n_planes)
    wanted = wanted.reshape(-1, n_cols)
    np.testing.assert_array_equal(had.plain, wanted)
    np.testing.assert_array_equal(had.quads, wanted)
    np.testing.assert_array_equal(had.scales, scales.reshape(len(wanted), -1))
    np.testing.assert_array_equal(had.sums, wanted.reshape(len(wanted), -1, 2, 16).sum(axis=-1))


@pytest.mark.parametrize(("n_rows", "n_cols"), [(1, 32), (3, 640), (2, 2560), (1, 10240)])
def test_normed_rows_and_their_codes(
    device: Device, kernels: KernelSet, n_rows: int, n_cols: int
) -> None:
    rng = np.random.default_rng(n_cols)
    x = rng.standard_normal((n_rows, n_cols)).astype(np.float32)
    weight = rng.standard_normal((1, n_cols)).astype(np.float32)
    codes = Activations(0, n_rows, n_cols)
    out, y = poisoned(device, codes.n_bytes), poisoned(device, x.nbytes)
    rms_norm_quantize(
        kernels,
        device.stream,
        x=upload_rows(device, x),
        weight=upload_rows(device, weight),
        epsilon=EPSILON,
        codes=Activations(out.address, n_rows, n_cols),
        y=Rows(y.address, n_rows, n_cols),
    )
    normed = y.read(np.float32, x.shape)
    np.testing.assert_allclose(normed, rms_norm(x, weight[0], EPSILON), rtol=NORM_ROUNDING)
    had = take_apart(out.read(np.uint8, (codes.n_bytes,)), n_rows, n_cols)
    wanted, scales = activations.quantize(normed)
    np.testing.assert_array_equal(had.plain, wanted[:, 0])
    np.testing.assert_array_equal(had.scales, scales[:, 0])


def test_odd_widths_are_refused(device: Device, kernels: KernelSet) -> None:
    with pytest.raises(KernelLaunchError, match="n_cols to be a multiple of 32, but got 33"):
        quantize_activations(
            kernels, device.stream, x=Rows(256, 1, 33), codes=Activations(256, 1, 33)
        )
