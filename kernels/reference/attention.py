"""What K/V cells, chunk tables and attention over them mean.

Cell c of lane l lies in chunk tables[l, c // chunk_cells], at place c % chunk_cells.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

F32 = npt.NDArray[np.float32]
I32 = npt.NDArray[np.int32]


@dataclass(frozen=True, kw_only=True, slots=True)
class Cells:
    """K and V of one layer.

    Shapes:
        k, v: f16 or f32[n_chunks, chunk_cells, n_kv_heads, head_dim];
        tables: i32[n_lanes, n_table].
    """

    k: npt.NDArray[np.floating]
    v: npt.NDArray[np.floating]
    tables: I32

    def place(self, lane: int, cells: I32) -> tuple[I32, I32]:
        """Return chunk and place in it of some cells of a lane."""
        chunk_cells = self.k.shape[1]
        return self.tables[lane, cells // chunk_cells], cells % chunk_cells


def store_kv(cells: Cells, k: F32, v: F32, *, lanes: I32, positions: I32) -> None:
    """Write K and V of each row into the cell of its position, in place.

    Shapes:
        k, v: f32[n_rows, n_kv_heads, head_dim]; lanes, positions: i32[n_rows].
    """
    for row, (lane, position) in enumerate(zip(lanes, positions, strict=True)):
        at = cells.place(int(lane), position)
        cells.k[at] = k[row]
        cells.v[at] = v[row]


def attend(cells: Cells, q: F32, *, lanes: I32, positions: I32, scale: float) -> F32:
    """Attend from each row over the cells 0 .. position of its lane.

    Shapes:
        q: f32[n_rows, n_heads, head_dim]; lanes, positions: i32[n_rows]; result: as q.

    Source:
        Vaswani et al. 2017, equation 1; groups of query heads: Ainslie et al. 2023.
    """
    result = np.empty_like(q)
    group = q.shape[1] // cells.k.shape[2]
    for row, (lane, position) in enumerate(zip(lanes, positions, strict=True)):
        at = cells.place(int(lane), np.arange(position + 1, dtype=np.int32))
        k = np.repeat(cells.k[at].astype(np.float64), group, axis=1)
        v = np.repeat(cells.v[at].astype(np.float64), group, axis=1)
        scores = np.einsum("hd,chd->hc", q[row].astype(np.float64), k) * scale
        shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
        shares /= shares.sum(axis=-1, keepdims=True)
        result[row] = np.einsum("hc,chd->hd", shares, v)
    return result
