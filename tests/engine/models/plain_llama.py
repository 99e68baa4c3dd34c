"""A llama in float64 NumPy, written apart from the engine: what its backends must compute."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from engine.gguf.reader import GGUFModel
from kernels.reference.quants import dequantize

Array = npt.NDArray[Any]


def all_logits(model: GGUFModel, ids: Array) -> Array:
    """Return logits of every position: f64[n_tokens, n_vocab]."""
    keys = model.metadata

    def tensor(name: str) -> Array:
        found = model.tensor(name)
        plain = dequantize(model.tensor_rows(name), found.quant, found.n_cols)
        return plain.astype(np.float64).reshape(found.shape)

    def linear(x: Array, name: str) -> Array:
        y = x @ tensor(name + ".weight").T
        return y + tensor(name + ".bias") if name + ".bias" in model.tensors else y

    def norm(x: Array, name: str) -> Array:
        epsilon = keys.get_float("llama.attention.layer_norm_rms_epsilon")
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + epsilon) * tensor(name)

    n_heads = keys.get_int("llama.attention.head_count")
    n_kv_heads = keys.get_int("llama.attention.head_count_kv")
    n_rot = keys.get_int("llama.rope.dimension_count")
    frequencies = keys.get_float("llama.rope.freq_base") ** (-np.arange(0, n_rot, 2) / n_rot)
    frequencies /= keys.get_float("llama.rope.scaling.factor", 1.0)
    if "rope_freqs.weight" in model.tensors:
        frequencies /= tensor("rope_freqs.weight")
    turn = np.exp(1j * np.arange(len(ids))[:, None] * frequencies)[:, None]

    def rotate(x: Array) -> Array:
        pairs = (x[..., :n_rot:2] + 1j * x[..., 1:n_rot:2]) * turn
        x = x.copy()
        x[..., :n_rot:2], x[..., 1:n_rot:2] = pairs.real, pairs.imag
        return x

    x = tensor("token_embd.weight")[ids]
    hidden = np.triu(np.full((len(ids), len(ids)), -np.inf), 1)
    for layer in range(keys.get_int("llama.block_count")):
        at = f"blk.{layer}."
        h = norm(x, at + "attn_norm.weight")
        q = rotate(linear(h, at + "attn_q").reshape(len(ids), n_heads, -1))
        k = rotate(linear(h, at + "attn_k").reshape(len(ids), n_kv_heads, -1))
        v = linear(h, at + "attn_v").reshape(len(ids), n_kv_heads, -1)
        k, v = (np.repeat(part, n_heads // n_kv_heads, axis=1) for part in (k, v))
        scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(q.shape[-1]) + hidden
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        shares /= shares.sum(-1, keepdims=True)
        a = np.einsum("hqk,khd->qhd", shares, v).reshape(len(ids), -1)
        x = x + linear(a, at + "attn_output")
        h = norm(x, at + "ffn_norm.weight")
        gate = linear(h, at + "ffn_gate")
        x = x + linear(gate / (1 + np.exp(-gate)) * linear(h, at + "ffn_up"), at + "ffn_down")
    head = "output.weight" if "output.weight" in model.tensors else "token_embd.weight"
    return norm(x, "output_norm.weight") @ tensor(head).T
