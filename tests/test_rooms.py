"""Borders that the import contracts cannot express: Qt widgets are drawn in views and app only."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

DESKTOP = Path(__file__).resolve().parent.parent / "strata_desktop"
DRAWING = {"QtWidgets", "QtSvgWidgets", "QtOpenGLWidgets"}


def imported_names(source: str) -> set[str]:
    """Every module and name a file imports, at any depth."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def draws(source: str) -> bool:
    return any(part in DRAWING for name in imported_names(source) for part in name.split("."))


def test_the_check_sees_each_way_to_import_widgets():
    assert draws("from PySide6 import QtWidgets")
    assert draws("def f():\n    from PySide6.QtWidgets import QLabel")
    assert draws("import PySide6.QtWidgets")
    assert not draws("from PySide6.QtCore import QObject")


@pytest.mark.parametrize("room", ["client", "viewmodels"])
def test_rooms_without_widgets(room: str):
    files = sorted((DESKTOP / room).rglob("*.py"))
    assert files
    assert [str(path) for path in files if draws(path.read_text("utf-8"))] == []
