"""The ops of plain decoders on the CPU: each writes a record on a tape that native threads run.

A tape stays valid as long as its memory does, because kernels read ids, positions and tables when
they run. So a decode step is recorded once and run again for every token. What hybrid and
mixture models need besides is in `engine.backend.cpu_layer_ops`, steps in `engine.backend.cpu`.
"""

from __future__ import annotations

from engine.backend.cpu_tape import TapeWriter, check_shapes, is_alike
from engine.errors import UnsupportedModelError
from engine.ops import Batch, HeadShape, Ids, RopeStyle, Rows, Weight
from kernels.cpu import records
from kernels.cpu.library import QuantSupport, Team
from kernels.quants import QuantType

FEW_TASKS = 32
"""With fewer (row, K/V head) pairs than this, attention is cut into segments of cells too."""


class CpuDecoderOps(TapeWriter):
    """Records the ops of plain decoders."""

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
        check_shapes(x.n_cols % weight.n_cols == 0, "rms_norm", x, weight)
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
        check_shapes(x.n_cols == weight.n_cols, "matmul", x, weight)
        check_shapes(bias is None or bias.n_cols == weight.n_rows, "matmul bias", weight, bias)
        y = self._rows(x.n_rows, weight.n_rows)
        if x.n_rows == 0:
            return y
        qs, ds = self._factors(x, weight)
        mark = self.arena.used_bytes
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
                scratch=self.arena.take(4 * self._team.n_threads * weight.n_cols),
                n_rows=x.n_rows,
                n_out=weight.n_rows,
                n_cols=weight.n_cols,
                row_bytes=weight.row_bytes,
            )
        )
        self.arena.used_bytes = mark
        return y

    def swiglu(self, gate: Rows, up: Rows) -> Rows:
        """Return silu(gate) * up."""
        check_shapes(is_alike(gate, up), "swiglu", gate, up)
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
        check_shapes(is_alike(x, y), "add", x, y)
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
        check_shapes(x.n_rows == angles.n_rows, "rope", x, angles)
        check_shapes(x.n_cols % head_dim == 0 and angles.n_cols <= head_dim, "rope", x, angles)
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
        check_shapes(is_alike(k, v) and k.n_cols == layout.kv_dim, "store_kv", k, v)
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

    def _attend(self, layer: int, q: Rows, batch: Batch, heads: HeadShape) -> Rows:
        """Attend from each row over the cells of its lane."""
        layout = self._kv.layout
        y = self._attend_output(q, heads)
        mark = self.arena.used_bytes
        n_segments = -(-layout.n_table * layout.chunk_cells // records.SEGMENT_CELLS)
        partials = self._partials(q, heads, n_segments=n_segments)
        self._record(
            records.Attend(
                kind=records.Attend.KIND,
                is_half=layout.value_bytes == 2,
                q=q.address,
                y=y.address,
                kv=self._place(layer, batch),
                partials=partials,
                scratch=self._attend_scratch(heads),
                n_rows=q.n_rows,
                n_heads=heads.n_heads,
                n_kv_heads=heads.n_kv_heads,
                head_dim=heads.head_dim,
                n_segments=n_segments,
                scale=heads.scale,
            )
        )
        if partials is not None:
            self._merge(partials, batch.positions, y, heads, n_segments=n_segments)
        self.arena.used_bytes = mark
        return y

    def _attend_output(self, q: Rows, heads: HeadShape) -> Rows:
        layout = self._kv.layout
        check_shapes(q.n_cols == heads.n_heads * heads.head_dim, "attend", q, heads)
        check_shapes(layout.kv_dim == heads.n_kv_heads * heads.head_dim, "attend", layout, heads)
        return self._rows(q.n_rows, q.n_cols)

    def _partials(self, q: Rows, heads: HeadShape, *, n_segments: int) -> int | None:
        """Return where partial sums go if rows are so few that segments are tasks too."""
        if q.n_rows * heads.n_kv_heads >= FEW_TASKS or self._team.n_threads == 1:
            return None
        state_floats = records.STATE_FLOATS + heads.head_dim
        return self.arena.take(4 * q.n_rows * heads.n_heads * n_segments * state_floats)

    def _attend_scratch(self, heads: HeadShape) -> int:
        floats = self._team.library.attend_scratch(
            n_heads=heads.n_heads, n_kv_heads=heads.n_kv_heads, head_dim=heads.head_dim
        )
        return self.arena.take(4 * self._team.n_threads * floats)

    def _merge(
        self, partials: int, lasts: Ids, y: Rows, heads: HeadShape, *, n_segments: int
    ) -> None:
        """Join partial sums; `lasts` are the last cells of each row."""
        self._record(
            records.AttendMerge(
                kind=records.AttendMerge.KIND,
                partials=partials,
                positions=lasts.address,
                y=y.address,
                n_rows=y.n_rows,
                n_heads=heads.n_heads,
                head_dim=heads.head_dim,
                n_segments=n_segments,
            )
        )

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

    def _factors(self, x: Rows, weight: Weight) -> tuple[int | None, int | None]:
        """Return addresses of codes and scales of x, or None twice where floats are multiplied."""
        support = self._team.library.quant_support(weight.quant, level=self._team.level)
        if support is QuantSupport.CODES and not self._is_exact:
            return self._quantize(x)
        return None, None


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
