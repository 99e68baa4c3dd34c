"""The dictionary of ops: everything an architecture may ask of a backend, with shapes.

An architecture in `engine.models` calls these in order and never sees how or where they run; a
backend in `engine.backend` implements them. Values are handles to rows in the backend's own memory.
What each op means, number by number, is in `kernels.reference`.
"""

from __future__ import annotations

import enum
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from kernels.quants import QuantType


@dataclass(frozen=True, slots=True)
class Rows:
    """f32[n_rows, n_cols] in the backend's memory, row after row.

    Attributes:
        address: of the first value.
        n_rows: one row a token of the batch, or a wanted one.
        n_cols: values of a row; heads lie side by side.
    """

    address: int
    n_rows: int
    n_cols: int


@dataclass(frozen=True, slots=True)
class Ids:
    """i32[n] in the backend's memory."""

    address: int
    n: int


@dataclass(frozen=True, slots=True, eq=False)
class Weight:
    """A matrix or vector of the model in its file's format; vectors have one row.

    Attributes:
        name: of the tensor, for errors.
        quant: format of its blocks.
        n_rows: outputs (or ids of a table).
        n_cols: inputs.
        blocks: u8[n_rows * row_bytes], mostly the file's own pages.
        address: of the first block in the backend's memory.
    """

    name: str
    quant: QuantType
    n_rows: int
    n_cols: int
    blocks: npt.NDArray[np.uint8] = field(repr=False)
    address: int

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return self.quant.row_bytes(self.n_cols)


class RopeStyle(enum.Enum):
    """Which values rotary embedding turns together."""

    PAIRS = "pairs"
    """Neighbours: 0 with 1, 2 with 3 (llama)."""
    HALVES = "halves"
    """One of each half: 0 with n/2 (NeoX, qwen)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Batch:
    """The rows of a step: each is one token of one lane.

    Attributes:
        ids: i32[n_rows] token ids.
        positions: i32[n_rows], also each row's cell in its lane.
        lanes: i32[n_rows].
        wanted: i32[n_wanted], rows whose logits are asked for; may be empty.
    """

    ids: Ids
    positions: Ids
    lanes: Ids
    wanted: Ids


@dataclass(frozen=True, kw_only=True, slots=True)
class HeadShape:
    """How a row of queries splits into heads.

    Attributes:
        n_heads: query heads.
        n_kv_heads: K/V heads; each serves n_heads / n_kv_heads query heads in a row.
        head_dim: values of a head.
        scale: factor of the scores, mostly 1 / sqrt(head_dim).
    """

    n_heads: int
    n_kv_heads: int
    head_dim: int
    scale: float


class Ops(Protocol):
    """What a backend can do with rows.

    A row's result depends on that row, its lane's cells and the weights only: not on the other rows
    of the batch, not on their number.
    """

    def scratch(self) -> AbstractContextManager[None]:
        """Open a scope: rows made inside it are given back at its end, rows made before stay."""
        ...

    def embed(self, table: Weight, ids: Ids) -> Rows:
        """Look up rows of a table.

        Shapes:
            table: [n_vocab, n_cols]; ids: i32[n_rows]; result: [n_rows, n_cols].
        """
        ...

    def rms_norm(self, x: Rows, weight: Weight, *, epsilon: float) -> Rows:
        """Divide by the root mean square and multiply by a weight.

        A weight narrower than x norms each run of its length on its own (heads).

        Shapes:
            x: [n_rows, n * n_cols]; weight: f32[n_cols]; result: as x.
        """
        ...

    def matmul(self, x: Rows, weight: Weight, bias: Weight | None = None) -> Rows:
        """Multiply by a weight matrix (transposed), and add a bias if there is one.

        Shapes:
            x: [n_rows, n_cols]; weight: [n_out, n_cols]; bias: f32[n_out];
            result: [n_rows, n_out].
        """
        ...

    def swiglu(self, gate: Rows, up: Rows) -> Rows:
        """Return silu(gate) * up.

        Shapes:
            gate, up, result: [n_rows, n_cols].
        """
        ...

    def add(self, x: Rows, y: Rows) -> None:
        """Add y to x in place.

        Shapes:
            x, y: [n_rows, n_cols].
        """
        ...

    def rope_angles(self, positions: Ids, frequencies: Weight, *, magnitude: float = 1.0) -> Rows:
        """Return cosine and sine of position * frequency for each row; once a step for all layers.

        Shapes:
            positions: i32[n_rows]; frequencies: f32[n_pairs]; result: [n_rows, n_pairs * 2].
        """
        ...

    def rope(self, x: Rows, angles: Rows, *, head_dim: int, style: RopeStyle) -> None:
        """Rotate the first 2 * n_pairs values of every head in place.

        Shapes:
            x: [n_rows, n_heads * head_dim]; angles: [n_rows, n_pairs * 2].
        """
        ...

    def store_kv(self, layer: int, k: Rows, v: Rows, batch: Batch) -> None:
        """Write K and V of each row into the cell of its position in its lane.

        Shapes:
            k, v: [n_rows, n_kv_heads * head_dim].
        """
        ...

    def attend(self, layer: int, q: Rows, batch: Batch, heads: HeadShape) -> Rows:
        """Attend from each row over the cells 0 .. position of its lane, its own included.

        Shapes:
            q, result: [n_rows, n_heads * head_dim].
        """
        ...

    def gather_rows(self, x: Rows, rows: Ids) -> Rows:
        """Take some of the rows.

        Shapes:
            x: [n, n_cols]; rows: i32[n_rows]; result: [n_rows, n_cols].
        """
        ...

    def argmax(self, x: Rows) -> Ids:
        """Return the index of the largest value of each row, the first of equals.

        Shapes:
            x: [n_rows, n_cols]; result: i32[n_rows].
        """
        ...
