"""Measures the products of every weight format: billions of weights and bytes a second, a core.

    python tests/bench/rows.py [--formats Q4_K Q6_K] [--levels avx512] [--rows 1 64] [--outputs 512]

One thread and a matrix that stays in the caches, so this is what the instructions cost; the best
of many short runs is shown, which other programs disturb least. `--rows 1` is decoding: each weight
is unpacked for one product. With more rows, weights a second counts each product.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np

REPO = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(REPO))

from kernels.cpu import records  # noqa: E402
from kernels.cpu.library import Level, QuantSupport, Team, load_library, make_tape  # noqa: E402
from kernels.quants import QuantType  # noqa: E402


def best_seconds(team: Team, tape: bytes, *, seconds: float) -> float:
    """Return the shortest of the runs that fit into a time, of five at least."""
    best, started, n_runs = float("inf"), time.perf_counter(), 0
    while n_runs < 5 or time.perf_counter() - started < seconds:
        before = time.perf_counter()
        team.run(tape)
        best = min(best, time.perf_counter() - before)
        n_runs += 1
    return best


def measure(team: Team, quant: QuantType, n_rows: int, *, args: argparse.Namespace) -> None:
    n_cols, n_out = args.columns, args.outputs
    rng = np.random.default_rng(1)
    # Small bytes: any scale made of them is an ordinary number.
    weight = rng.integers(0, 64, (n_out, quant.row_bytes(n_cols)), dtype=np.uint8)
    x = rng.standard_normal((n_rows, n_cols)).astype(np.float32)
    n_values, n_floats = team.library.code_shape(n_cols)
    qs, ds = np.zeros((n_rows, n_values), np.int16), np.zeros((n_rows, n_floats), np.float32)
    y = np.zeros((n_rows, n_out), np.float32)
    scratch = np.zeros(n_cols, np.float32)
    has_codes = team.library.quant_support(quant, level=team.level) is QuantSupport.CODES
    uses_codes = has_codes and not args.exact
    team.run(
        make_tape(
            [
                records.Quantize(
                    kind=records.Quantize.KIND,
                    x=x.ctypes.data,
                    qs=qs.ctypes.data,
                    ds=ds.ctypes.data,
                    n_rows=n_rows,
                    n_cols=n_cols,
                )
            ]
        )
    )
    product = records.Matmul(
        kind=records.Matmul.KIND,
        quant=quant,
        weight=weight.ctypes.data,
        x=x.ctypes.data,
        qs=qs.ctypes.data if uses_codes else None,
        ds=ds.ctypes.data if uses_codes else None,
        y=y.ctypes.data,
        scratch=scratch.ctypes.data,
        n_rows=n_rows,
        n_out=n_out,
        n_cols=n_cols,
        row_bytes=weight.shape[1],
    )
    taken = best_seconds(team, make_tape([product]), seconds=args.seconds)
    print(
        f"{quant.name:8} {team.level.name:8} rows {n_rows:4}: "
        f"{n_rows * n_out * n_cols / taken / 1e9:8.2f} Gweights/s "
        f"{weight.nbytes / taken / 1e9:7.2f} GB/s of weights"
    )


def main() -> None:
    library = load_library()
    formats = [quant for quant in QuantType if library.quant_support(quant)]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--formats", nargs="+", default=[quant.name for quant in formats])
    parser.add_argument("--levels", nargs="+", default=[level.name for level in Level])
    parser.add_argument("--rows", nargs="+", type=int, default=[1, 64])
    parser.add_argument("--columns", type=int, default=2048)
    parser.add_argument("--outputs", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=0.05)
    parser.add_argument("--exact", action="store_true", help="float32 products")
    args = parser.parse_args()
    for level in (Level[name.upper()] for name in args.levels):
        if level > library.best_level:
            print(f"{level.name}: this processor cannot run it")
            continue
        team = Team(library, 1, level=level)
        for name in args.formats:
            for n_rows in args.rows:
                measure(team, QuantType[name.upper()], n_rows, args=args)
        team.close()


if __name__ == "__main__":
    main()
