"""Tensors of a file as `Weight` handles: names and shapes are checked, nothing is copied.

Which tensors there must be is left to each architecture.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from engine.errors import GGUFFormatError, UnsupportedModelError
from engine.gguf.reader import GGUFModel
from engine.ops import Weight
from kernels.quants import QuantType


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

    def matrix(self, name: str, *, n_rows: int, n_cols: int) -> Weight:
        """Return a matrix of any format.

        Raises:
            GGUFFormatError: it is missing or has another shape.
            UnsupportedModelError: its format holds no weights.

        Shapes:
            result: [n_rows, n_cols].
        """
        tensor = self._model.tensor(name)
        wanted = (n_rows, n_cols) if n_rows > 1 or len(tensor.shape) > 1 else (n_cols,)
        if tensor.shape != wanted:
            raise GGUFFormatError(
                f"the tensor {name!r} has the shape {list(tensor.shape)}, but the model's keys ask "
                f"for {list(wanted)} (rows first).",
                path=self._model.path,
            )
        if tensor.quant.is_storage_only:
            raise UnsupportedModelError(
                f"the tensor {name!r} is in {tensor.quant.name}, which holds no weights.",
                path=self._model.path,
            )
        blocks = self._model.tensor_bytes(name)
        return self._take(
            Weight(name, tensor.quant, n_rows, n_cols, blocks, int(blocks.ctypes.data))
        )

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

    def constant(self, name: str, values: npt.NDArray[np.float32]) -> Weight:
        """Make a float32 vector of numbers that are not in the file.

        Shapes:
            values: f32[n]; result: f32[n].
        """
        blocks = np.ascontiguousarray(values, np.float32).view(np.uint8)
        return self._take(
            Weight(name, QuantType.F32, 1, len(values), blocks, int(blocks.ctypes.data))
        )

    def _take(self, weight: Weight) -> Weight:
        self.taken.append(weight)
        return weight
