"""The records of a tape: what each op of libstrata_cpu is told, field for field as in strata.h.

Pointers are addresses as whole numbers; whoever makes a record keeps the memory alive while a tape
with it may run. Shapes stand in strata.h; running is left to `kernels.cpu.library`.
"""

from __future__ import annotations

import ctypes
from ctypes import c_float, c_int32, c_int64, c_void_p
from typing import ClassVar

OP_BYTES = 160
"""Bytes of a record on the tape; shorter ones are filled up."""

ROPE_PAIRS = 0
ROPE_HALVES = 1
SEGMENT_CELLS = 512
"""Cells of K/V that attention sums on their own before joining them to the rest."""
STATE_FLOATS = 32
"""Floats of a partial attention sum besides its head_dim values."""


class Record(ctypes.Structure):
    """Any record; `KIND` is its number in `enum strata_kind`."""

    KIND: ClassVar[int] = 0


class Embed(Record):
    """Rows of a table by id, dequantised."""

    KIND = 1
    _fields_ = [
        ("kind", c_int32),
        ("quant", c_int32),
        ("table", c_void_p),
        ("ids", c_void_p),
        ("y", c_void_p),
        ("n_rows", c_int64),
        ("n_cols", c_int64),
        ("row_bytes", c_int64),
    ]


class RmsNorm(Record):
    """Rows over their root mean square, times a weight."""

    KIND = 2
    _fields_ = [
        ("kind", c_int32),
        ("epsilon", c_float),
        ("x", c_void_p),
        ("weight", c_void_p),
        ("y", c_void_p),
        ("n_rows", c_int64),
        ("n_cols", c_int64),
    ]


class Quantize(Record):
    """Rows to 14-bit codes in blocks of 32."""

    KIND = 3
    _fields_ = [
        ("kind", c_int32),
        ("reserved", c_int32),
        ("x", c_void_p),
        ("qs", c_void_p),
        ("ds", c_void_p),
        ("n_rows", c_int64),
        ("n_cols", c_int64),
    ]


class Matmul(Record):
    """Rows times a weight matrix."""

    KIND = 4
    _fields_ = [
        ("kind", c_int32),
        ("quant", c_int32),
        ("weight", c_void_p),
        ("x", c_void_p),
        ("qs", c_void_p),
        ("ds", c_void_p),
        ("bias", c_void_p),
        ("y", c_void_p),
        ("scratch", c_void_p),
        ("n_rows", c_int64),
        ("n_out", c_int64),
        ("n_cols", c_int64),
        ("row_bytes", c_int64),
    ]


class RopeAngles(Record):
    """Cosines and sines of rotary embedding for each row."""

    KIND = 5
    _fields_ = [
        ("kind", c_int32),
        ("magnitude", c_float),
        ("positions", c_void_p),
        ("frequencies", c_void_p),
        ("angles", c_void_p),
        ("n_rows", c_int64),
        ("n_pairs", c_int64),
    ]


class Rope(Record):
    """Rotary embedding in place."""

    KIND = 6
    _fields_ = [
        ("kind", c_int32),
        ("style", c_int32),
        ("x", c_void_p),
        ("angles", c_void_p),
        ("n_rows", c_int64),
        ("n_heads", c_int64),
        ("head_dim", c_int64),
        ("n_pairs", c_int64),
    ]


class Swiglu(Record):
    """silu(gate) * up."""

    KIND = 7
    _fields_ = [
        ("kind", c_int32),
        ("reserved", c_int32),
        ("gate", c_void_p),
        ("up", c_void_p),
        ("y", c_void_p),
        ("n_rows", c_int64),
        ("n_cols", c_int64),
    ]


class Add(Record):
    """x += y."""

    KIND = 8
    _fields_ = [
        ("kind", c_int32),
        ("reserved", c_int32),
        ("x", c_void_p),
        ("y", c_void_p),
        ("n_rows", c_int64),
        ("n_cols", c_int64),
    ]


class KvPlace(ctypes.Structure):
    """Where K and V of one layer lie, and which cells the rows stand for."""

    _fields_ = [
        ("cells", c_void_p),
        ("tables", c_void_p),
        ("lanes", c_void_p),
        ("positions", c_void_p),
        ("n_table", c_int64),
        ("chunk_cells", c_int64),
        ("chunk_bytes", c_int64),
        ("v_offset_bytes", c_int64),
    ]


class StoreKv(Record):
    """K and V rows into their cells."""

    KIND = 9
    _fields_ = [
        ("kind", c_int32),
        ("is_half", c_int32),
        ("k", c_void_p),
        ("v", c_void_p),
        ("kv", KvPlace),
        ("n_rows", c_int64),
        ("kv_dim", c_int64),
    ]


class Attend(Record):
    """Attention of each row over the cells of its lane up to its position."""

    KIND = 10
    _fields_ = [
        ("kind", c_int32),
        ("is_half", c_int32),
        ("q", c_void_p),
        ("y", c_void_p),
        ("kv", KvPlace),
        ("partials", c_void_p),
        ("scratch", c_void_p),
        ("n_rows", c_int32),
        ("n_heads", c_int32),
        ("n_kv_heads", c_int32),
        ("head_dim", c_int32),
        ("n_segments", c_int32),
        ("scale", c_float),
    ]


class AttendMerge(Record):
    """Partial sums of attention joined."""

    KIND = 11
    _fields_ = [
        ("kind", c_int32),
        ("reserved", c_int32),
        ("partials", c_void_p),
        ("positions", c_void_p),
        ("y", c_void_p),
        ("n_rows", c_int64),
        ("n_heads", c_int64),
        ("head_dim", c_int64),
        ("n_segments", c_int64),
    ]


class GatherRows(Record):
    """Some of the rows."""

    KIND = 12
    _fields_ = [
        ("kind", c_int32),
        ("reserved", c_int32),
        ("x", c_void_p),
        ("rows", c_void_p),
        ("y", c_void_p),
        ("n_rows", c_int64),
        ("n_cols", c_int64),
    ]


class Argmax(Record):
    """Index of the largest value of each row."""

    KIND = 13
    _fields_ = [
        ("kind", c_int32),
        ("reserved", c_int32),
        ("x", c_void_p),
        ("ids", c_void_p),
        ("n_rows", c_int64),
        ("n_cols", c_int64),
    ]


RECORDS: tuple[type[Record], ...] = (
    Embed,
    RmsNorm,
    Quantize,
    Matmul,
    RopeAngles,
    Rope,
    Swiglu,
    Add,
    StoreKv,
    Attend,
    AttendMerge,
    GatherRows,
    Argmax,
)
