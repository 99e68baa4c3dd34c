"""Damaged files end in a load or a clean error, never in a crash, a hang or a memory storm."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

REPO = Path(__file__).resolve().parents[3]
COUNT = 20_000


def test_damaged_files_end_cleanly() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "tests.engine.gguf.mutate", "--count", str(COUNT), "--seed", "1"],
        cwd=REPO,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-4000:]
    outcomes = json.loads(ended.stdout)["outcomes"]
    assert sum(outcomes.values()) == COUNT
    assert set(outcomes) == {"loaded", "GGUFFormatError", "UnsupportedModelError"}
    # Neither refusing everything nor letting everything pass would be reading.
    assert outcomes["GGUFFormatError"] > COUNT // 4
    assert outcomes["loaded"] > COUNT // 20
