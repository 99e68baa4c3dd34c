"""The lookup tables of the IQ formats as arrays; made by `kernels.reference.make_grids`.

The same tables are in `kernels/include/grids.h` for compiled kernels.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt


@cache
def grid(name: str) -> npt.NDArray[np.int8]:
    """Return a table, read-only.

    Args:
        name: IQ1_S (which serves IQ1_M too), IQ2_XXS, IQ2_XS, IQ2_S, IQ3_XXS or IQ3_S.

    Shapes:
        i8[n_points, 8], for the IQ3 formats i8[n_points, 4].
    """
    with np.load(Path(__file__).with_name("grids.npz")) as tables:
        table: npt.NDArray[np.int8] = tables[name]
    table.flags.writeable = False
    return table
