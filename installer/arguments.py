"""The command line of `python -m installer`: what to set up for each command, then start it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from installer.checkout import Checkout
from installer.console import Console
from installer.demo_model import demo_model_step
from installer.environment import venv_step
from installer.errors import InstallError
from installer.packages import extra_step, package_steps
from installer.start import (
    answer_command,
    brings_model,
    check_commands,
    check_display,
    hand_over,
    names_demo,
    run_checks,
    window_command,
)
from installer.steps import Stamps, Step, only_one, run_steps
from installer.system_libraries import system_libraries_step

EXIT_FAILED = 1
EXIT_INTERRUPTED = 130

DESCRIPTION = """\
Sets up Strata Desktop in this folder and starts it. The first run downloads about 220 MB of
packages and SmolLM2, a demo model of 93 MB (Bard, the other one, is part of the program); later
runs start at once, and an interrupted run goes on where it was."""

EXAMPLES = """\
examples:
  python -m installer run                          open the window and choose a model there
  python -m installer run -- bard                  open it with Bard (or smollm2)
  python -m installer run -- path/to/model.gguf    open it with your own model
  python -m installer run --headless "Hello!"      print one answer, no window
  python -m installer test                         run every check and test
  python -m installer test -k chunks               run all checks and some of the tests"""


def main(arguments: Sequence[str]) -> int:
    """Run the installer and return its exit code."""
    parser = make_parser()
    command, rest = split_arguments(arguments)
    options = parser.parse_args(command)
    if options.command is None:
        parser.print_help()
        return 0
    checkout = Checkout(Path(__file__).resolve().parent.parent)
    console = Console(sys.stderr, checkout.cache / "install.log")
    try:
        if options.command == "run":
            return run(checkout, console, prompt=options.headless, arguments=rest)
        return test(checkout, console, pytest_arguments=[*options.rest, *rest])
    except InstallError as error:
        console.fail(str(error), error.lines)
        return EXIT_FAILED
    except KeyboardInterrupt:
        console.fail("Stopped. The same command goes on from here.")
        return EXIT_INTERRUPTED


def make_parser() -> argparse.ArgumentParser:
    """Return the parser; what stands behind `--` is taken off before it."""
    parser = argparse.ArgumentParser(
        prog="python -m installer",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    run_parser = commands.add_parser(
        "run",
        help="set up and open the window",
        usage="%(prog)s [--headless PROMPT] [-- WINDOW ARGUMENTS]",
        description="Set up what is missing and open the window, which offers Bard and SmolLM2. "
        "What stands behind -- goes to the window (see: strata-desktop --help).",
        allow_abbrev=False,
    )
    run_parser.add_argument(
        "--headless",
        metavar="PROMPT",
        help="open no window: print SmolLM2's answer to PROMPT and end",
    )
    test_parser = commands.add_parser(
        "test",
        help="set up and run every check and test",
        usage="%(prog)s [PYTEST ARGUMENTS]",
        description="Set up what is missing, then run ruff, mypy, import-linter and pytest. All "
        "arguments go to pytest.",
        allow_abbrev=False,
    )
    test_parser.set_defaults(rest=[])
    return parser


def split_arguments(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split into what we read and what we hand on: behind `--`, and everything behind `test`."""
    given = list(arguments)
    if given[:1] == ["test"] and given[1:2] not in (["-h"], ["--help"]):
        rest = given[1:]
        return ["test"], rest[1:] if rest[:1] == ["--"] else rest
    if "--" in given:
        at = given.index("--")
        return given[:at], given[at + 1 :]
    return given, []


def run(
    checkout: Checkout, console: Console, *, prompt: str | None, arguments: Sequence[str]
) -> int:
    """Set up for use and start the window, or print one answer."""
    if prompt is None:
        check_display()
    elif arguments:
        raise InstallError("--headless opens no window, so nothing can stand behind --.")
    paths = checkout.paths_module()
    steps = [venv_step(checkout)]
    if prompt is None:
        steps.append(system_libraries_step(wants_window=True))
    steps += package_steps(checkout)
    if prompt is not None or names_demo(arguments):
        steps.append(demo_model_step(checkout))
    set_up(checkout, console, steps)
    if prompt is not None:
        return hand_over(answer_command(checkout, prompt, Path(paths.demo_model())))
    if not brings_model(arguments, paths.named_models()):
        offer_demo(checkout, console, demo_model_step(checkout))
    console.say("Opening Strata Desktop ...")
    return hand_over(window_command(checkout, arguments))


def offer_demo(checkout: Checkout, console: Console, step: Step) -> None:
    """Fetch the model that the window offers beside its own; without it the window opens too."""
    try:
        set_up(checkout, console, [step])
    except InstallError as error:
        console.fail(str(error), error.lines)
        console.say(
            "So the window offers only Bard, the model that is part of the program, and your own "
            "files. The next run tries again."
        )


def test(checkout: Checkout, console: Console, *, pytest_arguments: Sequence[str]) -> int:
    """Set up for development and run every check."""
    set_up(
        checkout,
        console,
        [
            venv_step(checkout),
            system_libraries_step(wants_window=False),
            *package_steps(checkout),
            extra_step(checkout, "dev", "Test tools"),
            demo_model_step(checkout),
        ],
    )
    return run_checks(checkout, check_commands(checkout, pytest_arguments), console)


def set_up(checkout: Checkout, console: Console, steps: Sequence[Step]) -> None:
    """Do the steps, alone in this checkout.

    Raises:
        InstallError: from the step that failed.
    """
    with only_one(checkout.cache / "lock", console):
        run_steps(steps, Stamps(checkout.stamps), console)
