"""What block-sparse attention means: keys of pages, and which pages a row takes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kernels.reference.rms_norm import rms_norm
from kernels.reference.rope import rope, rope_angles

F32 = npt.NDArray[np.float32]
I32 = npt.NDArray[np.int32]


def page_keys(keys: F32, norm: F32, frequencies: F32, *, page_cells: int, epsilon: float) -> F32:
    """Return the key of each whole page of a sequence: mean, then norm, then rotation.

    Shapes:
        keys: f32[n_cells, key_dim]; norm: f32[key_dim]; frequencies: f32[n_pairs];
        result: f32[n_cells // page_cells, key_dim].
    """
    n_pages = len(keys) // page_cells
    pages = keys[: n_pages * page_cells].astype(np.float64).reshape(n_pages, page_cells, -1)
    normed = rms_norm(pages.mean(axis=1).astype(np.float32), norm, epsilon)
    firsts = np.arange(n_pages, dtype=np.int32) * page_cells
    return rope(normed[:, None], rope_angles(firsts, frequencies), is_pairs=False)[:, 0]


def score_pages(q: F32, page_key: F32) -> F32:
    """Return the sum over heads of max(0, q . key) for each page.

    Shapes:
        q: f32[n_heads, key_dim]; page_key: f32[n_pages, key_dim]; result: f32[n_pages].
    """
    products = q.astype(np.float64) @ page_key.astype(np.float64).T
    return np.asarray(np.maximum(products, 0).sum(axis=0)).astype(np.float32)


def select_pages(scores: F32, n_most: int) -> I32:
    """Return the pages with the highest scores, the first of equals, ascending.

    Shapes:
        scores: f32[n_pages]; result: i32[min(n_most, n_pages)].
    """
    return np.sort(np.argsort(-scores, kind="stable")[:n_most]).astype(np.int32)


def chosen_cells(pages: I32, position: int, page_cells: int) -> I32:
    """Return the cells of the chosen pages and of the open page that ends at a position.

    Shapes:
        pages: i32[n_pages]; result: i32[n_cells], ascending.
    """
    whole = (pages[:, None] * page_cells + np.arange(page_cells)).reshape(-1)
    n_cells = position + 1
    open_page = np.arange(n_cells // page_cells * page_cells, n_cells)
    return np.concatenate([whole, open_page]).astype(np.int32)
