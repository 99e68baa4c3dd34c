"""Starts what was installed: the window, one answer in the terminal, or the tests."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Container, Sequence
from pathlib import Path

from installer.checkout import Checkout
from installer.console import Console
from installer.errors import InstallError

_PLATFORMS_WITHOUT_DISPLAY = ("offscreen", "minimal", "vnc", "linuxfb", "eglfs")


def check_display() -> None:
    """Make sure that a window can be shown.

    Raises:
        InstallError: this is a session without a display.
    """
    if os.name == "nt" or sys.platform == "darwin":
        return
    platform = os.environ.get("QT_QPA_PLATFORM", "").split(":")[0]
    if platform in _PLATFORMS_WITHOUT_DISPLAY:
        return
    if os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        return
    raise InstallError(
        "There is no display here (neither DISPLAY nor WAYLAND_DISPLAY is set), so no window can "
        "open. For one answer in the terminal: python -m installer run --headless "
        '"Why is the sky blue?" For the API without a window, after that: '
        + str(Path(".venv") / "bin" / "strata")
        + " serve"
    )


def brings_model(arguments: Sequence[str], names: Container[str]) -> bool:
    """Return whether the app's arguments say themselves which model it shows.

    Args:
        arguments: of the window.
        names: models that may be named instead of their files.
    """
    return any(
        argument.lower().endswith(".gguf")
        or argument.lower() in names
        or argument.split("=")[0] in ("--attach", "--model")
        for argument in arguments
    )


def names_demo(arguments: Sequence[str]) -> bool:
    """Return whether the app's arguments ask for the model that is downloaded."""
    return any(argument.lower().removeprefix("--model=") == "smollm2" for argument in arguments)


def window_command(checkout: Checkout, arguments: Sequence[str]) -> list[str]:
    """Return the command that opens the window; without a model it offers those there are."""
    return [str(checkout.program("strata-desktop")), *arguments]


def answer_command(checkout: Checkout, prompt: str, demo: Path) -> list[str]:
    """Return the command that prints one answer."""
    return [str(checkout.program("strata")), "generate", str(demo), f"--prompt={prompt}"]


def check_commands(checkout: Checkout, pytest_arguments: Sequence[str]) -> list[list[str]]:
    """Return the checks in the order they run: the quick ones first, pytest last."""
    python = str(checkout.python)
    n_workers = "2" if (os.cpu_count() or 1) <= 2 else "auto"
    return [
        [python, "-m", "ruff", "check"],
        [python, "-m", "ruff", "format", "--check"],
        [python, "-m", "mypy"],
        [str(checkout.program("lint-imports"))],
        [python, "-m", "pytest", "-n", n_workers, *pytest_arguments],
    ]


def hand_over(command: Sequence[str]) -> int:
    """Become the command (POSIX), or wait for it and return its exit code (Windows)."""
    sys.stdout.flush()
    sys.stderr.flush()
    if os.name != "nt":
        os.execv(command[0], list(command))
    return subprocess.call(command)


def run_checks(checkout: Checkout, commands: Sequence[Sequence[str]], console: Console) -> int:
    """Run checks one after another; the first that fails ends the row with its exit code."""
    for command in commands:
        shown = " ".join([Path(command[0]).name, *command[1:]])
        console.say(f"$ {shown}")
        exit_code = subprocess.call(command, cwd=checkout.root)
        if exit_code != 0:
            return exit_code
    return 0
