"""Ops of n-grams and block-sparse attention on the CPU, as records; the whole dictionary.

Other ops are in `engine.backend.cpu_layer_ops` and `engine.backend.cpu_ops`.
"""

from __future__ import annotations

from engine.backend.cpu_layer_ops import CpuLayerOps
from engine.backend.cpu_tape import check_shapes, is_alike
from engine.ops import (
    Batch,
    HeadShape,
    LongIds,
    NgramHash,
    PageIndex,
    Rows,
    Selection,
    State,
    Weight,
)
from kernels.cpu import layer_records, records


class CpuOps(CpuLayerOps):
    """Records ops; implements `engine.ops.Ops`."""

    def ngram_rows(self, batch: Batch, hashing: NgramHash, state: State) -> LongIds:
        """Hash each token with its predecessors to rows of the n-gram table."""
        n_gram, n_heads = len(hashing.multipliers), len(hashing.sizes)
        check_shapes(
            n_heads % (n_gram - 1) == 0 and state.n_values == n_gram - 1,
            "ngram_rows",
            n_gram,
            state,
        )
        n_rows = batch.ids.n
        rows = LongIds(self.arena.take(8 * n_rows * n_heads), n_rows * n_heads)
        self._record(
            layer_records.NgramRows(
                kind=layer_records.NgramRows.KIND,
                n_gram=n_gram,
                ids=batch.ids.address,
                positions=batch.positions.address,
                multipliers=int(hashing.multipliers.ctypes.data),
                offsets=int(hashing.offsets.ctypes.data),
                sizes=int(hashing.sizes.ctypes.data),
                y=rows.address,
                state=self._state(state, batch),
                n_rows=n_rows,
                n_heads=n_heads,
                end_id=hashing.end_id,
            )
        )
        return rows

    def embed_far(self, table: Weight, rows: LongIds, *, n_heads: int) -> Rows:
        """Look up rows of a large table, those of a token side by side."""
        y = self._rows(rows.n // n_heads, n_heads * table.n_cols)
        self._record(
            layer_records.EmbedFar(
                kind=layer_records.EmbedFar.KIND,
                quant=table.quant,
                table=table.address,
                rows=rows.address,
                y=y.address,
                n_rows=rows.n,
                n_cols=table.n_cols,
                row_bytes=table.row_bytes,
            )
        )
        return y

    def ngram_gate(self, key: Rows, query: Rows, value: Rows) -> Rows:
        """Return sigmoid(signed root of key . query / sqrt(n_cols)) * value for each stream."""
        check_shapes(is_alike(key, query), "ngram_gate", key, query)
        check_shapes(key.n_cols % value.n_cols == 0, "ngram_gate", key, value)
        y = self._rows(key.n_rows, key.n_cols)
        self._record(
            layer_records.NgramGate(
                kind=layer_records.NgramGate.KIND,
                n_streams=key.n_cols // value.n_cols,
                key=key.address,
                query=query.address,
                value=value.address,
                y=y.address,
                n_rows=key.n_rows,
                n_cols=value.n_cols,
            )
        )
        return y

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
        """Take in raw index keys; each page that became whole gets its key."""
        check_shapes(keys.n_cols == index.key_dim == norm.n_cols, "store_index", keys, index)
        check_shapes(2 * frequencies.n_cols <= index.key_dim, "store_index", frequencies, index)
        check_shapes(
            state.n_values == (index.page_cells - 1) * index.key_dim, "store_index", state, index
        )
        states = self._memory.states
        self._record(
            layer_records.StoreIndex(
                kind=layer_records.StoreIndex.KIND,
                epsilon=epsilon,
                keys=keys.address,
                norm=norm.address,
                frequencies=frequencies.address,
                kv=self._index_place(index, batch),
                states=states.address(state),
                lane_bytes=states.lane_bytes,
                n_rows=keys.n_rows,
                key_dim=index.key_dim,
                n_pairs=frequencies.n_cols,
                page_cells=index.page_cells,
            )
        )

    def select_pages(self, index: PageIndex, q: Rows, batch: Batch) -> Selection:
        """Choose the whole pages with the largest sum over heads of relu(q . page key)."""
        check_shapes(q.n_cols == index.n_heads * index.key_dim, "select_pages", q, index)
        layout, n_threads = self._kv.layout, self._team.n_threads
        n_pages = layout.n_table * layout.chunk_cells // index.page_cells
        n_most = min(index.n_most, n_pages)
        selection = Selection(
            pages=self._ids(q.n_rows * n_most),
            lasts=self._ids(q.n_rows),
            n_most=n_most,
            page_cells=index.page_cells,
        )
        with self.scratch():
            scores = self._rows(q.n_rows, n_pages)
            floats = n_threads * index.n_heads * layer_records.SCORE_BLOCK
            self._record(
                layer_records.ScorePages(
                    kind=layer_records.ScorePages.KIND,
                    n_heads=index.n_heads,
                    q=q.address,
                    scores=scores.address,
                    kv=self._index_place(index, batch),
                    scratch=self.arena.take(4 * floats),
                    n_rows=q.n_rows,
                    key_dim=index.key_dim,
                    page_cells=index.page_cells,
                    n_pages=n_pages,
                    n_most=n_most,
                )
            )
            self._record(
                layer_records.SelectPages(
                    kind=layer_records.SelectPages.KIND,
                    n_most=n_most,
                    scores=scores.address,
                    positions=batch.positions.address,
                    pages=selection.pages.address,
                    lasts=selection.lasts.address,
                    scratch=self.arena.take(4 * n_threads * n_pages),
                    n_rows=q.n_rows,
                    page_cells=index.page_cells,
                    n_pages=n_pages,
                )
            )
        return selection

    def attend(
        self,
        layer: int,
        q: Rows,
        batch: Batch,
        heads: HeadShape,
        selection: Selection | None = None,
    ) -> Rows:
        """Attend from each row over the cells of its lane, or over those of chosen pages."""
        if selection is None:
            return self._attend(layer, q, batch, heads)
        layout = self._kv.layout
        y = self._attend_output(q, heads)
        mark = self.arena.used_bytes
        n_cells = min(
            layout.n_table * layout.chunk_cells,
            (selection.n_most + 1) * selection.page_cells - 1,
        )
        n_segments = -(-n_cells // records.SEGMENT_CELLS)
        partials = self._partials(q, heads, n_segments=n_segments)
        self._record(
            layer_records.AttendPages(
                kind=layer_records.AttendPages.KIND,
                is_half=layout.value_bytes == 2,
                q=q.address,
                y=y.address,
                kv=self._place(layer, batch),
                pages=selection.pages.address,
                lasts=selection.lasts.address,
                partials=partials,
                scratch=self._attend_scratch(heads),
                n_rows=q.n_rows,
                n_heads=heads.n_heads,
                n_kv_heads=heads.n_kv_heads,
                head_dim=heads.head_dim,
                n_segments=n_segments,
                page_cells=selection.page_cells,
                n_most=selection.n_most,
                scale=heads.scale,
            )
        )
        if partials is not None:
            self._merge(partials, selection.lasts, y, heads, n_segments=n_segments)
        self.arena.used_bytes = mark
        return y

    def _index_place(self, index: PageIndex, batch: Batch) -> records.KvPlace:
        layout = self._kv.layout
        is_right = layout.index_dim == index.key_dim and layout.page_cells == index.page_cells
        check_shapes(is_right and index.layer < layout.n_index_layers, "index", layout, index)
        return records.KvPlace(
            cells=self._kv.index_address(index.layer),
            tables=int(self._kv.tables.ctypes.data),
            lanes=batch.lanes.address,
            positions=batch.positions.address,
            n_table=layout.n_table,
            chunk_cells=layout.chunk_cells,
            chunk_bytes=layout.chunk_bytes,
            v_offset_bytes=0,
        )
