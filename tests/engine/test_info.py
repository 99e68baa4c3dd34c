"""What `strata info` prints for people of a mixture model's parts."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.cli import main

GOLDEN = Path(__file__).resolve().parent.parent / "golden"


@pytest.fixture
def mixture_path() -> Path:
    return next(iter(sorted(GOLDEN.glob("qwen4exp*.gguf"))))


def test_info_tells_groups_formats_and_states(mixture_path, capsys):
    assert main(["info", str(mixture_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    label = {line.split("  ")[0]: line for line in lines}
    assert "%" in label["Size of experts"]
    assert "Recurrent state of a lane" in label
    assert {f"K/V per token in {name}" for name in ("f16", "int8", "k8v4", "q4")} <= set(label)
