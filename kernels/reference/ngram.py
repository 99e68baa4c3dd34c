"""What the n-gram embedding means: which rows of its table an id reads, and its gate."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kernels.reference.gates import sigmoid

F32 = npt.NDArray[np.float32]
I32 = npt.NDArray[np.int32]
U64 = npt.NDArray[np.uint64]


def ngram_rows(
    ids: I32, *, multipliers: U64, offsets: U64, sizes: U64, end_id: int
) -> npt.NDArray[np.int64]:
    """Return the rows that each id of a whole sequence reads.

    A predecessor that does not exist reads as the end id; so do all from the first end id among
    the predecessors backwards. Numbers are whole and of any size here.

    Shapes:
        ids: i32[n]; multipliers: u64[n_gram]; offsets, sizes: u64[n_heads];
        result: i64[n, n_heads].
    """
    n_gram, n_each = len(multipliers), len(sizes) // (len(multipliers) - 1)
    result = np.empty((len(ids), len(sizes)), np.int64)
    for at, own in enumerate(ids.tolist()):
        hashed, is_cut = own * int(multipliers[0]), False
        for back in range(1, n_gram):
            before = end_id if is_cut or at < back else int(ids[at - back])
            is_cut |= before == end_id
            hashed ^= before * int(multipliers[back])
            for head in range((back - 1) * n_each, back * n_each):
                result[at, head] = hashed % int(sizes[head]) + int(offsets[head])
    return result


def ngram_gate(key: F32, query: F32, value: F32) -> F32:
    """Return sigmoid(sign(z) sqrt(max(|z|, 1e-6))) * value, with z = key . query / sqrt(n_cols).

    Shapes:
        key, query, result: f32[n_rows, n_streams, n_cols]; value: f32[n_rows, n_cols].
    """
    z = np.einsum("rsc,rsc->rs", key.astype(np.float64), query.astype(np.float64))
    z /= np.sqrt(key.shape[-1])
    roots = np.sign(z) * np.sqrt(np.maximum(np.abs(z), 1e-6))
    return np.asarray(sigmoid(roots)[..., None] * value[:, None, :]).astype(np.float32)
