"""Steps that install packages into the environment with pip, and the program itself with them.

Where packages come from is pip's own configuration; nothing here names a place.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from installer.checkout import Checkout
from installer.commands import run_logged
from installer.console import Console
from installer.errors import InstallError
from installer.steps import Step, digest_of

FIRST_PIP_WITH_RAW_PROGRESS = (24, 1)


class PipProgress:
    """Makes one short text of pip's many lines; pass it as `condense`."""

    def __init__(self) -> None:
        self._download = ""

    def __call__(self, line: str) -> str | None:
        """Return what to show for a line of pip's output, or None to leave the text as it is."""
        text = line.strip()
        if match := re.fullmatch(r"Progress (\d+) of (\d+)", text):
            return f"{self._download} {int(match[1]) >> 20} of {int(match[2]) >> 20} MiB"
        if match := re.match(r"Downloading (\S+)(?: \((.+)\))?$", text):
            name = match[1].rsplit("/", 1)[-1].split("-", 1)[0]
            self._download = f"downloading {name}"
            return f"{self._download} ({match[2]})" if match[2] else self._download
        if match := re.match(r"(?:Collecting|Processing) (\S+)", text):
            return f"looking at {match[1]}"
        if match := re.match(r"Installing collected packages: (.+)", text):
            return f"installing {len(match[1].split(', '))} packages"
        if text.startswith("Building editable"):
            return "compiling the C kernels"
        return None


def pip_command(checkout: Checkout, action: str, *arguments: str) -> list[str]:
    """Return the command line of pip in the environment, quiet where nobody would look."""
    return [
        str(checkout.python),
        "-m",
        "pip",
        "--disable-pip-version-check",
        "--no-input",
        "--retries",
        "5",
        action,
        *arguments,
    ]


def run_pip(checkout: Checkout, console: Console, action: str, *arguments: str) -> None:
    """Run pip with its progress on the console.

    Raises:
        InstallError: pip failed; the error carries its last lines.
    """
    lines = run_logged([str(checkout.python), "-m", "pip", "--version"], console, what="pip")
    match = re.match(r"pip (\d+)\.(\d+)", lines[0] if lines else "")
    if match is None:
        raise InstallError("The environment's pip does not say its version. Delete .venv.")
    has_raw = (int(match[1]), int(match[2])) >= FIRST_PIP_WITH_RAW_PROGRESS
    shown = ["--progress-bar", "raw" if has_raw else "off"]
    run_logged(
        pip_command(checkout, action, *shown, *arguments),
        console,
        what=f"pip {action}",
        folder=checkout.root,
        # The compiler keeps what it has compiled; without this, in the person's home.
        extra_environment={"ZIG_GLOBAL_CACHE_DIR": str(checkout.root / ".cache" / "zig")},
        condense=PipProgress(),
    )


def package_steps(checkout: Checkout) -> list[Step]:
    """Return the steps that install what the program is built with, and the program.

    The build tools (a C compiler among them) stay in the environment, so that a changed source is
    compiled in seconds.
    """

    def install_build_tools(console: Console) -> None:
        if requirements := checkout.build_requirements():
            run_pip(checkout, console, "install", *requirements)

    def install_program(console: Console) -> None:
        run_pip(checkout, console, "install", "--no-build-isolation", "--editable", ".")
        if not checkout.has_library():
            raise InstallError(
                "pip installed the program, but the compiled kernels did not appear in "
                "kernels/cpu. Delete .venv and run the same command again."
            )

    return [
        Step(
            name="build-tools",
            title="Build tools",
            digest=lambda: digest_of(checkout.build_requirements()),
            is_there=checkout.venv.is_dir,
            work=install_build_tools,
        ),
        Step(
            name="program",
            title="Packages and C kernels",
            digest=lambda: digest_of(files=checkout.build_inputs()),
            is_there=checkout.has_library,
            work=install_program,
        ),
    ]


def extra_step(checkout: Checkout, extra: str, title: str) -> Step:
    """Return the step that installs the packages of an optional extra."""

    def requirements() -> Sequence[str]:
        return checkout.extra_requirements(extra)

    return Step(
        name=f"extra-{extra}",
        title=title,
        digest=lambda: digest_of(requirements()),
        is_there=checkout.venv.is_dir,
        work=lambda console: run_pip(checkout, console, "install", *requirements()),
    )
