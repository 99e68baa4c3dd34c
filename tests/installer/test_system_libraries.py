"""Qt's libraries: found out by loading, installed as root on Debian, else named."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from installer import system_libraries
from installer.console import Console
from installer.errors import InstallError
from installer.system_libraries import (
    QT_LIBRARIES,
    X11_LIBRARIES,
    bring_libraries,
    has_fonts,
    is_loadable,
    missing_libraries,
)

ABSENT = {"libstrata-no-such.so.9": "libstrata-no-such9"}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks Linux's loader")
def test_loading_tells_present_from_absent() -> None:
    assert is_loadable("libc.so.6")
    assert missing_libraries({"libc.so.6": "libc6", **ABSENT}) == ABSENT


def test_only_what_does_not_load_is_missing() -> None:
    every = {**QT_LIBRARIES, **X11_LIBRARIES}
    gone = {"libxcb-cursor.so.0": "libxcb-cursor0", "libEGL.so.1": "libegl1"}
    assert missing_libraries(every, can_load=lambda name: name not in gone) == gone


def test_fonts_are_looked_for_in_folders(tmp_path: Path) -> None:
    assert not has_fonts((str(tmp_path), str(tmp_path / "absent")))
    (tmp_path / "truetype").mkdir()
    (tmp_path / "truetype" / "Some.TTF").touch()
    assert has_fonts((str(tmp_path),))


def test_nothing_missing_calls_nothing(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system_libraries, "has_fonts", lambda: True)
    bring_libraries({}, console)
    assert not console.log_path.exists()


def test_without_root_one_command_is_named(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system_libraries, "has_fonts", lambda: False)
    monkeypatch.setattr(system_libraries, "has_apt", lambda: True)
    monkeypatch.setattr(system_libraries, "is_root_on_debian", lambda: False)
    with pytest.raises(
        InstallError, match="sudo apt-get install libstrata-no-such9 fonts-dejavu-core"
    ):
        bring_libraries(ABSENT, console)


def test_another_system_is_told_the_libraries(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system_libraries, "has_fonts", lambda: True)
    monkeypatch.setattr(system_libraries, "has_apt", lambda: False)
    with pytest.raises(InstallError, match=r"libstrata-no-such\.so\.9.*your distribution"):
        bring_libraries(ABSENT, console)


@pytest.mark.skipif(sys.platform == "win32", reason="the stand-in is a shell script")
def test_a_package_that_does_not_help_is_said(
    console: Console, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    apt = tmp_path / "apt-get"
    apt.write_text("#!/bin/sh\nexit 0\n")
    apt.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(system_libraries, "has_fonts", lambda: True)
    monkeypatch.setattr(system_libraries, "has_apt", lambda: True)
    monkeypatch.setattr(system_libraries, "is_root_on_debian", lambda: True)
    with pytest.raises(InstallError, match="still do not load"):
        bring_libraries(ABSENT, console)
