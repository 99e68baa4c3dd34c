"""The `strata` program: joins the commands of `engine.commands` to one command line.

Exit codes: 0 done, 1 an error (one sentence on stderr), 2 wrong usage, 130 interrupted.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import sys
from collections.abc import Callable, Sequence
from typing import TextIO

from engine import __version__
from engine.commands import chat, generate, info, logits, serve
from engine.errors import ConfigError, EngineError, InvalidRequestError
from engine.log import start_logging

EXIT_ERROR = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130

EPILOG = """\
examples:
  strata generate --prompt "Why is the sky blue?"
  echo "Why is the sky blue?" | strata generate model.gguf --max-new 100 --json
  strata chat bard --temperature 0.7 --top-p 0.9
  strata serve model.gguf --kv-pool-tokens 65536 --batch 4
  strata info model.gguf

"strata COMMAND --help" lists the options of a command.
exit codes: 0 done, 1 error, 2 wrong usage, 130 interrupted"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    _speak_utf8(sys.stdout, sys.stderr)
    parser = make_parser()
    options = parser.parse_args(arguments)
    if options.command is None:
        parser.print_help()
        return 0
    start_logging(is_verbose=options.verbose)
    if not options.verbose:
        _say_failed_loads_once()
    try:
        run: Callable[[argparse.Namespace], int] = options.run
        return run(options)
    except (ConfigError, InvalidRequestError) as error:
        return _fail(error, options, EXIT_USAGE)
    except (EngineError, OSError, MemoryError) as error:
        if isinstance(error, BrokenPipeError):
            # The reader of our output has enough; nobody is left to tell.
            with contextlib.suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return EXIT_ERROR
        return _fail(error, options, EXIT_ERROR)
    except KeyboardInterrupt:
        print("Stopped.", file=sys.stderr)
        return EXIT_INTERRUPTED


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    parser = argparse.ArgumentParser(
        prog="strata",
        description="Run a model in the terminal or serve it over HTTP.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"strata {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name, module, text in (
        ("generate", generate, "answer one prompt and print the answer"),
        ("chat", chat, "talk with the model in the terminal"),
        ("serve", serve, "serve the HTTP API without a window"),
        ("info", info, "show what a model file holds"),
        ("logits", logits, "show what the model expects next"),
    ):
        command = commands.add_parser(
            name, help=text, description=f"{text[0].upper() + text[1:]}.", allow_abbrev=False
        )
        command.add_argument(
            "--verbose", action="store_true", help="log everything, and show where errors arose"
        )
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    return parser


def _say_failed_loads_once() -> None:
    """Keep the service's report of a failed load out of the log: the command says it itself."""
    for handler in logging.getLogger().handlers:
        handler.addFilter(
            lambda record: record.name != "engine.service" or record.levelno != logging.ERROR
        )


def _fail(error: Exception, options: argparse.Namespace, exit_code: int) -> int:
    if options.verbose:
        import traceback

        traceback.print_exception(error)
    sentence = str(error) or f"{type(error).__name__} without a word of explanation."
    print(f"strata {options.command}: {sentence}", file=sys.stderr)
    return exit_code


def _speak_utf8(*streams: TextIO) -> None:
    """Write UTF-8 whatever the terminal claims, so that no answer ends in an encoding error."""
    for stream in streams:
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(encoding="utf-8", errors="replace")


if __name__ == "__main__":
    sys.exit(main())
