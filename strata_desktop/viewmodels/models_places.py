"""Folders and files the person added to the list of models, remembered between runs."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

logger = logging.getLogger(__name__)

PLACES_FILE = "model_places.json"


class ModelPlaces:
    """Where models are looked for: the program's own folder first, then what was added.

    Attributes:
        own: the program's folder of models.
        added: folders and files the person added, oldest first.
    """

    def __init__(self, home: Path) -> None:
        self._file = home / PLACES_FILE
        self.own = home / "models"
        self.added: tuple[Path, ...] = self._read()

    @property
    def all(self) -> tuple[Path, ...]:
        """Every place, the program's own first."""
        return (self.own, *self.added)

    def add(self, path: Path) -> bool:
        """Remember a place; False if it was known."""
        path = path.expanduser().absolute()
        if path in self.all:
            return False
        self._write((*self.added, path))
        return True

    def remove(self, path: Path) -> bool:
        """Forget a place that was added; False if it was not. Files are not touched."""
        kept = tuple(place for place in self.added if place != path)
        if kept == self.added:
            return False
        self._write(kept)
        return True

    def place_of(self, path: Path) -> Path | None:
        """Return the added place a file came from, None if it lies in the own folder."""
        if path.is_relative_to(self.own):
            return None
        for place in self.added:
            if path == place or path.is_relative_to(place):
                return place
        return None

    def _read(self) -> tuple[Path, ...]:
        try:
            found = json.loads(self._file.read_text(encoding="utf-8"))
            return tuple(Path(str(path)) for path in found["places"])
        except FileNotFoundError:
            return ()
        except (OSError, ValueError, KeyError, TypeError) as error:
            # Kept under another name, so that a person can still mend it.
            logger.info("%s cannot be read and starts empty: %s", self._file, error)
            if self._file.is_file():
                os.replace(self._file, self._file.with_suffix(".unreadable"))
            return ()

    def _write(self, added: tuple[Path, ...]) -> None:
        self.added = added
        self._file.parent.mkdir(parents=True, exist_ok=True)
        beside = self._file.with_suffix(".new")
        text = json.dumps({"places": [str(path) for path in added]}, ensure_ascii=False, indent=1)
        beside.write_text(text, encoding="utf-8")
        os.replace(beside, self._file)
