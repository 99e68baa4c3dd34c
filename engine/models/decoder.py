"""The plain way through a decoder: norm, mix, add; norm, feed forward, add; layer after layer.

Which parts the layers have is said by each architecture in its own file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.models.layers import Part, Step, rope_frequencies
from engine.models.spec import ModelSpec
from engine.models.weights import Weights
from engine.ops import Batch, Ops, Rows, Weight


@dataclass(frozen=True, kw_only=True, slots=True)
class Layer:
    """A layer: what mixes tokens, and what works on each by itself."""

    mixer_norm: Weight
    mixer: Part
    ffn_norm: Weight
    ffn: Part


class Decoder:
    """A model of such layers.

    Attributes:
        spec: its dims.
        weights: every weight it uses.
    """

    def __init__(self, spec: ModelSpec, weights: Weights, layers: Sequence[Layer]) -> None:
        """Take what lies before and behind the layers.

        Raises:
            GGUFFormatError: a tensor is missing or of another shape.
        """
        self.spec = spec
        self._layers = layers
        self._embedding = weights.embedding(spec)
        self._output_norm = weights.vector("output_norm.weight", spec.d_model)
        self._output = weights.output(spec, self._embedding)
        self._frequencies = rope_frequencies(spec.rope, weights)
        self.weights = tuple(weights.taken)

    def forward(self, ops: Ops, batch: Batch) -> Rows:
        """Read the batch's tokens and return logits of the wanted rows.

        Shapes:
            result: [n_wanted, n_vocab].
        """
        epsilon = self.spec.norm_epsilon
        step = Step(batch, ops.rope_angles(batch.positions, self._frequencies))
        x = ops.embed(self._embedding, batch.ids)
        for i, layer in enumerate(self._layers):
            with ops.scratch():
                h = ops.rms_norm(x, layer.mixer_norm, epsilon=epsilon)
                ops.add(x, layer.mixer.forward(ops, h, step))
            with ops.scratch():
                h = ops.rms_norm(x, layer.ffn_norm, epsilon=epsilon)
                ops.add(x, layer.ffn.forward(ops, h, step))
            ops.note("layer_out", i, x)
        x = ops.gather_rows(x, batch.wanted)
        return ops.matmul(ops.rms_norm(x, self._output_norm, epsilon=epsilon), self._output)
