"""The command line, started as a person starts it: with any Python and nothing else."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from installer import arguments
from installer.checkout import Checkout
from installer.console import Console
from installer.demo_model import demo_model_step
from installer.errors import InstallError
from installer.start import (
    answer_command,
    brings_model,
    check_commands,
    check_display,
    names_demo,
    run_checks,
    window_command,
)
from installer.steps import Step

REPO = Path(__file__).resolve().parents[2]


def run_installer(*given: str, **environment: str) -> subprocess.CompletedProcess[str]:
    # -I -S: neither this environment's packages nor a person's own are there.
    code = (
        f"import sys; sys.path.insert(0, {str(REPO)!r}); sys.argv = ['installer', *sys.argv[1:]]; "
    )
    code += "import runpy; runpy.run_module('installer', run_name='__main__')"
    return subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, *given],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=60,
        check=False,
    )


def test_alone_it_prints_help() -> None:
    answer = run_installer()
    assert answer.returncode == 0
    assert "python -m installer run" in answer.stdout
    assert "python -m installer test" in answer.stdout


def test_unknown_commands_are_usage_errors() -> None:
    answer = run_installer("fly")
    assert answer.returncode == 2
    assert "fly" in answer.stderr


def test_headless_takes_no_window_arguments() -> None:
    answer = run_installer("run", "--headless", "Hi", "--", "--theme", "dark")
    assert answer.returncode == 1
    assert "opens no window" in answer.stderr


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="there is always a display")
def test_no_display_is_said_before_anything_is_installed() -> None:
    answer = run_installer("run", DISPLAY="", WAYLAND_DISPLAY="", QT_QPA_PLATFORM="")
    assert answer.returncode == 1
    assert "no display" in answer.stderr
    assert "--headless" in answer.stderr
    assert answer.stdout == ""


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="there is always a display")
@pytest.mark.parametrize(
    ("variable", "value"),
    [("DISPLAY", ":1"), ("WAYLAND_DISPLAY", "wayland-0"), ("QT_QPA_PLATFORM", "offscreen")],
)
def test_any_way_to_show_a_window_will_do(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(InstallError):
        check_display()
    monkeypatch.setenv(variable, value)
    check_display()


@pytest.mark.parametrize(
    ("given", "ours", "rest"),
    [
        (["run"], ["run"], []),
        (["run", "--", "--theme", "dark"], ["run"], ["--theme", "dark"]),
        (["run", "--headless", "a b"], ["run", "--headless", "a b"], []),
        (["test"], ["test"], []),
        (["test", "-k", "chunks", "-x"], ["test"], ["-k", "chunks", "-x"]),
        (["test", "--", "-x"], ["test"], ["-x"]),
        (["test", "--help"], ["test", "--help"], []),
    ],
)
def test_what_is_ours_and_what_is_handed_on(
    given: list[str], ours: list[str], rest: list[str]
) -> None:
    assert arguments.split_arguments(given) == (ours, rest)


@pytest.mark.parametrize(
    ("given", "brings", "downloads"),
    [
        ([], False, False),
        (["--theme", "dark"], False, False),
        (["--port", "9000", "my/Model.GGUF"], True, False),
        (["--attach", "http://127.0.0.1:8080"], True, False),
        (["--attach=http://127.0.0.1:8080"], True, False),
        (["bard", "--theme", "dark"], True, False),
        (["--model", "Bard"], True, False),
        (["SmolLM2"], True, True),
        (["--model", "smollm2"], True, True),
        (["--model=smollm2"], True, True),
    ],
)
def test_which_model_the_arguments_bring(
    given: list[str], *, brings: bool, downloads: bool
) -> None:
    names = Checkout(REPO).paths_module().named_models()
    assert brings_model(given, names) is brings
    assert names_demo(given) is downloads
    assert window_command(Checkout(Path("/c")), given)[1:] == given


@pytest.mark.parametrize(
    ("given", "is_fetched", "is_offered"),
    [
        (["run", "--headless", "Hi"], True, False),
        (["run", "--", "smollm2"], True, False),
        (["run", "--", "bard"], False, False),
        (["run"], False, True),
    ],
)
def test_the_demo_model_is_needed_or_only_offered(
    monkeypatch: pytest.MonkeyPatch,
    checkout: Checkout,
    given: list[str],
    *,
    is_fetched: bool,
    is_offered: bool,
) -> None:
    """Without it the window opens all the same; one answer, or asking for it by name, needs it."""
    rounds: list[list[str]] = []
    started: list[list[str]] = []

    def set_up(_checkout: Checkout, _console: Console, steps: list[Step]) -> None:
        rounds.append([step.name for step in steps])
        if rounds[-1] == ["demo-model"]:
            raise InstallError("There is no network.")

    monkeypatch.setattr(arguments, "Checkout", lambda root: checkout)
    monkeypatch.setattr(arguments, "check_display", lambda: None)
    monkeypatch.setattr(arguments, "set_up", set_up)
    monkeypatch.setattr(arguments, "hand_over", lambda command: started.append(command) or 0)
    assert arguments.main(given) == 0
    assert ("demo-model" in rounds[0]) is is_fetched
    assert rounds[1:] == ([["demo-model"]] if is_offered else [])
    assert len(started) == 1


def test_a_demo_model_that_cannot_be_fetched_is_said(
    checkout: Checkout, console: Console, screen: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise InstallError("There is no network.")

    monkeypatch.setattr(arguments, "set_up", fail)
    arguments.offer_demo(checkout, console, demo_model_step(checkout))
    assert "There is no network." in screen.getvalue()
    assert "offers only Bard" in screen.getvalue()


def test_a_prompt_that_begins_with_a_dash_stays_a_prompt() -> None:
    command = answer_command(Checkout(Path("/c")), "--version", Path("/m/demo.gguf"))
    assert command[1:] == ["generate", str(Path("/m/demo.gguf")), "--prompt=--version"]


def test_linters_come_first_and_pytest_last_with_all_arguments() -> None:
    commands = check_commands(Checkout(Path("/c")), ["-k", "x"])
    names = [
        command[2] if command[1:2] == ["-m"] else Path(command[0]).stem for command in commands
    ]
    assert names == ["ruff", "ruff", "mypy", "lint-imports", "pytest"]
    assert commands[-1][3] == "-n"
    assert commands[-1][-2:] == ["-k", "x"]


def test_the_first_failing_check_ends_the_row(
    checkout: Checkout, console: Console, screen: io.StringIO, tmp_path: Path
) -> None:
    def python(code: str) -> list[str]:
        return [sys.executable, "-c", code]

    marker = tmp_path / "ran"
    commands = [
        python("pass"),
        python("raise SystemExit(7)"),
        python(f"open({str(marker)!r}, 'w')"),
    ]
    assert run_checks(checkout, commands, console) == 7
    assert not marker.exists()
    assert run_checks(checkout, commands[::2], console) == 0
    assert marker.exists()
    assert screen.getvalue().count("$ ") == 4


def test_an_interruption_says_that_the_next_run_goes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], checkout: Checkout
) -> None:
    def interrupted(*_: object, **__: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(arguments, "Checkout", lambda root: checkout)
    monkeypatch.setattr(arguments, "run", interrupted)
    assert arguments.main(["run"]) == 130
    assert "goes on from here" in capsys.readouterr().err
