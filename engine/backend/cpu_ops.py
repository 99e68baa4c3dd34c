"""The ops on the CPU: each call writes a record on a tape, which native threads then run.

A tape stays valid as long as its memory does, because kernels read ids, positions and tables when
they run. So a decode step is recorded once and run again for every token. Steps are left to
`engine.backend.cpu`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from engine.errors import UnsupportedModelError
from engine.memory.kv_pool import KvStorage
from engine.ops import Batch, HeadShape, Ids, RopeStyle, Rows, Weight
from kernels.cpu import records
from kernels.cpu.library import QuantSupport, Team
from kernels.quants import QuantType

ALIGNMENT_BYTES = 64
"""A cache line; also what the widest vector loads like."""

FEW_TASKS = 32
"""With fewer (row, K/V head) pairs than this, attention is cut into segments of cells too."""


@dataclass(slots=True)
class Arena:
    """Stack of working memory: addresses from `base` on, no memory of its own.

    Attributes:
        base: first address.
        used_bytes: in use now.
        peak_bytes: most in use so far.
    """

    base: int
    used_bytes: int = 0
    peak_bytes: int = 0

    def take(self, n_bytes: int) -> int:
        """Return the address of the next `n_bytes`."""
        address = self.base + self.used_bytes
        self.used_bytes += -(-n_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        self.peak_bytes = max(self.peak_bytes, self.used_bytes)
        return address


class CpuOps:
    """Records ops; implements `engine.ops.Ops`.

    Attributes:
        recorded: the records so far.
        arena: where rows lie.
    """

    def __init__(self, team: Team, kv: KvStorage, arena: Arena, *, is_exact: bool) -> None:
        self.recorded: list[records.Record] = []
        self.arena = arena
        self._team = team
        self._kv = kv
        self._is_exact = is_exact
        self._codes: tuple[Rows, int, int] | None = None

    @contextmanager
    def scratch(self) -> Iterator[None]:
        """Give back at the end what was made inside."""
        mark = self.arena.used_bytes
        yield
        self.arena.used_bytes = mark
        self._codes = None

    def embed(self, table: Weight, ids: Ids) -> Rows:
        """Look up rows of a table."""
        y = self._rows(ids.n, table.n_cols)
        self._record(
            records.Embed(
                kind=records.Embed.KIND,
                quant=table.quant,
                table=table.address,
                ids=ids.address,
                y=y.address,
                n_rows=ids.n,
                n_cols=table.n_cols,
                row_bytes=table.row_bytes,
            )
        )
        return y

    def rms_norm(self, x: Rows, weight: Weight, *, epsilon: float) -> Rows:
        """Divide by the root mean square and multiply by a weight."""
        _check(x.n_cols % weight.n_cols == 0, "rms_norm", x, weight)
        y = self._rows(x.n_rows, x.n_cols)
        self._record(
            records.RmsNorm(
                kind=records.RmsNorm.KIND,
                epsilon=epsilon,
                x=x.address,
                weight=weight.address,
                y=y.address,
                n_rows=x.n_rows * (x.n_cols // weight.n_cols),
                n_cols=weight.n_cols,
            )
        )
        return y

    def matmul(self, x: Rows, weight: Weight, bias: Weight | None = None) -> Rows:
        """Multiply by a weight matrix, with codes of x unless exact."""
        _check(x.n_cols == weight.n_cols, "matmul", x, weight)
        _check(bias is None or bias.n_cols == weight.n_rows, "matmul bias", weight, bias)
        support = self._team.library.quant_support(weight.quant, level=self._team.level)
        y = self._rows(x.n_rows, weight.n_rows)
        if x.n_rows == 0:
            return y
        mark = self.arena.used_bytes
        qs = ds = scratch = None
        if support is QuantSupport.CODES and not self._is_exact:
            qs, ds = self._quantize(x)
        else:
            scratch = self.arena.take(4 * self._team.n_threads * weight.n_cols)
        self._record(
            records.Matmul(
                kind=records.Matmul.KIND,
                quant=weight.quant,
                weight=weight.address,
                x=x.address,
                qs=qs,
                ds=ds,
                bias=None if bias is None else bias.address,
                y=y.address,
                scratch=scratch,
                n_rows=x.n_rows,
                n_out=weight.n_rows,
                n_cols=weight.n_cols,
                row_bytes=weight.row_bytes,
            )
        )
        if scratch is not None:
            self.arena.used_bytes = mark
        return y

    def swiglu(self, gate: Rows, up: Rows) -> Rows:
        """Return silu(gate) * up."""
        _check(_is_alike(gate, up), "swiglu", gate, up)
        y = self._rows(gate.n_rows, gate.n_cols)
        self._record(
            records.Swiglu(
                kind=records.Swiglu.KIND,
                gate=gate.address,
                up=up.address,
                y=y.address,
                n_rows=gate.n_rows,
                n_cols=gate.n_cols,
            )
        )
        return y

    def add(self, x: Rows, y: Rows) -> None:
        """Add y to x in place."""
        _check(_is_alike(x, y), "add", x, y)
        self._changed(x)
        self._record(
            records.Add(
                kind=records.Add.KIND,
                x=x.address,
                y=y.address,
                n_rows=x.n_rows,
                n_cols=x.n_cols,
            )
        )

    def rope_angles(self, positions: Ids, frequencies: Weight, *, magnitude: float = 1.0) -> Rows:
        """Return cosine and sine of position * frequency for each row."""
        angles = self._rows(positions.n, 2 * frequencies.n_cols)
        self._record(
            records.RopeAngles(
                kind=records.RopeAngles.KIND,
                magnitude=magnitude,
                positions=positions.address,
                frequencies=frequencies.address,
                angles=angles.address,
                n_rows=positions.n,
                n_pairs=frequencies.n_cols,
            )
        )
        return angles

    def rope(self, x: Rows, angles: Rows, *, head_dim: int, style: RopeStyle) -> None:
        """Rotate the first values of every head in place."""
        _check(x.n_rows == angles.n_rows, "rope", x, angles)
        _check(x.n_cols % head_dim == 0 and angles.n_cols <= head_dim, "rope", x, angles)
        self._changed(x)
        is_pairs = style is RopeStyle.PAIRS
        self._record(
            records.Rope(
                kind=records.Rope.KIND,
                style=records.ROPE_PAIRS if is_pairs else records.ROPE_HALVES,
                x=x.address,
                angles=angles.address,
                n_rows=x.n_rows,
                n_heads=x.n_cols // head_dim,
                head_dim=head_dim,
                n_pairs=angles.n_cols // 2,
            )
        )

    def store_kv(self, layer: int, k: Rows, v: Rows, batch: Batch) -> None:
        """Write K and V of each row into its cell."""
        layout = self._kv.layout
        _check(_is_alike(k, v) and k.n_cols == layout.kv_dim, "store_kv", k, v)
        self._record(
            records.StoreKv(
                kind=records.StoreKv.KIND,
                is_half=layout.value_bytes == 2,
                k=k.address,
                v=v.address,
                kv=self._place(layer, batch),
                n_rows=k.n_rows,
                kv_dim=k.n_cols,
            )
        )

    def attend(self, layer: int, q: Rows, batch: Batch, heads: HeadShape) -> Rows:
        """Attend from each row over the cells of its lane."""
        layout = self._kv.layout
        _check(q.n_cols == heads.n_heads * heads.head_dim, "attend", q, heads)
        _check(layout.kv_dim == heads.n_kv_heads * heads.head_dim, "attend", layout, heads)
        y = self._rows(q.n_rows, q.n_cols)
        mark = self.arena.used_bytes
        n_segments = -(-layout.n_table * layout.chunk_cells // records.SEGMENT_CELLS)
        partials = None
        if q.n_rows * heads.n_kv_heads < FEW_TASKS and self._team.n_threads > 1:
            state_floats = records.STATE_FLOATS + heads.head_dim
            partials = self.arena.take(4 * q.n_rows * heads.n_heads * n_segments * state_floats)
        floats = self._team.library.attend_scratch(
            n_heads=heads.n_heads, n_kv_heads=heads.n_kv_heads, head_dim=heads.head_dim
        )
        self._record(
            records.Attend(
                kind=records.Attend.KIND,
                is_half=layout.value_bytes == 2,
                q=q.address,
                y=y.address,
                kv=self._place(layer, batch),
                partials=partials,
                scratch=self.arena.take(4 * self._team.n_threads * floats),
                n_rows=q.n_rows,
                n_heads=heads.n_heads,
                n_kv_heads=heads.n_kv_heads,
                head_dim=heads.head_dim,
                n_segments=n_segments,
                scale=heads.scale,
            )
        )
        if partials is not None:
            self._record(
                records.AttendMerge(
                    kind=records.AttendMerge.KIND,
                    partials=partials,
                    positions=batch.positions.address,
                    y=y.address,
                    n_rows=q.n_rows,
                    n_heads=heads.n_heads,
                    head_dim=heads.head_dim,
                    n_segments=n_segments,
                )
            )
        self.arena.used_bytes = mark
        return y

    def gather_rows(self, x: Rows, rows: Ids) -> Rows:
        """Take some of the rows."""
        y = self._rows(rows.n, x.n_cols)
        self._record(
            records.GatherRows(
                kind=records.GatherRows.KIND,
                x=x.address,
                rows=rows.address,
                y=y.address,
                n_rows=rows.n,
                n_cols=x.n_cols,
            )
        )
        return y

    def argmax(self, x: Rows) -> Ids:
        """Return the index of the largest value of each row."""
        ids = Ids(self.arena.take(4 * x.n_rows), x.n_rows)
        self._record(
            records.Argmax(
                kind=records.Argmax.KIND,
                x=x.address,
                ids=ids.address,
                n_rows=x.n_rows,
                n_cols=x.n_cols,
            )
        )
        return ids

    def _rows(self, n_rows: int, n_cols: int) -> Rows:
        return Rows(self.arena.take(4 * n_rows * n_cols), n_rows, n_cols)

    def _record(self, record: records.Record) -> None:
        self.recorded.append(record)

    def _quantize(self, x: Rows) -> tuple[int, int]:
        """Return addresses of codes and scales of x; made once for several products of it."""
        if self._codes is not None and self._codes[0] is x:
            return self._codes[1:]
        qs = self.arena.take(2 * x.n_rows * x.n_cols)
        ds = self.arena.take(x.n_rows * x.n_cols // 4)
        self._record(
            records.Quantize(
                kind=records.Quantize.KIND,
                x=x.address,
                qs=qs,
                ds=ds,
                n_rows=x.n_rows,
                n_cols=x.n_cols,
            )
        )
        self._codes = (x, qs, ds)
        return qs, ds

    def _changed(self, x: Rows) -> None:
        """Forget codes of rows that an op changes in place."""
        if self._codes is not None and self._codes[0].address == x.address:
            self._codes = None

    def _place(self, layer: int, batch: Batch) -> records.KvPlace:
        layout = self._kv.layout
        if not 0 <= layer < layout.n_layers:
            raise ValueError(f"There is no K/V layer {layer}; there are {layout.n_layers}.")
        return records.KvPlace(
            cells=self._kv.layer_address(layer),
            tables=int(self._kv.tables.ctypes.data),
            lanes=batch.lanes.address,
            positions=batch.positions.address,
            n_table=layout.n_table,
            chunk_cells=layout.chunk_cells,
            chunk_bytes=layout.chunk_bytes,
            v_offset_bytes=layout.part_bytes,
        )


def check_weights(team: Team, weights: tuple[Weight, ...]) -> None:
    """Check that every weight's format can be computed with.

    Raises:
        UnsupportedModelError: a format has no kernel; the text names the tensor.
    """
    for weight in weights:
        if team.library.quant_support(weight.quant, level=team.level) is QuantSupport.NONE:
            known = [
                quant.name
                for quant in QuantType
                if team.library.quant_support(quant, level=team.level) is not QuantSupport.NONE
            ]
            raise UnsupportedModelError(
                f"the tensor {weight.name!r} is in {weight.quant.name}, which the CPU kernels of "
                f"this version do not read; they read {', '.join(known)}."
            )


def _is_alike(x: Rows, y: Rows) -> bool:
    return (x.n_rows, x.n_cols) == (y.n_rows, y.n_cols)


def _check(is_right: bool, op: str, left: object, right: object) -> None:  # noqa: FBT001
    """Raise for a model that calls an op with shapes that do not fit."""
    if not is_right:
        raise ValueError(f"{op} was called with shapes that do not fit: {left} and {right}.")
