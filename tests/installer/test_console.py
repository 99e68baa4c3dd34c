"""What is shown: rewritten lines on a terminal, rare ones in a pipe, all in the log."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from installer.commands import KEPT_LINES, run_logged
from installer.console import HEARTBEAT_S, Console
from installer.errors import InstallError


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_pipe_gets_a_line_only_now_and_then(tmp_path: Path) -> None:
    clock, stream = Clock(), io.StringIO()
    console = Console(stream, tmp_path / "log", clock=clock)
    console.begin(2, 5, "Packages")
    for second in range(50):
        clock.now_s = float(second)
        console.note(f"package {second}")
    console.done()
    lines = stream.getvalue().splitlines()
    assert lines[0] == "[2/5] Packages ..."
    assert lines[-1] == "[2/5] Packages: done (49.0 s)"
    assert len(lines) == 2 + int(49 / HEARTBEAT_S)
    assert "\x1b" not in stream.getvalue()


def test_a_terminal_line_is_rewritten_and_never_wraps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    clock, stream = Clock(), Terminal()
    console = Console(stream, tmp_path / "log", clock=clock)
    console.begin(1, 2, "Packages")
    clock.now_s = 3.0
    console.note("downloading " + "x" * 100)
    clock.now_s = 90.0
    console.done()
    drawn = stream.getvalue().split("\r\x1b[K")
    assert max(len(line.rstrip("\n")) for line in drawn) <= 39
    assert drawn[-1] == "[1/2] Packages: done (1.5 min)\n"


def test_a_stream_that_cannot_write_a_sign_goes_on(tmp_path: Path) -> None:
    raw = io.BytesIO()
    console = Console(io.TextIOWrapper(raw, encoding="ascii"), tmp_path / "log")
    console.say("Größe …")
    assert raw.getvalue() == b"Gr??e ?\n"


def test_a_failing_command_shows_its_end_and_the_log_has_all(
    tmp_path: Path, console: Console, screen: io.StringIO
) -> None:
    code = "for i in range(40): print('line', i)\nraise SystemExit(3)"
    with pytest.raises(InstallError, match="The thing ended with exit code 3") as caught:
        run_logged([sys.executable, "-c", code], console, what="The thing")
    assert caught.value.lines == tuple(f"line {i}" for i in range(40 - KEPT_LINES, 40))
    assert "line 0" in console.log_path.read_text()
    console.fail(str(caught.value), caught.value.lines)
    assert str(console.log_path) in screen.getvalue()


def test_a_command_that_is_not_there_is_an_install_error(console: Console) -> None:
    with pytest.raises(InstallError, match="apt cannot be started"):
        run_logged(["strata-no-such-program"], console, what="apt")


def test_broken_bytes_do_not_end_the_reading(console: Console) -> None:
    code = "import sys; sys.stdout.buffer.write(b'a\\xff\\nb\\n')"
    assert run_logged([sys.executable, "-c", code], console, what="it") == ["a\ufffd", "b"]
