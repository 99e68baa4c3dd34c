"""Calls of single native ops with NumPy arrays, for tests."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from kernels.cpu import records
from kernels.cpu.library import QuantSupport, Team, make_tape
from kernels.quants import QuantType

Array = npt.NDArray[Any]


def at(array: Array | None) -> int | None:
    """Return the address of an array, which the caller keeps alive."""
    if array is None:
        return None
    assert array.flags.c_contiguous
    return int(array.ctypes.data)


def run(team: Team, *made: records.Record) -> None:
    for record in made:
        record.kind = type(record).KIND
    team.run(make_tape(list(made)))


def rms_norm(team: Team, x: Array, weight: Array, epsilon: float) -> Array:
    y = np.full_like(x, np.nan)
    run(
        team,
        records.RmsNorm(
            epsilon=epsilon,
            x=at(x),
            weight=at(weight),
            y=at(y),
            n_rows=x.shape[0],
            n_cols=x.shape[1],
        ),
    )
    return y


def quantize(team: Team, x: Array) -> tuple[Array, Array]:
    """Return codes and floats as strata_quantize writes them."""
    n_values, n_floats = team.library.code_shape(x.shape[1])
    qs = np.full((x.shape[0], n_values), 12345, np.int16)
    ds = np.full((x.shape[0], n_floats), np.nan, np.float32)
    run(
        team,
        records.Quantize(x=at(x), qs=at(qs), ds=at(ds), n_rows=x.shape[0], n_cols=x.shape[1]),
    )
    return qs, ds


def matmul(
    team: Team,
    x: Array,
    weight: Array,
    quant: QuantType,
    *,
    bias: Array | None = None,
    is_exact: bool = False,
) -> Array:
    n_rows, n_cols = x.shape
    y = np.full((n_rows, len(weight)), np.nan, np.float32)
    scratch = np.empty((team.n_threads, n_cols), np.float32)
    qs = ds = None
    support = team.library.quant_support(quant, level=team.level)
    if support is QuantSupport.CODES and not is_exact:
        qs, ds = quantize(team, x)
    run(
        team,
        records.Matmul(
            quant=quant,
            weight=at(weight),
            x=at(x),
            qs=at(qs),
            ds=at(ds),
            bias=at(bias),
            y=at(y),
            scratch=at(scratch),
            n_rows=n_rows,
            n_out=len(weight),
            n_cols=n_cols,
            row_bytes=weight.shape[1],
        ),
    )
    return y


def attend(
    team: Team,
    q: Array,
    cells: Array,
    tables: Array,
    *,
    lanes: Array,
    positions: Array,
    scale: float,
    is_split: bool = False,
) -> Array:
    """Attend over cells [n_chunks, 2, chunk_cells, n_kv_heads, head_dim]."""
    n_rows, n_heads, head_dim = q.shape
    n_kv_heads = cells.shape[3]
    y = np.full_like(q, np.nan)
    n_segments = -(-tables.shape[1] * cells.shape[2] // records.SEGMENT_CELLS)
    floats = team.library.attend_scratch(n_heads=n_heads, n_kv_heads=n_kv_heads, head_dim=head_dim)
    scratch = np.empty((team.n_threads, floats), np.float32)
    partials = np.full(
        (n_rows, n_heads, n_segments, records.STATE_FLOATS + head_dim), np.nan, np.float32
    )
    attend_record = records.Attend(
        is_half=cells.dtype == np.float16,
        q=at(q),
        y=at(y),
        kv=place(cells, tables, lanes, positions),
        partials=at(partials) if is_split else None,
        scratch=at(scratch),
        n_rows=n_rows,
        n_heads=n_heads,
        n_kv_heads=n_kv_heads,
        head_dim=head_dim,
        n_segments=n_segments,
        scale=scale,
    )
    merge = records.AttendMerge(
        partials=at(partials),
        positions=at(positions),
        y=at(y),
        n_rows=n_rows,
        n_heads=n_heads,
        head_dim=head_dim,
        n_segments=n_segments,
    )
    run(team, attend_record, *([merge] if is_split else []))
    return y


def place(cells: Array, tables: Array, lanes: Array, positions: Array) -> records.KvPlace:
    assert tables.dtype == lanes.dtype == positions.dtype == np.int32
    return records.KvPlace(
        cells=at(cells),
        tables=at(tables),
        lanes=at(lanes),
        positions=at(positions),
        n_table=tables.shape[1],
        chunk_cells=cells.shape[2],
        chunk_bytes=cells.strides[0],
        v_offset_bytes=cells.strides[1],
    )
