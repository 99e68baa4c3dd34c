"""What the gated activation means."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

F32 = npt.NDArray[np.float32]


def swiglu(gate: F32, up: F32) -> F32:
    """Return silu(gate) * up, with silu(x) = x / (1 + exp(-x)).

    Shapes:
        gate, up, result: f32[n_rows, n_cols].

    Source:
        Shazeer 2020, "GLU Variants Improve Transformer", equation 6.
    """
    wide = gate.astype(np.float64)
    with np.errstate(over="ignore"):
        result: F32 = (wide / (1 + np.exp(-wide)) * up).astype(np.float32)
    return result
