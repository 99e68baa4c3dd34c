"""`strata chat`: a conversation in the terminal."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import sys
from typing import TYPE_CHECKING, Any

from engine.commands.generate import describe, write_text
from engine.commands.options import (
    add_lengths,
    add_model,
    add_sampling,
    sampling_params,
    single_lane_config,
)
from engine.errors import ContextLengthError, RequestError

if TYPE_CHECKING:
    from engine.api.served import LoadedModel

HELP = """\
/help   this list
/reset  begin a new conversation
/exit   end (Ctrl+D does it too)
Ctrl+C  stops the answer that is being written"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    add_model(parser)
    parser.add_argument("--system", metavar="TEXT", help="a system message for the conversation")
    parser.add_argument(
        "--stats", action="store_true", help="print token counts and speed after each answer"
    )
    add_sampling(parser)
    add_lengths(parser)


def run(options: argparse.Namespace) -> int:
    """Load, then read and answer until the person has enough.

    Raises:
        EngineError: the model cannot be loaded, or the engine failed.
    """
    sampling_params(options)
    config = single_lane_config(options)
    from engine.commands.answering import loaded_model

    if sys.stdin.isatty():
        # Line editing and history, where this Python has them; importing is all it takes.
        with contextlib.suppress(ImportError):
            importlib.import_module("readline")
    with loaded_model(config) as loaded:
        say(f"{loaded.summary.name}, {loaded.context_tokens:,} tokens of context. /help helps.")
        return converse(loaded, options)


def converse(loaded: LoadedModel, options: argparse.Namespace) -> int:
    """Read a line, answer it, and again."""
    opening = [] if options.system is None else [{"role": "system", "content": options.system}]
    messages: list[dict[str, Any]] = list(opening)
    while True:
        line = read_line()
        if line is None or line == "/exit":
            return 0
        if line == "/help":
            say(HELP)
        elif line == "/reset":
            messages = list(opening)
            say("A new conversation.")
        elif line.startswith("/"):
            say(f"There is no command {line.split()[0]}. /help lists them.")
        elif line:
            messages = take_turn(loaded, options, messages, line)


def take_turn(
    loaded: LoadedModel, options: argparse.Namespace, messages: list[dict[str, Any]], line: str
) -> list[dict[str, Any]]:
    """Answer one message and return the conversation with it; a refusal leaves it as it was."""
    from engine.commands.answering import answer

    asked = [*messages, {"role": "user", "content": line}]
    pieces: list[str] = []

    def write(text: str) -> None:
        pieces.append(text)
        write_text(text)

    try:
        result = answer(
            loaded,
            loaded.prompts.chat_ids(asked),
            sampling=sampling_params(options),
            max_tokens=options.max_new,
            stop=options.stop,
            write=write,
        )
    except ContextLengthError as error:
        say(f"{error} /reset begins a new conversation.")
        return messages
    except RequestError as error:
        say(str(error))
        return messages
    except KeyboardInterrupt:
        write_text("\n")
        say("Stopped.")
        text = "".join(pieces)
        return [*asked, {"role": "assistant", "content": text}] if text else messages
    write_text("\n")
    if options.stats:
        say(describe(result.usage))
    return [*asked, {"role": "assistant", "content": result.text}]


def read_line() -> str | None:
    """Return what the person typed, without spaces around it; None at the end of input."""
    try:
        return input("> " if sys.stdin.isatty() else "").strip()
    except EOFError:
        if sys.stdin.isatty():
            write_text("\n")
        return None


def say(text: str) -> None:
    """Print something that is not the model's."""
    print(text, file=sys.stderr)
