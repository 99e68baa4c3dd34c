"""Prints how close every golden file is met, as rows for docs/measurements.md.

`python -m tests.engine.models.golden_table` from the root; where the shared folder is there, all of
it is run.
"""

from __future__ import annotations

import sys

import numpy as np

from engine.backend.logits import compute_logits
from tests.engine.models.goldens import committed, divergence, shared


def main() -> None:
    """Print a row for each file: exact path, then default path; short and long prompt."""
    for case in shared() or committed():
        golden = case.values[0]
        values = golden.load()
        exact, greedy, divergences = [], [], []
        for prompt in ("short", "long"):
            ids, wanted = values[f"{prompt}.ids"], values[f"{prompt}.logits_last"]
            told = values[f"{prompt}.greedy_ids"]
            had = compute_logits(golden.model, ids, is_exact=True, n_greedy=len(told))
            exact.append(f"{np.abs(had['last_logits'] - wanted).max():.1e}")
            greedy.append(f"{int((had['greedy'] == told).sum())}/{len(told)}")
            default = compute_logits(golden.model, ids)
            divergences.append(f"{max(divergence(wanted, default['last_logits']), 0):.0e}")
        cells = (golden.model.stem, *(" ".join(pair) for pair in (exact, greedy, divergences)))
        sys.stdout.write(f"| {' | '.join(cells)} |\n")


if __name__ == "__main__":
    main()
