"""Tensors of a file as `Weight` handles: names and shapes are checked, nothing is copied.

Which tensors there must be is left to each architecture.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from engine.errors import GGUFFormatError, UnsupportedModelError
from engine.gguf.reader import GGUFModel, TensorInfo
from engine.models.spec import ModelSpec
from engine.ops import ExpertMatrix, ExpertWeights, Weight
from kernels.quants import QuantType
from kernels.reference.quants import dequantize


class Weights:
    """Finds weights by name, and remembers which were taken.

    Attributes:
        taken: every weight handed out so far, in order.
    """

    def __init__(self, model: GGUFModel) -> None:
        self._model = model
        self.taken: list[Weight] = []

    def has(self, name: str) -> bool:
        """Whether the file has a tensor of that name."""
        return name in self._model.tensors

    def n_rows(self, name: str) -> int:
        """Return the number of rows of a matrix.

        Raises:
            GGUFFormatError: there is no such tensor.
        """
        return self._model.tensor(name).n_rows

    def matrix(self, name: str, *, n_rows: int, n_cols: int, is_streamed: bool = False) -> Weight:
        """Return a matrix of any format.

        Args:
            name: of the tensor.
            n_rows: rows it must have.
            n_cols: columns it must have.
            is_streamed: a few rows are read at each step, never the whole.

        Raises:
            GGUFFormatError: it is missing or has another shape.
            UnsupportedModelError: its format holds no weights.

        Shapes:
            result: [n_rows, n_cols].
        """
        is_flat = n_rows == 1 and len(self._model.tensor(name).shape) == 1
        tensor = self._checked(name, (n_cols,) if is_flat else (n_rows, n_cols))
        if is_streamed:
            self._model.expect_single_rows(name)
        blocks = self._model.tensor_bytes(name)
        address = int(blocks.ctypes.data)
        return self._take(Weight(name, tensor.quant, n_rows, n_cols, blocks, address, is_streamed))

    def embedding(self, spec: ModelSpec) -> Weight:
        """Return the token table: [n_vocab, d_model].

        Raises:
            GGUFFormatError: it is missing or has another shape.
        """
        return self.matrix("token_embd.weight", n_rows=spec.n_vocab, n_cols=spec.d_model)

    def output(self, spec: ModelSpec, embedding: Weight) -> Weight:
        """Return the output matrix; where the file has none, the token table serves as one.

        Raises:
            GGUFFormatError: it has another shape.
        """
        if not self.has("output.weight"):
            return embedding
        return self.matrix("output.weight", n_rows=spec.n_vocab, n_cols=spec.d_model)

    def experts(self, at: str, *, n_experts: int, d_model: int, d_ff: int) -> ExpertWeights:
        """Return the experts of a layer, from three tensors or with gate and up in one.

        Args:
            at: what their names begin with.
            n_experts: experts of the layer.
            d_model: inputs and outputs of an expert.
            d_ff: its width.

        Raises:
            GGUFFormatError: a tensor is missing or has another shape.
            UnsupportedModelError: a format holds no weights.
        """
        down = self._stacked(at + "ffn_down_exps.weight", (n_experts, d_model, d_ff))
        fused = at + "ffn_gate_up_exps.weight"
        if self.has(fused):
            both = self._stacked(fused, (n_experts, 2 * d_ff, d_model))
            gate, up = part_rows(both, 0, d_ff), part_rows(both, d_ff, d_ff)
        else:
            gate = self._stacked(at + "ffn_gate_exps.weight", (n_experts, d_ff, d_model))
            up = self._stacked(at + "ffn_up_exps.weight", (n_experts, d_ff, d_model))
        return ExpertWeights(gate=gate, up=up, down=down)

    def vector(self, name: str, n: int) -> Weight:
        """Return a float32 vector.

        Raises:
            GGUFFormatError: it is missing or has another shape.
            UnsupportedModelError: it is not in F32.

        Shapes:
            result: f32[n].
        """
        weight = self.matrix(name, n_rows=1, n_cols=n)
        if weight.quant is not QuantType.F32:
            raise UnsupportedModelError(
                f"the tensor {name!r} is in {weight.quant.name}, wanted F32.",
                path=self._model.path,
            )
        return weight

    def find_vector(self, name: str, n: int) -> Weight | None:
        """Return a float32 vector, or None if the file has none of that name."""
        return self.vector(name, n) if self.has(name) else None

    def values(self, name: str, *, n_rows: int, n_cols: int) -> npt.NDArray[np.float32]:
        """Return a small matrix of any format as numbers, to make a constant of.

        Raises:
            GGUFFormatError: it is missing or has another shape.
            UnsupportedModelError: its format holds no weights.

        Shapes:
            result: f32[n_rows, n_cols].
        """
        tensor = self._checked(name, (n_rows, n_cols))
        return dequantize(self._model.tensor_rows(name), tensor.quant, n_cols)

    def constant(self, name: str, values: npt.NDArray[np.float32]) -> Weight:
        """Make a float32 vector or matrix of numbers that are not in the file in this form.

        Shapes:
            values: f32[n] or f32[n_rows, n]; result: as values.
        """
        blocks = np.ascontiguousarray(values, np.float32).view(np.uint8).reshape(-1)
        n_rows = 1 if values.ndim == 1 else len(values)
        return self._take(
            Weight(name, QuantType.F32, n_rows, values.shape[-1], blocks, int(blocks.ctypes.data))
        )

    def reordered(
        self, name: str, order: npt.NDArray[np.int64], *, n_rows: int, n_cols: int
    ) -> Weight:
        """Return a copy of some rows of a matrix in another order, in its own format.

        Raises:
            GGUFFormatError: it is missing or has another shape.
            UnsupportedModelError: its format holds no weights.

        Shapes:
            order: i64[n]; result: [n, n_cols].
        """
        tensor = self._checked(name, (n_rows, n_cols))
        blocks = np.ascontiguousarray(self._model.tensor_rows(name)[order]).reshape(-1)
        return self._take(
            Weight(name, tensor.quant, len(order), n_cols, blocks, int(blocks.ctypes.data))
        )

    def _stacked(self, name: str, shape: tuple[int, int, int]) -> ExpertMatrix:
        tensor = self._checked(name, shape)
        n_experts, n_rows, n_cols = shape
        blocks = self._model.tensor_bytes(name)
        weight = Weight(
            name, tensor.quant, n_experts * n_rows, n_cols, blocks, int(blocks.ctypes.data)
        )
        return ExpertMatrix(
            weight=self._take(weight),
            n_experts=n_experts,
            n_rows=n_rows,
            first_row=0,
            stacked_rows=n_rows,
        )

    def _checked(self, name: str, shape: tuple[int, ...]) -> TensorInfo:
        tensor = self._model.tensor(name)
        if tensor.shape != shape:
            raise GGUFFormatError(
                f"the tensor {name!r} has the shape {list(tensor.shape)}, but the model's keys ask "
                f"for {list(shape)} (rows first).",
                path=self._model.path,
            )
        if tensor.quant.is_storage_only:
            raise UnsupportedModelError(
                f"the tensor {name!r} is in {tensor.quant.name}, which holds no weights.",
                path=self._model.path,
            )
        return tensor

    def _take(self, weight: Weight) -> Weight:
        self.taken.append(weight)
        return weight


def part_rows(matrix: ExpertMatrix, first: int, n_rows: int) -> ExpertMatrix:
    """Return some rows of every expert's matrix."""
    return replace(matrix, first_row=matrix.first_row + first, n_rows=n_rows)


def rows_of(weight: Weight, first: int, n_rows: int) -> Weight:
    """Return some rows of a matrix, without a copy."""
    blocks = weight.blocks[first * weight.row_bytes : (first + n_rows) * weight.row_bytes]
    return replace(weight, n_rows=n_rows, blocks=blocks, address=int(blocks.ctypes.data))
