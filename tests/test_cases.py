"""The table of regression cases names tests that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parent
TABLE = TESTS.parent / "docs" / "cases.md"


def test_every_test_of_the_table_exists() -> None:
    rows = [row for row in TABLE.read_text("utf-8").splitlines() if row.startswith("| K")]
    assert len({row.split("|")[1] for row in rows}) == len(rows) > 0
    for row in rows:
        named = re.findall(r"`([^`]+\.py)::(\w+)`", row)
        assert named or "later" in row, row
        for file, name in named:
            tree = ast.parse((TESTS / file).read_text("utf-8"))
            assert name in {one.name for one in tree.body if isinstance(one, ast.FunctionDef)}, row
