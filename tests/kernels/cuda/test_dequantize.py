"""Rows of every weight format on the card against the definition, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.cuda.dequantize import dequantize
from kernels.cuda.device import Device
from kernels.cuda.matvec import CODED, FLOATS
from kernels.cuda.module import KernelSet
from kernels.cuda.shapes import Rows
from kernels.quants import QuantType
from kernels.reference import quants
from tests.kernels.cuda.arrays import poisoned, upload_matrix
from tests.kernels.cuda.random_blocks import random_matrix

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("quant", [*FLOATS, *CODED], ids=lambda quant: quant.name)
@pytest.mark.parametrize("n_blocks", [1, 3, 21])
def test_rows_are_the_reference_bit_for_bit(
    device: Device, kernels: KernelSet, quant: QuantType, n_blocks: int
) -> None:
    rng = np.random.default_rng([int(quant), n_blocks])
    n_cols = quant.n_weights * n_blocks
    blocks = random_matrix(quant, 9, n_cols, rng)
    y = poisoned(device, 9 * n_cols * 4)
    weight = upload_matrix(device, blocks, quant, n_cols)
    dequantize(kernels, device.stream, weight=weight, y=Rows(y.address, 9, n_cols))
    had = y.read(np.uint32, (9, n_cols))
    np.testing.assert_array_equal(had, quants.dequantize(blocks, quant, n_cols).view(np.uint32))


@pytest.mark.parametrize("quant", [QuantType.Q2_0, QuantType.Q8_0, QuantType.BF16])
def test_rows_are_picked_by_their_ids(device: Device, kernels: KernelSet, quant: QuantType) -> None:
    rng = np.random.default_rng(5)
    blocks = random_matrix(quant, 50, 5120, rng)
    ids = np.array([49, 0, 7, 7, 31], np.int32)
    y = poisoned(device, len(ids) * 5120 * 4)
    dequantize(
        kernels,
        device.stream,
        weight=upload_matrix(device, blocks, quant, 5120),
        y=Rows(y.address, len(ids), 5120),
        row_ids=device.upload(ids).address,
    )
    wanted = quants.dequantize(blocks[ids], quant, 5120)
    np.testing.assert_array_equal(y.read(np.float32, wanted.shape), wanted)


@pytest.mark.parametrize("quant", [QuantType.Q4_K, QuantType.IQ2_XS, QuantType.F32])
def test_half_output_is_the_rounded_value(
    device: Device, kernels: KernelSet, quant: QuantType
) -> None:
    blocks = random_matrix(quant, 4, 512, np.random.default_rng(6))
    y = poisoned(device, 4 * 512 * 2)
    weight = upload_matrix(device, blocks, quant, 512)
    dequantize(kernels, device.stream, weight=weight, y=Rows(y.address, 4, 512), is_half=True)
    wanted = quants.dequantize(blocks, quant, 512).astype(np.float16)
    np.testing.assert_array_equal(y.read(np.float16, (4, 512)), wanted)
