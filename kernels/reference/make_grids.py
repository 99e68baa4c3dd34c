"""Writes the lookup tables of the IQ formats: `grids.npz` and `kernels/include/grids.h`.

The tables are facts of the public format: which 256, 512, 1024 or 2048 points of a lattice of
four or eight weights a code may name. A file made with other points could not be read by anyone.
They are taken from the `gguf` package, which only developers have. Run again if one is added:

    python -m kernels.reference.make_grids
"""

from __future__ import annotations

import io
import sys
import zipfile
from pathlib import Path

import numpy as np
import numpy.typing as npt

HERE = Path(__file__).resolve().parent
NPZ = HERE / "grids.npz"
HEADER = HERE.parent / "include" / "grids.h"
FORMATS = ("IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ1_S")

HEAD = """\
/* Lookup tables of the IQ formats, written by kernels/reference/make_grids.py: do not edit.
 *
 * An entry is one lattice point: eight weights as bytes of a uint64_t, or four of a uint32_t, the
 * first weight in the lowest byte. iq1_s holds -1, 0, 1 as signed bytes and serves IQ1_M too; the
 * others hold magnitudes, their signs come from the block.
 */
#ifndef STRATA_GRIDS_H
#define STRATA_GRIDS_H

#include <stdint.h>

#ifndef STRATA_TABLE
#define STRATA_TABLE static const
#endif
"""


def read_grids() -> dict[str, npt.NDArray[np.int8]]:
    """Return the tables of the `gguf` package: i8[n_points, 4 or 8] a format."""
    from gguf import quants

    grids = {}
    for name in FORMATS:
        traits = getattr(quants, name)
        traits.init_grid()
        grid = np.asarray(traits.grid)
        grids[name] = grid.reshape(grid.shape[-2:]).astype(np.int8)
    return grids


def header_text(grids: dict[str, npt.NDArray[np.int8]]) -> str:
    """Return the tables as C source."""
    parts = [HEAD]
    for name, grid in grids.items():
        n_points, n_weights = grid.shape
        n_bits = 8 * n_weights
        points = grid.view(f"<u{n_weights}")[:, 0]
        words = [f"0x{int(point):0{n_bits // 4}x}" for point in points]
        per_line = 4 if n_weights == 8 else 8
        lines = [", ".join(words[at : at + per_line]) for at in range(0, n_points, per_line)]
        parts.append(
            f"STRATA_TABLE uint{n_bits}_t strata_grid_{name.lower()}[{n_points}] = {{\n    "
            + ",\n    ".join(lines)
            + "};\n"
        )
    parts.append("#endif\n")
    return "\n".join(parts)


def npz_bytes(grids: dict[str, npt.NDArray[np.int8]]) -> bytes:
    """Return the tables as an .npz that is the same whenever it is made."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, grid in grids.items():
            item = io.BytesIO()
            np.lib.format.write_array(item, np.ascontiguousarray(grid))
            entry = zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, item.getvalue())
    return file.getvalue()


def main() -> int:
    """Write both files."""
    grids = read_grids()
    NPZ.write_bytes(npz_bytes(grids))
    HEADER.write_text(header_text(grids), encoding="ascii", newline="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
