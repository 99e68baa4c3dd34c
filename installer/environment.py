"""Finds a Python to build on and makes the environment `.venv` with it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from installer.checkout import Checkout
from installer.commands import run_logged
from installer.console import Console
from installer.debian import install_debian_packages, is_root_on_debian
from installer.errors import InstallError
from installer.steps import Step, digest_of

TRIED_VERSIONS = ((3, 13), (3, 12), (3, 11))
"""Versions looked for by name, best first; the Python that runs the installer comes last."""

OLDEST_VERSION = (3, 11)

_PROBE = """
import json, sys
have = []
for name in ("venv", "ensurepip", "ssl"):
    try:
        __import__(name)
        have.append(name)
    except ImportError:
        pass
print(json.dumps([list(sys.version_info[:2]), have]))
"""


@dataclass(frozen=True)
class Interpreter:
    """A Python that was asked what it can do.

    Attributes:
        command: how it is started.
        version: major and minor.
        can_make_venv: whether the modules for an environment with pip are there.
    """

    command: tuple[str, ...]
    version: tuple[int, int]
    can_make_venv: bool


def probe(command: Sequence[str]) -> Interpreter | None:
    """Start a Python and ask for its version and modules; None if it does not start or is old."""
    try:
        answer = subprocess.run(
            [*command, "-I", "-c", _PROBE],
            capture_output=True,
            text=True,
            timeout=30,
            stdin=subprocess.DEVNULL,
            check=True,
        )
        version, modules = json.loads(answer.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    if tuple(version) < OLDEST_VERSION or "ssl" not in modules:
        return None
    return Interpreter(
        command=tuple(command),
        version=(version[0], version[1]),
        can_make_venv={"venv", "ensurepip"} <= set(modules),
    )


def find_interpreter() -> Interpreter:
    """Return the best Python for the environment.

    That is the newest of `TRIED_VERSIONS` that can make an environment, else the running one.

    Raises:
        InstallError: even the running one cannot be asked.
    """
    found = []
    for command in _candidates():
        interpreter = probe(command)
        if interpreter is not None and interpreter.can_make_venv:
            return interpreter
        if interpreter is not None:
            found.append(interpreter)
    if not found:
        raise InstallError(
            f"No usable Python was found: {sys.executable} does not start, or it has no ssl "
            "module. Install Python 3.11 or newer and run the same command with it."
        )
    return found[-1]


def _candidates() -> list[tuple[str, ...]]:
    running = (getattr(sys, "_base_executable", None) or sys.executable,)
    candidates: list[tuple[str, ...]] = []
    for major, minor in TRIED_VERSIONS:
        if sys.version_info[:2] == (major, minor):
            candidates.append(running)
        elif os.name == "nt" and shutil.which("py"):
            candidates.append(("py", f"-{major}.{minor}"))
        elif path := shutil.which(f"python{major}.{minor}"):
            candidates.append((path,))
    if running not in candidates:
        candidates.append(running)
    return candidates


def venv_step(checkout: Checkout) -> Step:
    """Return the step that makes the environment."""
    return Step(
        name="environment",
        title="Python environment",
        digest=lambda: digest_of([str(checkout.venv)]),
        is_there=checkout.python.exists,
        work=lambda console: make_venv(checkout, console),
    )


def make_venv(checkout: Checkout, console: Console) -> None:
    """Make `.venv`, or take the one that is there if it is whole and not too old.

    Raises:
        InstallError: the Python found cannot make environments and we may not help it.
    """
    if _is_whole(checkout.python):
        console.note("taking the one that is there")
        return
    interpreter = find_interpreter()
    if not interpreter.can_make_venv:
        interpreter = _complete(interpreter, console)
    console.note("with Python {}.{}".format(*interpreter.version))
    run_logged(
        [*interpreter.command, "-m", "venv", "--clear", str(checkout.venv)],
        console,
        what="Making the Python environment",
    )


def _is_whole(python: Path) -> bool:
    if not python.exists() or probe([str(python)]) is None:
        return False
    answer = subprocess.run(
        [str(python), "-I", "-m", "pip", "--version"],
        capture_output=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    return answer.returncode == 0


def _complete(interpreter: Interpreter, console: Console) -> Interpreter:
    """Bring the modules that Debian keeps in a package of its own."""
    package = "python{}.{}-venv".format(*interpreter.version)
    if not is_root_on_debian():
        raise InstallError(
            f"This Python ({' '.join(interpreter.command)}) cannot make environments. On Debian "
            f"and Ubuntu one command mends it: sudo apt-get install python3-venv ({package} if it "
            "is not the system's own Python). Then run the same command again."
        )
    is_system_python = Path(interpreter.command[0]).resolve().parent == Path("/usr/bin")
    install_debian_packages(["python3-venv"] if is_system_python else [package], console)
    again = probe(interpreter.command)
    if again is None or not again.can_make_venv:
        raise InstallError(
            f"{' '.join(interpreter.command)} still cannot make environments, though {package} was "
            "installed. Run the installer with another Python 3.11 or newer."
        )
    return again
