"""The index of block-sparse attention: which pages of cells a token looks at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engine.errors import UnsupportedModelError
from engine.gguf.metadata import Metadata
from engine.models.layers import StateMap, Step
from engine.models.spec import IndexSpec, ModelSpec
from engine.models.weights import Weights
from engine.ops import Ops, PageIndex, RopeStyle, Rows, Selection, Weight


class Indexer:
    """Chooses the pages of cells that an attention layer looks at.

    Source:
        The GGUF layout of `qwen4exp`, "Block selection".
    """

    def __init__(
        self,
        weights: Weights,
        at: str,
        spec: ModelSpec,
        *,
        index: PageIndex,
        frequencies: Weight,
        states: StateMap,
    ) -> None:
        """Take the tensors whose names begin with `at`, and room for keys of the open page."""
        self._index, self._epsilon, self._frequencies = index, spec.norm_epsilon, frequencies
        d_model, key_dim = spec.d_model, index.key_dim
        q_dim = index.n_heads * key_dim
        self._q = weights.matrix(at + "indexer.q_proj.weight", n_rows=q_dim, n_cols=d_model)
        self._k = weights.matrix(at + "indexer.k_proj.weight", n_rows=key_dim, n_cols=d_model)
        self._q_norm = weights.vector(at + "indexer.q_norm.weight", key_dim)
        self._k_norm = weights.vector(at + "indexer.k_norm.weight", key_dim)
        self._state = states.take((index.page_cells - 1) * key_dim)

    def choose(self, ops: Ops, h: Rows, step: Step) -> Selection:
        """Take the rows into the index and choose pages for each."""
        index = self._index
        ops.store_index(
            index,
            ops.matmul(h, self._k),
            step.batch,
            norm=self._k_norm,
            frequencies=self._frequencies,
            state=self._state,
            epsilon=self._epsilon,
        )
        q = ops.rms_norm(ops.matmul(h, self._q), self._q_norm, epsilon=self._epsilon)
        ops.rope(q, step.angles, head_dim=index.key_dim, style=RopeStyle.HALVES)
        selection = ops.select_pages(index, q, step.batch)
        ops.note("selection", index.layer, selection)
        return selection


def read_page_indexes(
    keys: Metadata, recurrent: Sequence[bool], *, n_rotated: int
) -> dict[int, PageIndex]:
    """Return the index of each layer that chooses pages.

    Args:
        keys: of the file.
        recurrent: for each layer, whether it is one without attention.
        n_rotated: values of a key that rotary embedding turns.

    Raises:
        GGUFFormatError: a key is missing, of the wrong type or of another length.
        UnsupportedModelError: layers have pages of different sizes, a budget below one page, or
            keys too short to be rotated.
    """
    arch = keys.get_str("general.architecture")
    ratios = keys.get_per_layer(f"{arch}.attention.compress_ratios", len(recurrent), 0)
    chosen = [i for i, ratio in enumerate(ratios) if ratio > 0 and not recurrent[i]]
    if not chosen:
        return {}
    page_cells = ratios[chosen[0]]
    budget = keys.get_int(f"{arch}.attention.indexer.top_k", minimum=1)
    if any(ratios[i] != page_cells for i in chosen) or budget < page_cells or page_cells < 2:
        raise UnsupportedModelError(
            f"its sparse attention has pages of {sorted({ratios[i] for i in chosen})} tokens and a "
            f"budget of {budget}; this version wants pages of one size, 2 or more, and a budget "
            "of at least one page.",
            path=keys.path,
        )
    n_heads = keys.get_int(f"{arch}.attention.indexer.head_count", minimum=1)
    key_dim = keys.get_int(f"{arch}.attention.indexer.key_length", minimum=2)
    if key_dim < n_rotated:
        raise UnsupportedModelError(
            f"the keys of its sparse attention have {key_dim} values, of which {n_rotated} should "
            "be rotated; wanted at least as many.",
            path=keys.path,
        )
    return {
        layer: PageIndex(
            layer=number,
            page_cells=page_cells,
            n_heads=n_heads,
            key_dim=key_dim,
            n_most=budget // page_cells,
        )
        for number, layer in enumerate(chosen)
    }


def index_spec(indexes: Mapping[int, PageIndex]) -> IndexSpec | None:
    """Return the sizes that the K/V storage must know, or None if no layer has an index."""
    if not indexes:
        return None
    first = next(iter(indexes.values()))
    return IndexSpec(
        n_layers=len(indexes),
        page_cells=first.page_cells,
        key_dim=first.key_dim,
        n_heads=first.n_heads,
        budget_tokens=first.n_most * first.page_cells,
    )
