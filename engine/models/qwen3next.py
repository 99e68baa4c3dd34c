"""Qwen3-Next: as Qwen3.5, but value heads that share a key head are neighbours.

Its tensors keep the order of the original in two places: `ssm_ba` has, for each key head, the rows
of b and then those of a for its value heads; files of early converters have `ssm_in`, for each key
head q, k, its values and their z.

Source:
    Qwen3-Next model card and the GGUF layout of `qwen3next`; delta net: Yang et al. 2024.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from engine.models.layers import DeltaInputs
from engine.models.qwen35moe import Qwen35
from engine.models.spec import DeltaSpec
from engine.models.weights import Weights

Order = npt.NDArray[np.int64]


class Qwen3Next(Qwen35):
    """The model.

    Attributes:
        spec: its dims.
        weights: every weight it uses.
    """

    is_tiled = False

    @staticmethod
    def _take_inputs(weights: Weights, at: str, delta: DeltaSpec, *, d_model: int) -> DeltaInputs:
        n_heads = delta.n_value_heads
        n_shared = n_heads // delta.n_key_heads
        beta, alpha = key_head_parts(delta.n_key_heads, (n_shared, n_shared))
        ba = at + "ssm_ba.weight"
        if weights.has(at + "ssm_in.weight"):
            dim = delta.head_dim
            n_rows = delta.qkv_dim + delta.value_dim
            q, k, v, z = key_head_parts(
                delta.n_key_heads, (dim, dim, n_shared * dim, n_shared * dim)
            )
            joined, name = np.concatenate([q, k, v]), at + "ssm_in.weight"
            qkv = weights.reordered(name, joined, n_rows=n_rows, n_cols=d_model)
            gate = weights.reordered(name, z, n_rows=n_rows, n_cols=d_model)
        else:
            qkv = weights.matrix(at + "attn_qkv.weight", n_rows=delta.qkv_dim, n_cols=d_model)
            gate = weights.matrix(at + "attn_gate.weight", n_rows=delta.value_dim, n_cols=d_model)
        return DeltaInputs(
            qkv=qkv,
            z=gate,
            alpha=weights.reordered(ba, alpha, n_rows=2 * n_heads, n_cols=d_model),
            beta=weights.reordered(ba, beta, n_rows=2 * n_heads, n_cols=d_model),
        )


def key_head_parts(n_key_heads: int, part_rows: tuple[int, ...]) -> list[Order]:
    """Return which rows each part has, where every key head brings its rows of all parts in turn.

    Shapes:
        result: i64[n_key_heads * part_rows[j]] for each part j.
    """
    rows = np.arange(n_key_heads * sum(part_rows)).reshape(n_key_heads, -1)
    stops = np.cumsum(part_rows)
    return [rows[:, stop - n : stop].reshape(-1) for stop, n in zip(stops, part_rows, strict=True)]
