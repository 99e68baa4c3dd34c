"""What the window remembers between runs, in one INI file of the data folder."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QByteArray, QSettings

SETTINGS_FILE = "desktop.ini"


class WindowSettings:
    """Geometry, page, drawer, theme, last conversation."""

    def __init__(self, home: Path) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self._ini = QSettings(str(home / SETTINGS_FILE), QSettings.Format.IniFormat)

    def text(self, key: str, default: str = "") -> str:
        """Return a text."""
        value = self._ini.value(key, default)
        return value if isinstance(value, str) else default

    def flag(self, key: str, *, default: bool) -> bool:
        """Return a switch."""
        return self.text(key, "on" if default else "off") == "on"

    def number(self, key: str, default: int) -> int:
        """Return a whole number; anything else in the file counts as `default`."""
        text = self.text(key, str(default))
        return int(text) if text.lstrip("-").isdigit() else default

    def geometry(self) -> QByteArray:
        """Return the window's geometry, empty at first."""
        value = self._ini.value("window/geometry")
        return value if isinstance(value, QByteArray) else QByteArray()

    def set_text(self, key: str, value: str) -> None:
        """Keep a text."""
        self._ini.setValue(key, value)

    def set_flag(self, key: str, *, is_on: bool) -> None:
        """Keep a switch."""
        self._ini.setValue(key, "on" if is_on else "off")

    def set_number(self, key: str, value: int) -> None:
        """Keep a whole number."""
        self._ini.setValue(key, str(value))

    def set_geometry(self, geometry: QByteArray) -> None:
        """Keep the window's geometry."""
        self._ini.setValue("window/geometry", geometry)

    def save(self) -> None:
        """Write to disk now."""
        self._ini.sync()
