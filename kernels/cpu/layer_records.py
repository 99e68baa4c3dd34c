"""Records of the ops of hybrid and mixture models, field for field as in strata_layers.h.

Shapes stand there. What every record is, and those of plain decoders, is in `kernels.cpu.records`.
"""

from __future__ import annotations

import ctypes
from ctypes import c_float, c_int32, c_int64, c_void_p

from kernels.cpu.records import KvPlace, Record

SCORE_BLOCK = 256
"""Pages of the sparse attention that a task scores."""


class StatePlace(ctypes.Structure):
    """A part of the recurrent state of every lane, and the lane of each row."""

    _fields_ = [
        ("states", c_void_p),
        ("lanes", c_void_p),
        ("lane_bytes", c_int64),
    ]


class Repeat(Record):
    """Rows several times side by side."""

    KIND = 14
    _fields_ = [
        ("kind", c_int32),
        ("n_copies", c_int32),
        ("x", c_void_p),
        ("y", c_void_p),
        ("n_rows", c_int64),
        ("n_cols", c_int64),
    ]


class Columns(Record):
    """Some columns of each group of a row."""

    KIND = 15
    _fields_ = [
        ("kind", c_int32),
        ("n_groups", c_int32),
        ("x", c_void_p),
        ("y", c_void_p),
        ("n_rows", c_int64),
        ("n_cols", c_int64),
        ("first", c_int64),
        ("n_taken", c_int64),
    ]


class GroupedNorm(Record):
    """Root mean square norm of each group by itself."""

    KIND = 16
    _fields_ = [
        ("kind", c_int32),
        ("epsilon", c_float),
        ("x", c_void_p),
        ("weight", c_void_p),
        ("y", c_void_p),
        ("n_rows", c_int64),
        ("n_groups", c_int64),
        ("n_cols", c_int64),
    ]


class L2Norm(Record):
    """The first heads of each row to length 1, in place."""

    KIND = 17
    _fields_ = [
        ("kind", c_int32),
        ("epsilon", c_float),
        ("x", c_void_p),
        ("n_rows", c_int64),
        ("n_cols", c_int64),
        ("n_heads", c_int64),
        ("head_dim", c_int64),
    ]


class Silu(Record):
    """silu(scale * x), in place."""

    KIND = 18
    _fields_ = [
        ("kind", c_int32),
        ("scale", c_float),
        ("x", c_void_p),
        ("n_rows", c_int64),
        ("n_cols", c_int64),
    ]


class Sigmoid(Record):
    """sigmoid(x), in place."""

    KIND = 19
    _fields_ = [
        ("kind", c_int32),
        ("reserved", c_int32),
        ("x", c_void_p),
        ("n_rows", c_int64),
        ("n_cols", c_int64),
    ]


class Gate(Record):
    """x * sigmoid(gate), in place."""

    KIND = 20
    _fields_ = [
        ("kind", c_int32),
        ("reserved", c_int32),
        ("x", c_void_p),
        ("gate", c_void_p),
        ("n_rows", c_int64),
        ("n_cols", c_int64),
        ("n_gates", c_int64),
    ]


class Decay(Record):
    """exp(rate * softplus(x + bias)), in place."""

    KIND = 21
    _fields_ = [
        ("kind", c_int32),
        ("reserved", c_int32),
        ("x", c_void_p),
        ("rate", c_void_p),
        ("bias", c_void_p),
        ("n_rows", c_int64),
        ("n_heads", c_int64),
    ]


class Conv(Record):
    """silu of a causal depthwise convolution with a state."""

    KIND = 22
    _fields_ = [
        ("kind", c_int32),
        ("n_taps", c_int32),
        ("x", c_void_p),
        ("weight", c_void_p),
        ("y", c_void_p),
        ("state", StatePlace),
        ("n_rows", c_int64),
        ("n_cols", c_int64),
        ("dilation", c_int32),
        ("reserved", c_int32),
    ]


class Delta(Record):
    """The gated delta rule with a state."""

    KIND = 23
    _fields_ = [
        ("kind", c_int32),
        ("scale", c_float),
        ("qkv", c_void_p),
        ("decay", c_void_p),
        ("strength", c_void_p),
        ("y", c_void_p),
        ("state", StatePlace),
        ("n_rows", c_int32),
        ("n_key_heads", c_int32),
        ("n_value_heads", c_int32),
        ("head_dim", c_int32),
        ("is_tiled", c_int32),
    ]


class MixStreams(Record):
    """Mean over streams of sigmoid(gate) * x."""

    KIND = 24
    _fields_ = [
        ("kind", c_int32),
        ("n_streams", c_int32),
        ("x", c_void_p),
        ("gate", c_void_p),
        ("y", c_void_p),
        ("n_rows", c_int64),
        ("n_cols", c_int64),
    ]


class Inject(Record):
    """A block's result into every stream, in place."""

    KIND = 25
    _fields_ = [
        ("kind", c_int32),
        ("n_streams", c_int32),
        ("x", c_void_p),
        ("y", c_void_p),
        ("gate", c_void_p),
        ("n_rows", c_int64),
        ("n_cols", c_int64),
    ]


class Route(Record):
    """Best experts of each row, and their shares."""

    KIND = 26
    _fields_ = [
        ("kind", c_int32),
        ("n_used", c_int32),
        ("logits", c_void_p),
        ("experts", c_void_p),
        ("shares", c_void_p),
        ("n_rows", c_int64),
        ("n_experts", c_int64),
    ]


