"""Where things lie in a checkout, and what its pyproject.toml asks for. It changes nothing."""

from __future__ import annotations

import importlib.util
import os
import tomllib
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any


@dataclass(frozen=True)
class Checkout:
    """A folder with the project's sources.

    Attributes:
        root: the folder that holds pyproject.toml.
    """

    root: Path

    @property
    def venv(self) -> Path:
        """Folder of the Python environment."""
        return self.root / ".venv"

    @property
    def stamps(self) -> Path:
        """Folder of the stamps; it goes when the environment goes."""
        return self.venv / "installer-stamps"

    @property
    def cache(self) -> Path:
        """Folder of downloads in progress, the lock and the log."""
        return self.root / ".cache" / "installer"

    @property
    def python(self) -> Path:
        """Python of the environment."""
        return self.program("python")

    def program(self, name: str) -> Path:
        """Return the path of a program that is installed in the environment."""
        if os.name == "nt":
            return self.venv / "Scripts" / f"{name}.exe"
        return self.venv / "bin" / name

    def build_requirements(self) -> tuple[str, ...]:
        """Return what the package is built with."""
        return tuple(self._project("build-system")["requires"])

    def extra_requirements(self, extra: str) -> tuple[str, ...]:
        """Return the packages of an optional extra."""
        return tuple(self._project("project")["optional-dependencies"][extra])

    def build_inputs(self) -> list[Path]:
        """Return every file that the installed package and its C library are made from."""
        kernels = self.root / "kernels"
        files = [self.root / "pyproject.toml", self.root / "installer" / "build_hook.py"]
        files += sorted(kernels.glob("include/**/*.h"))
        files += sorted(path for path in kernels.glob("cpu/**/*") if path.suffix in (".c", ".h"))
        files.append(kernels / "cpu" / "build.py")
        return files

    def has_library(self) -> bool:
        """Return whether the compiled kernels are there (or this tree has none to compile)."""
        folder = self.root / "kernels" / "cpu"
        endings = (".so", ".dll", ".dylib")
        return not folder.is_dir() or any(path.suffix in endings for path in folder.iterdir())

    def paths_module(self) -> ModuleType:
        """Load `engine/paths.py` by itself: it says where files go, and needs no package."""
        source = self.root / "engine" / "paths.py"
        spec = importlib.util.spec_from_file_location("strata_paths", source)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    def _project(self, table: str) -> dict[str, Any]:
        with (self.root / "pyproject.toml").open("rb") as file:
            return dict(tomllib.load(file)[table])
