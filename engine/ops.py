"""The dictionary of ops: everything an architecture may ask of a backend, with shapes.

An architecture in `engine.models` calls these in order and never sees how or where they run; a
backend in `engine.backend` implements them. Values are handles (`engine.handles`) to rows in the
backend's own memory. What each op means, number by number, is in `kernels.reference`.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from engine.handles import (
    Batch,
    DeltaShape,
    ExpertMatrix,
    ExpertWeights,
    HeadShape,
    Ids,
    LongIds,
    NgramHash,
    PageIndex,
    RopeStyle,
    Routing,
    Rows,
    Selection,
    State,
    Weight,
)

__all__ = [
    "Batch",
    "DeltaShape",
    "ExpertMatrix",
    "ExpertWeights",
    "HeadShape",
    "Ids",
    "LongIds",
    "NgramHash",
    "Ops",
    "PageIndex",
    "RopeStyle",
    "Routing",
    "Rows",
    "Selection",
    "State",
    "Weight",
]


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

    def attend(
        self,
        layer: int,
        q: Rows,
        batch: Batch,
        heads: HeadShape,
        selection: Selection | None = None,
    ) -> Rows:
        """Attend from each row over the cells 0 .. position of its lane, its own included.

        With a selection, over the chosen pages and the cells of the open one only.

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

    # Rows: copies, norms and gates.

    def repeat(self, x: Rows, n_copies: int) -> Rows:
        """Put copies of each row side by side.

        Shapes:
            x: [n_rows, n_cols]; result: [n_rows, n_copies * n_cols].
        """
        ...

    def columns(self, x: Rows, *, n_groups: int, first: int, n_taken: int) -> Rows:
        """Take some columns of each group of a row (the queries of query-and-gate heads, say).

        Shapes:
            x: [n_rows, n_groups * n_cols]; result: [n_rows, n_groups * n_taken].
        """
        ...

    def grouped_norm(self, x: Rows, weight: Weight, *, n_groups: int, epsilon: float) -> Rows:
        """Norm each group of a row as `rms_norm` does, each with weights of its own.

        Shapes:
            x, result: [n_rows, n_groups * n_cols]; weight: f32[n_groups * n_cols].
        """
        ...

    def l2_norm(self, x: Rows, *, n_heads: int, head_dim: int, epsilon: float) -> None:
        """Divide each of the first heads by its length, x / sqrt(sum(x^2) + epsilon), in place.

        Shapes:
            x: [n_rows, n_cols], n_cols at least n_heads * head_dim.
        """
        ...

    def silu(self, x: Rows, *, scale: float = 1.0) -> None:
        """Multiply x by scale and put it through silu, in place.

        Shapes:
            x: [n_rows, n_cols].
        """
        ...

    def sigmoid(self, x: Rows) -> None:
        """Put x through the logistic sigmoid, in place.

        Shapes:
            x: [n_rows, n_cols].
        """
        ...

    def gate(self, x: Rows, gate: Rows) -> None:
        """Multiply x by sigmoid(gate) in place; a gate may serve a run of values.

        Shapes:
            x: [n_rows, n_gates * n]; gate: [n_rows, n_gates].
        """
        ...

    # Recurrent layers. Rows of a lane come in the order of their positions.

    def decay(self, x: Rows, rate: Weight, bias: Weight) -> None:
        """Replace x by exp(rate * softplus(x + bias)) in place: what a state keeps of itself.

        Shapes:
            x: [n_rows, n_heads]; rate, bias: f32[n_heads].
        """
        ...

    def conv(
        self, x: Rows, weight: Weight, state: State, batch: Batch, *, dilation: int = 1
    ) -> Rows:
        """Return silu of a causal depthwise convolution over the tokens of a lane.

        The last tap is the row itself, tap j reaches (n_taps - 1 - j) * dilation tokens back.

        Shapes:
            x, result: [n_rows, n_cols]; weight: f32[n_taps, n_cols];
            state: [(n_taps - 1) * dilation, n_cols].
        """
        ...

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
        """Let each row change its lane's state and read from it.

        S = decay S; S = S + k (x) strength (v - S^T k); result S^T q / sqrt(head_dim).

        Shapes:
            qkv: [n_rows, (2 * n_key_heads + n_value_heads) * head_dim], q and k of length 1;
            decay, strength: [n_rows, n_value_heads]; state: [n_value_heads, head_dim, head_dim];
            result: [n_rows, n_value_heads * head_dim].
        """
        ...

    # Residual streams (hyper-connections).

    def mix_streams(self, x: Rows, gate: Rows, *, n_streams: int) -> Rows:
        """Return the mean over the streams of sigmoid(gate) * x.

        Shapes:
            x, gate: [n_rows, n_streams * n_cols]; result: [n_rows, n_cols].
        """
        ...

    def inject(self, x: Rows, y: Rows, gate: Rows) -> None:
        """Add 2 * sigmoid(gate / n_streams) * y to each stream of x in place.

        Shapes:
            x: [n_rows, n_streams * n_cols]; y: [n_rows, n_cols]; gate: [n_rows, n_streams].
        """
        ...

    # Mixture of experts.

    def route(self, layer: int, logits: Rows, *, n_used: int) -> Routing:
        """Pick the experts with the largest logits, and softmax over those; picks are counted.

        Shapes:
            logits: [n_rows, n_experts].
        """
        ...

    def experts(self, x: Rows, routing: Routing, weights: ExpertWeights) -> Rows:
        """Return the sum over a row's picks of share * down(silu(gate x) * (up x)).

        Shapes:
            x, result: [n_rows, d_model].
        """
        ...

    # N-gram embedding.

    def ngram_rows(self, batch: Batch, hashing: NgramHash, state: State) -> LongIds:
        """Hash each token with its predecessors to rows of the n-gram table.

        Shapes:
            state: the last n_gram - 1 ids; result: i64[n_rows * n_heads].
        """
        ...

    def embed_far(self, table: Weight, rows: LongIds, *, n_heads: int) -> Rows:
        """Look up rows of a large table, those of a token side by side.

        Shapes:
            table: [?, n_cols]; rows: i64[n_rows * n_heads]; result: [n_rows, n_heads * n_cols].
        """
        ...

    def ngram_gate(self, key: Rows, query: Rows, value: Rows) -> Rows:
        """Return sigmoid(signed root of key . query / sqrt(n_cols)) * value for each stream.

        Shapes:
            key, query, result: [n_rows, n_streams * n_cols]; value: [n_rows, n_cols].
        """
        ...

    # Block-sparse attention.

    def store_index(
        self,
        index: PageIndex,
        keys: Rows,
        batch: Batch,
        *,
        norm: Weight,
        frequencies: Weight,
        state: State,
        epsilon: float,
    ) -> None:
        """Take in raw index keys; a page's key is their mean, normed and rotated at its first cell.

        Shapes:
            keys: [n_rows, key_dim]; norm: f32[key_dim]; frequencies: f32[n_pairs];
            state: raw keys of the open page, [page_cells - 1, key_dim].
        """
        ...

    def select_pages(self, index: PageIndex, q: Rows, batch: Batch) -> Selection:
        """Choose the whole pages with the largest sum over heads of relu(q . page key).

        Shapes:
            q: [n_rows, n_heads * key_dim].
        """
        ...

    def note(self, name: str, layer: int, value: Rows | LongIds | Selection) -> None:
        """Show a value to whoever watches (tests do); costs nothing when nobody does."""
        ...