class GroupPicks(Record):
    """Picks of experts sorted by expert."""

    KIND = 27
    _fields_ = [
        ("kind", c_int32),
        ("n_used", c_int32),
        ("experts", c_void_p),
        ("rows", c_void_p),
        ("places", c_void_p),
        ("groups", c_void_p),
        ("firsts", c_void_p),
        ("scratch", c_void_p),
        ("counts", c_void_p),
        ("n_rows", c_int64),
        ("n_experts", c_int64),
        ("n_groups", c_int64),
    ]


class MatmulPicks(Record):
    """Picked rows times the weights of their experts."""

    KIND = 28
    _fields_ = [
        ("kind", c_int32),
        ("quant", c_int32),
        ("weight", c_void_p),
        ("x", c_void_p),
        ("qs", c_void_p),
        ("ds", c_void_p),
        ("y", c_void_p),
        ("scratch", c_void_p),
        ("groups", c_void_p),
        ("firsts", c_void_p),
        ("n_groups", c_int64),
        ("n_out", c_int64),
        ("n_cols", c_int64),
        ("row_bytes", c_int64),
        ("expert_bytes", c_int64),
    ]


class SumPicks(Record):
    """Weighted sum of the picks of each row."""

    KIND = 29
    _fields_ = [
        ("kind", c_int32),
        ("n_used", c_int32),
        ("x", c_void_p),
        ("places", c_void_p),
        ("shares", c_void_p),
        ("y", c_void_p),
        ("n_rows", c_int64),
        ("n_cols", c_int64),
    ]


class NgramRows(Record):
    """Rows of the n-gram table by hash of the last ids, with a state."""

    KIND = 30
    _fields_ = [
        ("kind", c_int32),
        ("n_gram", c_int32),
        ("ids", c_void_p),
        ("positions", c_void_p),
        ("multipliers", c_void_p),
        ("offsets", c_void_p),
        ("sizes", c_void_p),
        ("y", c_void_p),
        ("state", StatePlace),
        ("n_rows", c_int64),
        ("n_heads", c_int32),
        ("end_id", c_int32),
    ]


class EmbedFar(Record):
    """Rows of a large table by 64-bit index, dequantised."""

    KIND = 31
    _fields_ = [
        ("kind", c_int32),
        ("quant", c_int32),
        ("table", c_void_p),
        ("rows", c_void_p),
        ("y", c_void_p),
        ("n_rows", c_int64),
        ("n_cols", c_int64),
        ("row_bytes", c_int64),
    ]


class NgramGate(Record):
    """The n-gram embedding's gate on every stream."""

    KIND = 32
    _fields_ = [
        ("kind", c_int32),
        ("n_streams", c_int32),
        ("key", c_void_p),
        ("query", c_void_p),
        ("value", c_void_p),
        ("y", c_void_p),
        ("n_rows", c_int64),
        ("n_cols", c_int64),
    ]


class StoreIndex(Record):
    """Index keys of pages, with a state."""

    KIND = 33
    _fields_ = [
        ("kind", c_int32),
        ("epsilon", c_float),
        ("keys", c_void_p),
        ("norm", c_void_p),
        ("frequencies", c_void_p),
        ("kv", KvPlace),
        ("states", c_void_p),
        ("lane_bytes", c_int64),
        ("n_rows", c_int32),
        ("key_dim", c_int32),
        ("n_pairs", c_int32),
        ("page_cells", c_int32),
    ]


class ScorePages(Record):
    """Scores of the whole pages of each row."""

    KIND = 34
    _fields_ = [
        ("kind", c_int32),
        ("n_heads", c_int32),
        ("q", c_void_p),
        ("scores", c_void_p),
        ("kv", KvPlace),
        ("scratch", c_void_p),
        ("n_rows", c_int32),
        ("key_dim", c_int32),
        ("page_cells", c_int32),
        ("n_pages", c_int32),
        ("n_most", c_int32),
        ("reserved", c_int32),
    ]


class SelectPages(Record):
    """The best pages of each row."""

    KIND = 35
    _fields_ = [
        ("kind", c_int32),
        ("n_most", c_int32),
        ("scores", c_void_p),
        ("positions", c_void_p),
        ("pages", c_void_p),
        ("lasts", c_void_p),
        ("scratch", c_void_p),
        ("n_rows", c_int32),
        ("page_cells", c_int32),
        ("n_pages", c_int32),
        ("reserved", c_int32),
    ]


class AttendPages(Record):
    """Attention over chosen pages and the open one."""

    KIND = 36
    _fields_ = [
        ("kind", c_int32),
        ("is_half", c_int32),
        ("q", c_void_p),
        ("y", c_void_p),
        ("kv", KvPlace),
        ("pages", c_void_p),
        ("lasts", c_void_p),
        ("partials", c_void_p),
        ("scratch", c_void_p),
        ("n_rows", c_int32),
        ("n_heads", c_int32),
        ("n_kv_heads", c_int32),
        ("head_dim", c_int32),
        ("n_segments", c_int32),
        ("page_cells", c_int32),
        ("n_most", c_int32),
        ("scale", c_float),
    ]


LAYER_RECORDS: tuple[type[Record], ...] = (
    Repeat,
    Columns,
    GroupedNorm,
    L2Norm,
    Silu,
    Sigmoid,
    Gate,
    Decay,
    Conv,
    Delta,
    MixStreams,
    Inject,
    Route,
    GroupPicks,
    MatmulPicks,
    SumPicks,
    NgramRows,
    EmbedFar,
    NgramGate,
    StoreIndex,
    ScorePages,
    SelectPages,
    AttendPages,
)
