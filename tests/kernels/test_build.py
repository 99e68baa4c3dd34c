"""Building the native library, as installation does it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from installer.build_hook import CpuKernelsHook
from kernels.cpu import build
from kernels.cpu.build import build_library, find_target, host_target
from kernels.cpu.library import load_library
from kernels.errors import KernelCompileError

REPO = Path(__file__).resolve().parents[2]

pytest.importorskip("ziglang", reason="the compiler is a development dependency")


def make_hook(target_name: str, folder: Path) -> CpuKernelsHook:
    nothing: Any = None
    return CpuKernelsHook(str(REPO), {}, nothing, nothing, str(folder), target_name)


def test_a_built_library_loads_and_leaves_nothing_else(tmp_path: Path) -> None:
    path = build_library(tmp_path / "new")
    assert [file.name for file in path.parent.iterdir()] == [find_target(None).file_name]
    assert load_library(path).stamp == build.source_stamp()


def test_what_the_compiler_says_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "broken.c"
    broken.write_text("int strata_forty_two(void) { return fourty_two; }\n")
    monkeypatch.setattr(build, "SOURCES", (str(broken),))
    with pytest.raises(KernelCompileError, match="fourty_two"):
        build_library(tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def test_a_wheel_gets_the_library_of_its_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("STRATA_BUILD_TARGET", raising=False)
    hook = make_hook("wheel", tmp_path)
    wheel: dict[str, Any] = {"force_include": {}}
    hook.initialize("standard", wheel)
    target = find_target(host_target())
    assert wheel["tag"] == f"py3-none-{target.wheel_tag}"
    assert wheel["pure_python"] is False
    [(source, inside)] = wheel["force_include"].items()
    assert inside == f"kernels/cpu/{target.file_name}"
    assert Path(source).is_file()
    hook.finalize("standard", wheel, "")
    assert not Path(source).exists()


def test_an_unknown_target_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRATA_BUILD_TARGET", "amiga-m68k")
    with pytest.raises(KernelCompileError, match="amiga-m68k.*known: linux-x86_64"):
        make_hook("wheel", tmp_path).initialize("standard", {"force_include": {}})


def test_a_source_archive_is_left_alone(tmp_path: Path) -> None:
    archive: dict[str, Any] = {}
    make_hook("sdist", tmp_path).initialize("standard", archive)
    assert archive == {}
