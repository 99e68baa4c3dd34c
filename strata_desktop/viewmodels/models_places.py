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
        built_in: the file that is part of the program, None if it is not to be listed.
        added: folders and files the person added, oldest first.
    """

    def __init__(self, home: Path, *, built_in: Path | None = None) -> None:
        self._file = home / PLACES_FILE
        self.own = home / "models"
        self.built_in = built_in
        self.added: tuple[Path, ...] = self._read()

    @property
    def all(self) -> tuple[Path, ...]:
        """Every place, the program's own first."""
        built_in = () if self.built_in is None else (self.built_in,)
        return (self.own, *built_in, *self.added)

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

    def is_own(self, path: Path) -> bool:
        """Whether a file is one of the program's own: in its folder, or a part of it."""
        return path == self.built_in or path.is_relative_to(self.own)

    def place_of(self, path: Path) -> Path | None:
        """Return the added place a file came from, None if it is one of the program's own."""
        if self.is_own(path):
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
