"""Ops of recurrent layers, residual streams and experts on the CPU, as records on a tape.

Those of plain decoders are in `engine.backend.cpu_ops`, those of n-grams and sparse attention in
`engine.backend.cpu_sparse_ops`.
"""

from __future__ import annotations

from engine.backend.cpu_ops import CpuDecoderOps
from engine.backend.cpu_tape import check_shapes, is_alike
from engine.ops import (
    Batch,
    DeltaShape,
    ExpertMatrix,
    ExpertWeights,
    Routing,
    Rows,
    State,
    Weight,
)
from kernels.cpu import layer_records


class CpuLayerOps(CpuDecoderOps):
    """Records the ops of recurrent layers, residual streams and mixtures of experts."""

    def repeat(self, x: Rows, n_copies: int) -> Rows:
        """Put copies of each row side by side."""
        y = self._rows(x.n_rows, n_copies * x.n_cols)
        self._record(
            layer_records.Repeat(
                kind=layer_records.Repeat.KIND,
                n_copies=n_copies,
                x=x.address,
                y=y.address,
                n_rows=x.n_rows,
                n_cols=x.n_cols,
            )
        )
        return y

    def columns(self, x: Rows, *, n_groups: int, first: int, n_taken: int) -> Rows:
        """Take some columns of each group of a row."""
        check_shapes(
            x.n_cols % n_groups == 0 and first + n_taken <= x.n_cols // n_groups,
            "columns",
            x,
            (n_groups, first, n_taken),
        )
        y = self._rows(x.n_rows, n_groups * n_taken)
        self._record(
            layer_records.Columns(
                kind=layer_records.Columns.KIND,
                n_groups=n_groups,
                x=x.address,
                y=y.address,
                n_rows=x.n_rows,
                n_cols=x.n_cols // n_groups,
                first=first,
                n_taken=n_taken,
            )
        )
        return y

    def grouped_norm(self, x: Rows, weight: Weight, *, n_groups: int, epsilon: float) -> Rows:
        """Norm each group of a row, each with weights of its own."""
        check_shapes(
            x.n_cols == weight.n_cols and x.n_cols % n_groups == 0, "grouped_norm", x, weight
        )
        y = self._rows(x.n_rows, x.n_cols)
        self._record(
            layer_records.GroupedNorm(
                kind=layer_records.GroupedNorm.KIND,
                epsilon=epsilon,
                x=x.address,
                weight=weight.address,
                y=y.address,
                n_rows=x.n_rows,
                n_groups=n_groups,
                n_cols=x.n_cols // n_groups,
            )
        )
        return y

    def l2_norm(self, x: Rows, *, n_heads: int, head_dim: int, epsilon: float) -> None:
        """Divide each of the first heads by its length in place."""
        check_shapes(n_heads * head_dim <= x.n_cols, "l2_norm", x, (n_heads, head_dim))
        self._changed(x)
        self._record(
            layer_records.L2Norm(
                kind=layer_records.L2Norm.KIND,
                epsilon=epsilon,
                x=x.address,
                n_rows=x.n_rows,
                n_cols=x.n_cols,
                n_heads=n_heads,
                head_dim=head_dim,
            )
        )

    def silu(self, x: Rows, *, scale: float = 1.0) -> None:
        """Multiply x by scale and put it through silu, in place."""
        self._changed(x)
        self._record(
            layer_records.Silu(
                kind=layer_records.Silu.KIND,
                scale=scale,
                x=x.address,
                n_rows=x.n_rows,
                n_cols=x.n_cols,
            )
        )

    def sigmoid(self, x: Rows) -> None:
        """Put x through the logistic sigmoid, in place."""
        self._changed(x)
        self._record(
            layer_records.Sigmoid(
                kind=layer_records.Sigmoid.KIND, x=x.address, n_rows=x.n_rows, n_cols=x.n_cols
            )
        )

    def gate(self, x: Rows, gate: Rows) -> None:
        """Multiply x by sigmoid(gate) in place."""
        check_shapes(x.n_rows == gate.n_rows and x.n_cols % gate.n_cols == 0, "gate", x, gate)
        self._changed(x)
        self._record(
            layer_records.Gate(
                kind=layer_records.Gate.KIND,
                x=x.address,
                gate=gate.address,
                n_rows=x.n_rows,
                n_cols=x.n_cols,
                n_gates=gate.n_cols,
            )
        )

    def decay(self, x: Rows, rate: Weight, bias: Weight) -> None:
        """Replace x by exp(rate * softplus(x + bias)) in place."""
        check_shapes(x.n_cols == rate.n_cols == bias.n_cols, "decay", x, (rate, bias))
        self._changed(x)
        self._record(
            layer_records.Decay(
                kind=layer_records.Decay.KIND,
                x=x.address,
                rate=rate.address,
                bias=bias.address,
                n_rows=x.n_rows,
                n_heads=x.n_cols,
            )
        )

    def conv(
        self, x: Rows, weight: Weight, state: State, batch: Batch, *, dilation: int = 1
    ) -> Rows:
        """Return silu of a causal depthwise convolution over the tokens of a lane."""
        n_kept = (weight.n_rows - 1) * dilation
        check_shapes(x.n_cols == weight.n_cols, "conv", x, weight)
        check_shapes(state.n_values == n_kept * x.n_cols, "conv", x, state)
        y = self._rows(x.n_rows, x.n_cols)
        self._record(
            layer_records.Conv(
                kind=layer_records.Conv.KIND,
                n_taps=weight.n_rows,
                x=x.address,
                weight=weight.address,
                y=y.address,
                state=self._state(state, batch),
                n_rows=x.n_rows,
                n_cols=x.n_cols,
                dilation=dilation,
            )
        )
        return y

    def delta_rule(
        self,
        qkv: Rows,
        *,
        decay: Rows,
        strength: Rows,
        state: State,
        batch: Batch,
        shape: DeltaShape,
    ) -> Rows:
        """Let each row change its lane's state and read from it."""
        n_value_heads, head_dim = shape.n_value_heads, shape.head_dim
        check_shapes(
            qkv.n_cols == (2 * shape.n_key_heads + n_value_heads) * head_dim, "delta", qkv, shape
        )
        check_shapes(is_alike(decay, strength), "delta", decay, strength)
        check_shapes(decay.n_cols == n_value_heads, "delta", decay, shape)
        check_shapes(state.n_values == n_value_heads * head_dim**2, "delta", state, shape)
        y = self._rows(qkv.n_rows, n_value_heads * head_dim)
        self._record(
            layer_records.Delta(
                kind=layer_records.Delta.KIND,
                scale=head_dim**-0.5,
                qkv=qkv.address,
                decay=decay.address,
                strength=strength.address,
                y=y.address,
                state=self._state(state, batch),
                n_rows=qkv.n_rows,
                n_key_heads=shape.n_key_heads,
                n_value_heads=n_value_heads,
                head_dim=head_dim,
                is_tiled=shape.is_tiled,
            )
        )
        return y

    def mix_streams(self, x: Rows, gate: Rows, *, n_streams: int) -> Rows:
        """Return the mean over the streams of sigmoid(gate) * x."""
        check_shapes(is_alike(x, gate) and x.n_cols % n_streams == 0, "mix_streams", x, gate)
        y = self._rows(x.n_rows, x.n_cols // n_streams)
        self._record(
            layer_records.MixStreams(
                kind=layer_records.MixStreams.KIND,
                n_streams=n_streams,
                x=x.address,
                gate=gate.address,
                y=y.address,
                n_rows=x.n_rows,
                n_cols=y.n_cols,
            )
        )
        return y

    def inject(self, x: Rows, y: Rows, gate: Rows) -> None:
        """Add 2 * sigmoid(gate / n_streams) * y to each stream of x in place."""
        check_shapes(x.n_rows == y.n_rows == gate.n_rows, "inject", x, gate)
        check_shapes(x.n_cols == gate.n_cols * y.n_cols, "inject", x, y)
        self._changed(x)
        self._record(
            layer_records.Inject(
                kind=layer_records.Inject.KIND,
                n_streams=gate.n_cols,
                x=x.address,
                y=y.address,
                gate=gate.address,
                n_rows=x.n_rows,
                n_cols=y.n_cols,
            )
        )

    def route(self, layer: int, logits: Rows, *, n_used: int) -> Routing:
        """Pick the experts with the largest logits, and softmax over those."""
        n_experts, n_picks = logits.n_cols, logits.n_rows * n_used
        check_shapes(0 < n_used <= n_experts, "route", logits, n_used)
        n_groups = min(n_picks, n_experts)
        routing = Routing(
            n_used=n_used,
            experts=self._ids(n_picks),
            shares=self._rows(logits.n_rows, n_used),
            rows=self._ids(n_picks),
            places=self._ids(n_picks),
            groups=self._ids(n_groups),
            firsts=self._ids(n_groups + 1),
        )
        self._record(
            layer_records.Route(
                kind=layer_records.Route.KIND,
                n_used=n_used,
                logits=logits.address,
                experts=routing.experts.address,
                shares=routing.shares.address,
                n_rows=logits.n_rows,
                n_experts=n_experts,
            )
        )
        self._record(
            layer_records.GroupPicks(
                kind=layer_records.GroupPicks.KIND,
                n_used=n_used,
                experts=routing.experts.address,
                rows=routing.rows.address,
                places=routing.places.address,
                groups=routing.groups.address,
                firsts=routing.firsts.address,
                scratch=self.arena.take(4 * n_experts),
                counts=self._memory.expert_counts + 8 * layer * n_experts,
                n_rows=logits.n_rows,
                n_experts=n_experts,
                n_groups=n_groups,
            )
        )
        return routing

    def experts(self, x: Rows, routing: Routing, weights: ExpertWeights) -> Rows:
        """Return the sum over a row's picks of share * down(silu(gate x) * (up x))."""
        y = self._rows(x.n_rows, weights.down.n_rows)
        with self.scratch():
            picked = self.gather_rows(x, routing.rows)
            gate = self._matmul_picks(picked, weights.gate, routing)
            up = self._matmul_picks(picked, weights.up, routing)
            results = self._matmul_picks(self.swiglu(gate, up), weights.down, routing)
            self._record(
                layer_records.SumPicks(
                    kind=layer_records.SumPicks.KIND,
                    n_used=routing.n_used,
                    x=results.address,
                    places=routing.places.address,
                    shares=routing.shares.address,
                    y=y.address,
                    n_rows=x.n_rows,
                    n_cols=y.n_cols,
                )
            )
        return y

    def _matmul_picks(self, x: Rows, matrix: ExpertMatrix, routing: Routing) -> Rows:
        """Multiply picked rows by the weights of their experts."""
        weight = matrix.weight
        check_shapes(x.n_cols == weight.n_cols, "experts", x, matrix)
        y = self._rows(x.n_rows, matrix.n_rows)
        qs, ds = self._factors(x, weight)
        mark = self.arena.used_bytes
        self._record(
            layer_records.MatmulPicks(
                kind=layer_records.MatmulPicks.KIND,
                quant=weight.quant,
                weight=weight.address + matrix.first_row * weight.row_bytes,
                x=x.address,
                qs=qs,
                ds=ds,
                y=y.address,
                scratch=self.arena.take(4 * self._team.n_threads * weight.n_cols),
                groups=routing.groups.address,
                firsts=routing.firsts.address,
                n_groups=routing.groups.n,
                n_out=matrix.n_rows,
                n_cols=weight.n_cols,
                row_bytes=weight.row_bytes,
                expert_bytes=matrix.stacked_rows * weight.row_bytes,
            )
        )
        self.arena.used_bytes = mark
        return y
