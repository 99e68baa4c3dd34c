"""Arrays on the device as launchers see them: address and named dims, checked before a launch.

Nothing here owns memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernels.errors import KernelLaunchError
from kernels.quants import QuantType

PIECE = 32
TILE = 256
TILE_BYTES = 576
"""Bytes of 256 activations, as activations.cuh lays them out."""
ALIGNMENT = 16


@dataclass(frozen=True, slots=True)
class Rows:
    """f32[n_rows, n_cols] on the device, row after row, aligned to 16 bytes."""

    address: int
    n_rows: int
    n_cols: int


@dataclass(frozen=True, slots=True)
class Matrix:
    """Weights on the device in their file's blocks.

    The 16 bytes in which the last row ends must be readable.

    Attributes:
        address: a multiple of 16.
        quant: their format.
        n_out: rows.
        n_cols: columns, a whole number of blocks.
    """

    address: int
    quant: QuantType
    n_out: int
    n_cols: int

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return self.quant.row_bytes(self.n_cols)


@dataclass(frozen=True, slots=True)
class Activations:
    """Rows of int8 codes with scales on the device.

    Attributes:
        address: a multiple of 64.
        n_rows: rows that were quantised.
        n_cols: values of a row, a multiple of 32.
        n_planes: 1 for codes of 8 bits, 2 for codes of 15 in two rows.
    """

    address: int
    n_rows: int
    n_cols: int
    n_planes: int = 1

    @property
    def n_bytes(self) -> int:
        """Bytes of all rows."""
        return self.n_rows * self.n_planes * activation_row_bytes(self.n_cols)


@dataclass(frozen=True, slots=True)
class Output:
    """Where a product goes: f32[n_rows, n_cols] on the device.

    Attributes:
        bias: address of f32[n_cols] to add, or 0.
        is_added: whether the product is added to what is there.
    """

    address: int
    n_rows: int
    n_cols: int
    bias: int = 0
    is_added: bool = False


def activation_row_bytes(n_cols: int) -> int:
    """Return the bytes of a row of activations; rows end with a whole tile."""
    return -(-n_cols // TILE) * TILE_BYTES


def require_equal(op: str, **dims: tuple[int, int]) -> None:
    """Raise unless every named pair of dims is equal.

    Raises:
        KernelLaunchError: names op, dim and both numbers.
    """
    for name, (wanted, had) in dims.items():
        if wanted != had:
            raise KernelLaunchError(f"{op} wants {name} = {wanted}, but got {had}.")


def require_multiple(op: str, **values: tuple[int, int]) -> None:
    """Raise unless every value is a multiple of its unit.

    Args:
        op: for the error.
        values: value and unit by name.

    Raises:
        KernelLaunchError: names op, value and unit.
    """
    for name, (value, unit) in values.items():
        if value % unit or value < 0:
            raise KernelLaunchError(
                f"{op} wants {name} to be a multiple of {unit}, but got {value}."
            )


def require_some(op: str, **counts: tuple[int, int]) -> None:
    """Raise unless every count is between 1 and its largest.

    Args:
        op: for the error.
        counts: count and largest by name.

    Raises:
        KernelLaunchError: names op, count and range.
    """
    for name, (count, largest) in counts.items():
        if not 1 <= count <= largest:
            raise KernelLaunchError(f"{op} wants {name} in 1..{largest}, but got {count}.")
