"""Llama: attention with rotary positions and a gated feed-forward part (also SmolLM, Mistral).

It says what is computed in which order; how is left to the ops of the backend.

Source:
    Touvron et al. 2023, "LLaMA", section 2.2; GQA: Ainslie et al. 2023; tensor names: GGUF format.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from engine.errors import UnsupportedModelError
from engine.gguf.reader import GGUFModel
from engine.models.layers import rope_frequencies
from engine.models.spec import ModelSpec, read_decoder_spec
from engine.models.weights import Weights
from engine.ops import Batch, HeadShape, Ops, RopeStyle, Rows, Weight


@dataclass(frozen=True, kw_only=True, slots=True)
class LlamaLayer:
    """Weights of a layer; biases are None where the file has none."""

    attn_norm: Weight
    q: Weight
    k: Weight
    v: Weight
    o: Weight
    q_bias: Weight | None
    k_bias: Weight | None
    v_bias: Weight | None
    o_bias: Weight | None
    ffn_norm: Weight
    gate: Weight
    up: Weight
    down: Weight


class Llama:
    """The model.

    Attributes:
        spec: its dims.
        weights: every weight it uses.
    """

    def __init__(self, spec: ModelSpec, weights: Weights) -> None:
        self.spec = spec
        self._heads = HeadShape(
            n_heads=spec.n_heads,
            n_kv_heads=spec.n_kv_heads,
            head_dim=spec.head_dim,
            scale=1 / spec.head_dim**0.5,
        )
        self._token_embd = weights.embedding(spec)
        self._layers = [_take_layer(spec, weights, i) for i in range(spec.n_layers)]
        self._output_norm = weights.vector("output_norm.weight", spec.d_model)
        self._output = weights.output(spec, self._token_embd)
        self._frequencies = rope_frequencies(spec.rope, weights)
        self.weights = tuple(weights.taken)

    @classmethod
    def from_gguf(cls, model: GGUFModel) -> Self:
        """Take the model from a file.

        Raises:
            GGUFFormatError: a key or tensor is missing or of another shape.
            UnsupportedModelError: it has parts this version does not compute.
        """
        n_experts = model.metadata.get_int("llama.expert_count", 0)
        if n_experts:
            raise UnsupportedModelError(
                f"it is a llama with {n_experts} experts; this version runs llama models without "
                "experts.",
                path=model.path,
            )
        weights = Weights(model)
        spec = read_decoder_spec(model.metadata, n_vocab=weights.n_rows("token_embd.weight"))
        return cls(spec, weights)

    def forward(self, ops: Ops, batch: Batch) -> Rows:
        """Read the batch's tokens and return logits of the wanted rows.

        Shapes:
            result: [n_wanted, n_vocab].
        """
        epsilon, heads, head_dim = self.spec.norm_epsilon, self._heads, self.spec.head_dim
        angles = ops.rope_angles(batch.positions, self._frequencies)
        x = ops.embed(self._token_embd, batch.ids)
        for i, layer in enumerate(self._layers):
            with ops.scratch():
                h = ops.rms_norm(x, layer.attn_norm, epsilon=epsilon)
                q = ops.matmul(h, layer.q, layer.q_bias)
                k = ops.matmul(h, layer.k, layer.k_bias)
                v = ops.matmul(h, layer.v, layer.v_bias)
                ops.rope(q, angles, head_dim=head_dim, style=RopeStyle.PAIRS)
                ops.rope(k, angles, head_dim=head_dim, style=RopeStyle.PAIRS)
                ops.store_kv(i, k, v, batch)
                a = ops.attend(i, q, batch, heads)
                ops.add(x, ops.matmul(a, layer.o, layer.o_bias))
            with ops.scratch():
                h = ops.rms_norm(x, layer.ffn_norm, epsilon=epsilon)
                h = ops.swiglu(ops.matmul(h, layer.gate), ops.matmul(h, layer.up))
                ops.add(x, ops.matmul(h, layer.down))
            ops.note("layer_out", i, x)
        x = ops.gather_rows(x, batch.wanted)
        return ops.matmul(ops.rms_norm(x, self._output_norm, epsilon=epsilon), self._output)


def _take_layer(spec: ModelSpec, weights: Weights, index: int) -> LlamaLayer:
    at = f"blk.{index}."
    d_model, d_ff = spec.d_model, spec.d_ff
    q_dim, kv_dim = spec.n_heads * spec.head_dim, spec.kv_dim
    return LlamaLayer(
        attn_norm=weights.vector(at + "attn_norm.weight", d_model),
        q=weights.matrix(at + "attn_q.weight", n_rows=q_dim, n_cols=d_model),
        k=weights.matrix(at + "attn_k.weight", n_rows=kv_dim, n_cols=d_model),
        v=weights.matrix(at + "attn_v.weight", n_rows=kv_dim, n_cols=d_model),
        o=weights.matrix(at + "attn_output.weight", n_rows=d_model, n_cols=q_dim),
        q_bias=weights.find_vector(at + "attn_q.bias", q_dim),
        k_bias=weights.find_vector(at + "attn_k.bias", kv_dim),
        v_bias=weights.find_vector(at + "attn_v.bias", kv_dim),
        o_bias=weights.find_vector(at + "attn_output.bias", d_model),
        ffn_norm=weights.vector(at + "ffn_norm.weight", d_model),
        gate=weights.matrix(at + "ffn_gate.weight", n_rows=d_ff, n_cols=d_model),
        up=weights.matrix(at + "ffn_up.weight", n_rows=d_ff, n_cols=d_model),
        down=weights.matrix(at + "ffn_down.weight", n_rows=d_model, n_cols=d_ff),
    )
