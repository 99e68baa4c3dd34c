"""Hatchling's hook: compiles the CPU kernels while the project is installed or made a wheel.

An editable install builds into `kernels/cpu/`, a wheel takes the library from a temporary folder.
`STRATA_BUILD_TARGET` (a key of `kernels.cpu.build.TARGETS`) builds for another system.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CpuKernelsHook(BuildHookInterface):  # type: ignore[type-arg]
    """Builds libstrata_cpu and puts it beside its loader."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build before files are collected; `version` is "standard" or "editable"."""
        if self.target_name != "wheel":
            return
        sys.path.insert(0, self.root)
        try:
            from kernels.cpu.build import HERE, build_library, find_target
        finally:
            sys.path.remove(self.root)
        name = os.environ.get("STRATA_BUILD_TARGET") or None
        target = find_target(name)
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{target.wheel_tag}"
        if version == "editable":
            build_library(HERE, name)
            return
        self._folder = tempfile.TemporaryDirectory(prefix="strata-kernels-")
        library = build_library(Path(self._folder.name), name)
        build_data["force_include"][str(library)] = f"kernels/cpu/{library.name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the temporary folder."""
        if hasattr(self, "_folder"):
            self._folder.cleanup()
