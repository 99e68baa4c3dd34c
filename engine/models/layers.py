"""Parts that several architectures are made of, each from its tensors to its arithmetic.

Every part has `forward(ops, h, step)`: rows in, rows out. What belongs to one architecture alone is
in its own file.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from engine.gguf.reader import GGUFModel
from engine.models.spec import DeltaSpec, ModelSpec, RopeSpec
from engine.models.weights import Weights, rows_of
from engine.ops import (
    Batch,
    DeltaShape,
    ExpertWeights,
    HeadShape,
    Ops,
    RopeStyle,
    Rows,
    Selection,
    State,
    Weight,
)
from kernels.quants import QuantType
from kernels.reference.quants import dequantize

L2_EPSILON = 1e-6
"""Under the root of the delta net's norm of q and k; no key of the file says it."""


@dataclass(frozen=True, slots=True)
class Step:
    """What every layer is told of the step.

    Attributes:
        batch: the rows.
        angles: of their positions, for rotary embedding.
    """

    batch: Batch
    angles: Rows


class Part(Protocol):
    """Attention, delta net, feed-forward part or mixture of experts."""

    def forward(self, ops: Ops, h: Rows, step: Step) -> Rows:
        """Return what the part adds to the residual: [n_rows, d_model] from [n_rows, d_model]."""
        ...


class StateMap:
    """Lays out the recurrent state of a lane.

    Attributes:
        n_values: 4-byte values handed out so far.
    """

    def __init__(self) -> None:
        self.n_values = 0

    def take(self, n_values: int) -> State:
        """Return the next part."""
        state = State(self.n_values, n_values)
        self.n_values += n_values
        return state


def rope_frequencies(rope: RopeSpec, weights: Weights) -> Weight:
    """Return the angle that one position adds to each pair.

    `rope_freqs.weight`, if the file has it, divides each frequency (the scaling of llama 3).
    Sections of positions (time, height, width) need nothing here: in text all three are equal, and
    then each pair turns as in plain rotary embedding.

    Shapes:
        result: f32[n_dims / 2].
    """
    n_pairs = rope.n_dims // 2
    frequencies = rope.base ** (-np.arange(n_pairs, dtype=np.float64) / n_pairs) / rope.scale
    factors = weights.find_vector("rope_freqs.weight", n_pairs)
    if factors is not None:
        rows = factors.blocks.reshape(1, -1)
        frequencies = frequencies / dequantize(rows, QuantType.F32, n_pairs)[0]
    return weights.constant("rope frequencies", frequencies.astype(np.float32))


class PageChooser(Protocol):
    """Chooses which cells an attention layer looks at."""

    def choose(self, ops: Ops, h: Rows, step: Step) -> Selection:
        """Take the rows into the index and choose pages for each."""
        ...


class Attention:
    """Attention with norms of q and k, rotary positions, and maybe a gate on its output.

    Source:
        Qwen3 technical report, section 2; gated attention: Qiu et al. 2025, equation 5.
    """

    def __init__(
        self,
        weights: Weights,
        at: str,
        spec: ModelSpec,
        *,
        kv_layer: int,
        is_gated: bool,
        chooser: PageChooser | None = None,
    ) -> None:
        """Take the tensors whose names begin with `at`.

        Args:
            weights: of the file.
            at: "blk.3.".
            spec: dims of the model.
            kv_layer: which of the layers that keep K and V it is.
            is_gated: each head's rows of q are followed by as many rows of its gate.
            chooser: which cells are looked at; None = all.
        """
        d_model, head_dim, self._epsilon = spec.d_model, spec.head_dim, spec.norm_epsilon
        self._heads = HeadShape(
            n_heads=spec.n_heads,
            n_kv_heads=spec.n_kv_heads,
            head_dim=head_dim,
            scale=head_dim**-0.5,
        )
        self._kv_layer, self._is_gated, self._chooser = kv_layer, is_gated, chooser
        attended_dim = spec.n_heads * head_dim
        q_dim, kv_dim = attended_dim * (2 if is_gated else 1), spec.kv_dim
        if weights.has(at + "attn_qkv.weight"):
            qkv = weights.matrix(at + "attn_qkv.weight", n_rows=q_dim + 2 * kv_dim, n_cols=d_model)
            self._q = rows_of(qkv, 0, q_dim)
            self._k = rows_of(qkv, q_dim, kv_dim)
            self._v = rows_of(qkv, q_dim + kv_dim, kv_dim)
        else:
            self._q = weights.matrix(at + "attn_q.weight", n_rows=q_dim, n_cols=d_model)
            self._k = weights.matrix(at + "attn_k.weight", n_rows=kv_dim, n_cols=d_model)
            self._v = weights.matrix(at + "attn_v.weight", n_rows=kv_dim, n_cols=d_model)
        self._q_norm = weights.vector(at + "attn_q_norm.weight", head_dim)
        self._k_norm = weights.vector(at + "attn_k_norm.weight", head_dim)
        self._o = weights.matrix(at + "attn_output.weight", n_rows=d_model, n_cols=attended_dim)

    def forward(self, ops: Ops, h: Rows, step: Step) -> Rows:
        """Attend over the lane's cells."""
        n_heads, head_dim = self._heads.n_heads, self._heads.head_dim
        selection = None if self._chooser is None else self._chooser.choose(ops, h, step)
        q, gate = ops.matmul(h, self._q), None
        if self._is_gated:
            gate = ops.columns(q, n_groups=n_heads, first=head_dim, n_taken=head_dim)
            q = ops.columns(q, n_groups=n_heads, first=0, n_taken=head_dim)
        q = ops.rms_norm(q, self._q_norm, epsilon=self._epsilon)
        k = ops.rms_norm(ops.matmul(h, self._k), self._k_norm, epsilon=self._epsilon)
        ops.rope(q, step.angles, head_dim=head_dim, style=RopeStyle.HALVES)
        ops.rope(k, step.angles, head_dim=head_dim, style=RopeStyle.HALVES)
        ops.store_kv(self._kv_layer, k, ops.matmul(h, self._v), step.batch)
        a = ops.attend(self._kv_layer, q, step.batch, self._heads, selection)
        if gate is not None:
            ops.gate(a, gate)
        return ops.matmul(a, self._o)


