"""`strata generate`: one prompt, one answer on stdout."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from engine.commands.options import (
    add_lengths,
    add_model,
    add_sampling,
    sampling_params,
    single_lane_config,
)
from engine.errors import ConfigError
from engine.step import FinishReason, Usage


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    add_model(parser)
    parser.add_argument("--prompt", metavar="TEXT", help="the prompt (default: read from stdin)")
    parser.add_argument("--system", metavar="TEXT", help="a system message before the prompt")
    parser.add_argument(
        "--raw",
        action="store_true",
        help="give the prompt to the model as it is, without the chat template",
    )
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object when the answer is finished"
    )
    parser.add_argument(
        "--stats", action="store_true", help="print token counts and speed on stderr at the end"
    )
    add_sampling(parser)
    add_lengths(parser)


def run(options: argparse.Namespace) -> int:
    """Load, answer, print.

    Raises:
        EngineError: something is wrong with the file, a flag or the prompt.
    """
    sampling = sampling_params(options)
    config = single_lane_config(options)
    prompt = read_prompt(options)
    # Imported late: the service brings the whole API, and a wrong flag should be quick to say.
    from engine.commands.answering import answer, loaded_model

    with loaded_model(config) as loaded:
        if options.raw:
            prompt_ids = loaded.prompts.text_ids(prompt)
        else:
            prompt_ids = loaded.prompts.chat_ids(messages_of(options.system, prompt))
        result = answer(
            loaded,
            prompt_ids,
            sampling=sampling,
            max_tokens=options.max_new,
            stop=options.stop,
            write=(lambda text: None) if options.json else write_text,
        )
        model_id = loaded.summary.id
    if options.json:
        fields = {"model": model_id, "text": result.text, **as_fields(result.finish, result.usage)}
        print(json.dumps(fields, ensure_ascii=False))
    elif not result.text.endswith("\n"):
        print(flush=True)
    if options.stats:
        print(describe(result.usage), file=sys.stderr)
    return 0


def read_prompt(options: argparse.Namespace) -> str:
    """Return the prompt of the command line or of stdin.

    Raises:
        ConfigError: there is none.
    """
    if options.raw and options.system is not None:
        raise ConfigError("--system goes into the chat template, and --raw leaves that away.")
    if options.prompt is not None:
        prompt = str(options.prompt)
    else:
        if sys.stdin.isatty():
            print(
                "Type the prompt; an empty line with Ctrl+D (Windows: Ctrl+Z) ends it.",
                file=sys.stderr,
            )
        prompt = sys.stdin.read().removesuffix("\n")
    if not prompt:
        raise ConfigError("The prompt is empty. Give one with --prompt, or on stdin.")
    return prompt


def messages_of(system: str | None, prompt: str) -> list[dict[str, Any]]:
    """Return a conversation of one question."""
    messages = [] if system is None else [{"role": "system", "content": system}]
    return [*messages, {"role": "user", "content": prompt}]


def write_text(text: str) -> None:
    """Write a piece of the answer at once."""
    sys.stdout.write(text)
    sys.stdout.flush()


def as_fields(finish: FinishReason, usage: Usage) -> dict[str, Any]:
    """Return why an answer ended and what it took, with the names the API uses."""
    is_cut = finish in (FinishReason.LENGTH, FinishReason.POOL)
    return {
        "finish_reason": "length" if is_cut else finish.value,
        "truncated": finish is FinishReason.POOL,
        "usage": {
            "prompt_tokens": usage.n_prompt_tokens,
            "cached_tokens": usage.n_cached_tokens,
            "completion_tokens": usage.n_completion_tokens,
        },
        "prompt_ms": round(usage.prefill_s * 1000, 1),
        "predicted_ms": round(usage.decode_s * 1000, 1),
    }


def describe(usage: Usage) -> str:
    """Return counts and speeds in one line."""
    n_read = usage.n_prompt_tokens - usage.n_cached_tokens
    # The first token falls out of reading the prompt; the rest is decoding.
    n_decoded = max(usage.n_completion_tokens - 1, 0)
    return (
        f"prompt {usage.n_prompt_tokens} tokens ({usage.n_cached_tokens} known), "
        f"{_speed(n_read, usage.prefill_s)}; answer {usage.n_completion_tokens} tokens, "
        f"{_speed(n_decoded, usage.decode_s)}"
    )


def _speed(n_tokens: int, seconds: float) -> str:
    if n_tokens <= 0 or seconds <= 0:
        return f"{seconds:.2f} s"
    return f"{seconds:.2f} s = {n_tokens / seconds:.1f} tokens/s"
