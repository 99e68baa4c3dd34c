"""What ops take and give: handles to rows, weights and states in a backend's memory.

They say where something lies and of what shape it is; what can be done with it is in `engine.ops`.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

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
        is_streamed: a few rows are read from the file at each step; it is never loaded as a whole.
    """

    name: str
    quant: QuantType
    n_rows: int
    n_cols: int
    blocks: npt.NDArray[np.uint8] = field(repr=False)
    address: int
    is_streamed: bool = False

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return self.quant.row_bytes(self.n_cols)


@dataclass(frozen=True, slots=True)
class LongIds:
    """i64[n] in the backend's memory: rows of tables that 32 bits do not number."""

    address: int
    n: int


@dataclass(frozen=True, slots=True)
class State:
    """A part of the recurrent state of every lane; all zeros before a lane's first token.

    Attributes:
        first: its first 4-byte value within a lane's state.
        n_values: how many there are.
    """

    first: int
    n_values: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ExpertMatrix:
    """The same matrix of every expert of a layer, stacked in one tensor.

    Attributes:
        weight: the whole tensor, [n_experts * stacked_rows, n_cols].
        n_experts: experts of the layer.
        n_rows: outputs of an expert's matrix.
        first_row: its first row among the rows of its expert.
        stacked_rows: rows of an expert in the tensor; more than n_rows where two are fused.
    """

    weight: Weight
    n_experts: int
    n_rows: int
    first_row: int
    stacked_rows: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ExpertWeights:
    """The experts of a layer: down(silu(gate x) * (up x)).

    Shapes:
        gate, up: [n_experts, d_ff, d_model]; down: [n_experts, d_model, d_ff].
    """

    gate: ExpertMatrix
    up: ExpertMatrix
    down: ExpertMatrix


@dataclass(frozen=True, kw_only=True, slots=True)
class Routing:
    """Which experts each row goes to; a pick is one expert of one row.

    Attributes:
        n_used: picks of a row.
        experts: i32[n_rows * n_used], each row's best first.
        shares: f32[n_rows, n_used], 1 in sum.
        rows: i32[n_picks], the rows sorted by expert.
        places: i32[n_rows * n_used], where each pick is among those.
        groups: i32[n_groups], the experts that were picked; n_groups is the most there can be.
        firsts: i32[n_groups + 1], where the picks of each begin.
    """

    n_used: int
    experts: Ids
    shares: Rows
    rows: Ids
    places: Ids
    groups: Ids
    firsts: Ids


@dataclass(frozen=True, kw_only=True, slots=True)
class DeltaShape:
    """Heads of a gated delta net.

    Attributes:
        n_key_heads: heads of queries and of keys.
        n_value_heads: heads of values, each with a state of its own.
        head_dim: values of a head, alike for all.
        is_tiled: value head h uses key head h mod n_key_heads; otherwise those that share a key
            head are neighbours.
    """

    n_key_heads: int
    n_value_heads: int
    head_dim: int
    is_tiled: bool


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class NgramHash:
    """How a token and its predecessors name rows of the n-gram table.

    Attributes:
        multipliers: u64[n_gram], of the token itself and of each predecessor.
        offsets: u64[n_heads], first row of each hash head; orders 2 .. n_gram one after the other.
        sizes: u64[n_heads], rows of each.
        end_id: the id that cuts n-grams.
    """

    multipliers: npt.NDArray[np.uint64]
    offsets: npt.NDArray[np.uint64]
    sizes: npt.NDArray[np.uint64]
    end_id: int


@dataclass(frozen=True, kw_only=True, slots=True)
class PageIndex:
    """Index of the block-sparse attention of one layer.

    Attributes:
        layer: which of the layers that have one.
        page_cells: cells of a page.
        n_heads: query heads.
        key_dim: values of a key.
        n_most: whole pages that a row attends to at most.
    """

    layer: int
    page_cells: int
    n_heads: int
    key_dim: int
    n_most: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Selection:
    """The whole pages that each row attends to; the open page comes on top.

    Attributes:
        pages: i32[n_rows * n_most], ascending; of a row with fewer whole pages the first ones hold.
        lasts: i32[n_rows], cells attended to, those of the open page included, less one.
        n_most: whole pages of a row at most.
        page_cells: cells of a page.
    """

    pages: Ids
    lasts: Ids
    n_most: int
    page_cells: int


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