class OutputGate(enum.Enum):
    """What z does to the output of a delta net."""

    SILU = "silu"
    SIGMOID = "sigmoid"


@dataclass(frozen=True, kw_only=True, slots=True)
class DeltaInputs:
    """Matrices that bring the input into a delta net.

    Shapes:
        qkv: [qkv_dim, d_model], all queries, all keys, all values; z: [value_dim, d_model];
        alpha, beta: [n_value_heads, d_model].
    """

    qkv: Weight
    z: Weight
    alpha: Weight
    beta: Weight


def take_delta_inputs(weights: Weights, at: str, delta: DeltaSpec, *, d_model: int) -> DeltaInputs:
    """Take the inputs of a delta net as newer files have them, in four tensors."""
    n_heads = delta.n_value_heads
    return DeltaInputs(
        qkv=weights.matrix(at + "attn_qkv.weight", n_rows=delta.qkv_dim, n_cols=d_model),
        z=weights.matrix(at + "attn_gate.weight", n_rows=delta.value_dim, n_cols=d_model),
        alpha=weights.matrix(at + "ssm_alpha.weight", n_rows=n_heads, n_cols=d_model),
        beta=weights.matrix(at + "ssm_beta.weight", n_rows=n_heads, n_cols=d_model),
    )


class DeltaNet:
    """Gated delta net: linear attention whose state forgets and corrects itself.

    Source:
        Yang et al. 2024, "Gated Delta Networks", equation 10 and figure 1.
    """

    def __init__(
        self,
        weights: Weights,
        at: str,
        inputs: DeltaInputs,
        spec: ModelSpec,
        *,
        delta: DeltaSpec,
        is_tiled: bool,
        states: StateMap,
        output_gate: OutputGate,
    ) -> None:
        """Take the tensors whose names begin with `at`, and room for the state."""
        n_heads, head_dim = delta.n_value_heads, delta.head_dim
        self._shape = DeltaShape(
            n_key_heads=delta.n_key_heads,
            n_value_heads=n_heads,
            head_dim=head_dim,
            is_tiled=is_tiled,
        )
        self._inputs, self._epsilon, self._output_gate = inputs, spec.norm_epsilon, output_gate
        taps = weights.values(at + "ssm_conv1d.weight", n_rows=delta.qkv_dim, n_cols=delta.n_taps)
        self._taps = weights.constant(at + "ssm_conv1d.weight", taps.T)
        self._rate = weights.vector(at + "ssm_a", n_heads)
        self._bias = weights.vector(at + "ssm_dt.bias", n_heads)
        self._norm = weights.vector(at + "ssm_norm.weight", head_dim)
        self._out = weights.matrix(
            at + "ssm_out.weight", n_rows=spec.d_model, n_cols=delta.value_dim
        )
        self._conv_state = states.take((delta.n_taps - 1) * delta.qkv_dim)
        self._state = states.take(n_heads * head_dim**2)

    def forward(self, ops: Ops, h: Rows, step: Step) -> Rows:
        """Move the lane's state on and read from it."""
        shape = self._shape
        qkv = ops.conv(ops.matmul(h, self._inputs.qkv), self._taps, self._conv_state, step.batch)
        n_normed = 2 * shape.n_key_heads
        ops.l2_norm(qkv, n_heads=n_normed, head_dim=shape.head_dim, epsilon=L2_EPSILON)
        decay = ops.matmul(h, self._inputs.alpha)
        ops.decay(decay, self._rate, self._bias)
        strength = ops.matmul(h, self._inputs.beta)
        ops.sigmoid(strength)
        z = ops.matmul(h, self._inputs.z)
        o = ops.delta_rule(
            qkv, decay=decay, strength=strength, state=self._state, batch=step.batch, shape=shape
        )
        o = ops.rms_norm(o, self._norm, epsilon=self._epsilon)
        if self._output_gate is OutputGate.SILU:
            o = ops.swiglu(z, o)
        else:
            ops.gate(o, z)
        return ops.matmul(o, self._out)


