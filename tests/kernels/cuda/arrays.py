"""Arrays on the card for tests: poisoned outputs with a guard behind, activations taken apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from kernels.cuda.device import Buffer, Device
from kernels.cuda.module import KernelSet
from kernels.cuda.quantize_activations import quantize_activations
from kernels.cuda.shapes import (
    TILE_BYTES,
    Activations,
    Matrix,
    Output,
    Rows,
    activation_row_bytes,
)
from kernels.quants import QuantType

GUARD_BYTES = 256
POISON = 0xFF
"""Four of them are a NaN."""

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Guarded:
    """An output of poison with more poison behind it."""

    buffer: Buffer
    n_bytes: int

    @property
    def address(self) -> int:
        return self.buffer.address

    def read(self, dtype: npt.DTypeLike, shape: tuple[int, ...]) -> Array:
        """Return the output after checking that nothing was written behind it."""
        whole = self.buffer.read(np.uint8, (self.n_bytes + GUARD_BYTES,))
        assert (whole[self.n_bytes :] == POISON).all(), "bytes behind the output were written"
        return whole[: self.n_bytes].view(dtype).reshape(shape)


def poisoned(device: Device, n_bytes: int) -> Guarded:
    buffer = device.alloc(n_bytes + GUARD_BYTES)
    buffer.fill(POISON)
    return Guarded(buffer, n_bytes)


def upload_matrix(device: Device, blocks: Array, quant: QuantType, n_cols: int) -> Matrix:
    return Matrix(device.upload(blocks).address, quant, len(blocks), n_cols)


def upload_rows(device: Device, x: Array) -> Rows:
    return Rows(device.upload(x).address, *x.shape)


def quantized(device: Device, kernels: KernelSet, x: Array, n_planes: int = 1) -> Activations:
    codes = Activations(0, *x.shape, n_planes)
    placed = Activations(poisoned(device, codes.n_bytes).address, *x.shape, n_planes)
    quantize_activations(kernels, device.stream, x=upload_rows(device, x), codes=placed)
    return placed


@dataclass(frozen=True)
class TakenApart:
    """Activations as arrays: codes in both orders, scales, sums of half pieces."""

    plain: Array
    quads: Array
    scales: Array
    sums: Array


def take_apart(raw: Array, n_rows: int, n_cols: int) -> TakenApart:
    """Read the layout that activations.cuh describes."""
    assert raw.size == n_rows * activation_row_bytes(n_cols)
    tiles = raw.reshape(n_rows, -1, TILE_BYTES)
    n_pieces = n_cols // 32

    def in_order(codes: Array) -> Array:
        # [tile][half][piece][16] -> [tile][piece][half][16]
        halves = codes.view(np.int8).reshape(n_rows, -1, 2, 8, 16)
        return halves.swapaxes(2, 3).reshape(n_rows, -1)[:, :n_cols].astype(np.int32)

    quads = in_order(np.ascontiguousarray(tiles[:, :, 256:512]))
    heads = np.ascontiguousarray(tiles[:, :, 512:]).reshape(n_rows, -1, 8)[:, :n_pieces]
    return TakenApart(
        plain=in_order(np.ascontiguousarray(tiles[:, :, :256])),
        quads=quads.reshape(n_rows, -1, 4, 4).swapaxes(2, 3).reshape(n_rows, n_cols),
        scales=np.ascontiguousarray(heads[..., :4]).view(np.float32)[..., 0],
        sums=np.ascontiguousarray(heads[..., 4:]).view(np.int16).astype(np.int32),
    )


def output(address: int, n_rows: int, n_cols: int, **options: Any) -> Output:
    return Output(address, n_rows, n_cols, **options)
