"""Fixtures shared by all tests: where large references and the demo model are."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.demo_model import find_demo_model

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

REPO = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """The folder of large references; skips where it is absent."""
    path = Path(os.environ.get("STRATA_SHARED", REPO.parent / "shared"))
    if not (path / "golden").is_dir():
        pytest.skip("the large reference files are not beside this checkout")
    return path


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """The demo model's file; skips where it was not fetched."""
    path = find_demo_model()
    if path is None:
        pytest.skip("the demo model was not fetched; `python -m installer test` does it")
    return path