class FeedForward:
    """The gated feed-forward part: down(silu(gate h) * (up h)).

    Source:
        Shazeer 2020, "GLU Variants Improve Transformer", equation 6.
    """

    def __init__(
        self, weights: Weights, at: str, *, d_model: int, d_ff: int, suffix: str = ""
    ) -> None:
        """Take the tensors whose names begin with `at`; `suffix` is "_shexp" of a shared expert."""
        self._gate = weights.matrix(f"{at}ffn_gate{suffix}.weight", n_rows=d_ff, n_cols=d_model)
        self._up = weights.matrix(f"{at}ffn_up{suffix}.weight", n_rows=d_ff, n_cols=d_model)
        self._down = weights.matrix(f"{at}ffn_down{suffix}.weight", n_rows=d_model, n_cols=d_ff)

    def forward(self, ops: Ops, h: Rows, step: Step) -> Rows:
        """Return the part's result; every row by itself."""
        del step
        h = ops.swiglu(ops.matmul(h, self._gate), ops.matmul(h, self._up))
        return ops.matmul(h, self._down)


class MixtureOfExperts:
    """A few of many feed-forward parts for each token, and maybe one shared by all.

    Source:
        Qwen3 technical report, section 2; the shared expert's gate: Qwen2 technical report, 2.2.
    """

    def __init__(
        self, weights: Weights, at: str, spec: ModelSpec, *, layer: int, d_ff: int, shared_d_ff: int
    ) -> None:
        """Take the tensors whose names begin with `at`.

        Args:
            weights: of the file.
            at: "blk.3.".
            spec: dims of the model.
            layer: for counting its experts' picks.
            d_ff: width of an expert.
            shared_d_ff: width of the shared expert; 0 = none.
        """
        d_model, n_experts = spec.d_model, spec.n_experts
        self._layer, self._n_used = layer, spec.n_experts_used
        self._router = weights.matrix(at + "ffn_gate_inp.weight", n_rows=n_experts, n_cols=d_model)
        self._experts: ExpertWeights = weights.experts(
            at, n_experts=n_experts, d_model=d_model, d_ff=d_ff
        )
        self._shared = self._shared_gate = None
        if shared_d_ff:
            self._shared = FeedForward(
                weights, at, d_model=d_model, d_ff=shared_d_ff, suffix="_shexp"
            )
            self._shared_gate = weights.matrix(
                at + "ffn_gate_inp_shexp.weight", n_rows=1, n_cols=d_model
            )

    def forward(self, ops: Ops, h: Rows, step: Step) -> Rows:
        """Return the sum of the experts that each row picks."""
        routing = ops.route(self._layer, ops.matmul(h, self._router), n_used=self._n_used)
        y = ops.experts(h, routing, self._experts)
        if self._shared is not None and self._shared_gate is not None:
            shared = self._shared.forward(ops, h, step)
            ops.gate(shared, ops.matmul(h, self._shared_gate))
            ops.add(y, shared)
        return y


def take_ffn(weights: Weights, model: GGUFModel, spec: ModelSpec, *, layer: int) -> Part:
    """Take the second part of a layer: experts with a shared one, or a dense part.

    Raises:
        GGUFFormatError: a key or tensor is missing or of another shape.
    """
    at, keys, arch = f"blk.{layer}.", model.metadata, spec.architecture
    if not spec.n_experts:
        return FeedForward(weights, at, d_model=spec.d_model, d_ff=spec.d_ff)
    n_blocks = keys.get_int(f"{arch}.block_count")
    widths = keys.get_per_layer(f"{arch}.expert_feed_forward_length", n_blocks)
    return MixtureOfExperts(
        weights,
        at,
        spec,
        layer=layer,
        d_ff=widths[layer],
        shared_d_ff=keys.get_int(f"{arch}.expert_shared_feed_forward_length", 0, minimum=0),
    )
