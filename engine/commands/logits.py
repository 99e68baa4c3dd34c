"""`strata logits`: what the model expects after a text, for looking and for comparing programs."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.commands.generate import messages_of, read_prompt
from engine.commands.options import add_backend, add_model, model_path
from engine.config import SchedulerConfig
from engine.errors import ConfigError
from engine.gguf.reader import open_model
from engine.tokenizer.prompt import PromptBuilder
from engine.tokenizer.template import ChatTemplate
from engine.tokenizer.tokenizer import Tokenizer

DEFAULT_TOP = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    add_model(parser)
    parser.add_argument("--prompt", metavar="TEXT", help="the text (default: read from stdin)")
    parser.add_argument("--system", metavar="TEXT", help="a system message before the prompt")
    parser.add_argument(
        "--raw",
        action="store_true",
        help="take the prompt as it is, without the chat template",
    )
    parser.add_argument(
        "--ids", metavar="IDS", help="token ids instead of a text: 1,2,3 or a .npy file"
    )
    parser.add_argument(
        "--top",
        type=int,
        metavar="N",
        default=DEFAULT_TOP,
        help="show the N most likely next tokens (default: %(default)s)",
    )
    parser.add_argument(
        "--greedy",
        type=int,
        metavar="N",
        default=0,
        help="go on with the most likely token N times (default: %(default)s)",
    )
    add_backend(parser)
    parser.add_argument(
        "--exact",
        action="store_true",
        help="float32 products and float32 K/V: slow, for comparison",
    )
    parser.add_argument(
        "--span",
        type=int,
        metavar="N",
        default=SchedulerConfig().span_tokens,
        help="tokens read in one step; any number gives the same bits (default: %(default)s)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE.npz",
        help="write ids, last_logits, argmax and greedy as NumPy arrays",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(options: argparse.Namespace) -> int:
    """Read the text or ids and print the most likely next tokens.

    Raises:
        EngineError: the file, a flag or an id cannot be used.
    """
    # Imported late: it loads the compiled kernels.
    from engine.backend.logits import compute_logits

    if options.top < 1:
        raise ConfigError(f"--top must be 1 or more, got {options.top}.")
    path = model_path(options)
    with open_model(path) as model:
        tokenizer = Tokenizer.from_metadata(model.metadata)
        template = ChatTemplate.from_metadata(model.metadata, tokenizer)
    prompts = PromptBuilder(tokenizer, template)
    ids = ids_of(options, prompts)
    arrays: dict[str, Any] = {
        "ids": ids,
        **compute_logits(
            path,
            ids,
            is_exact=options.exact,
            n_greedy=options.greedy,
            span_tokens=options.span,
            backend=options.backend,
        ),
    }
    if options.out is not None:
        np.savez(options.out, **arrays)
    top = most_likely(arrays["last_logits"], options.top, tokenizer)
    greedy = [int(token) for token in arrays["greedy"]]
    if options.json:
        fields = {"ids": ids.tolist(), "top": top, "greedy": greedy}
        if greedy:
            fields["greedy_text"] = tokenizer.decode(greedy, keep_special=True)
        print(json.dumps(fields, ensure_ascii=False))
        return 0
    print(f"{len(ids)} tokens read; the most likely next ones:")
    print("rank      id     logit  probability  text")
    for row in top:
        print(
            f"{row['rank']:>4}  {row['id']:>6}  {row['logit']:>8.3f}  {row['probability']:>11.4%}  "
            f"{row['text']!r}"
        )
    if greedy:
        print(f"Greedily from there: {tokenizer.decode(greedy, keep_special=True)!r}")
    return 0


def ids_of(options: argparse.Namespace, prompts: PromptBuilder) -> npt.NDArray[np.int32]:
    """Return i32[n_tokens], the ids given or those of the text.

    Raises:
        ConfigError: neither ids nor a text, both, or a list that holds something else.
    """
    if options.ids is None:
        prompt = read_prompt(options)
        if options.raw:
            return np.asarray(prompts.text_ids(prompt), np.int32)
        return np.asarray(prompts.chat_ids(messages_of(options.system, prompt)), np.int32)
    if options.prompt is not None:
        raise ConfigError("--ids and --prompt exclude each other.")
    if options.ids.endswith(".npy"):
        return read_ids(Path(options.ids))
    try:
        return np.array([int(part) for part in options.ids.split(",")], np.int32)
    except (ValueError, OverflowError) as error:
        raise ConfigError(
            f"--ids must be whole numbers like 1,2,3 or a .npy file, got {options.ids[:60]!r}."
        ) from error


def read_ids(path: Path) -> npt.NDArray[np.int32]:
    """Read ids from a .npy file.

    Raises:
        ConfigError: it is no such file, or it holds something else than a row of whole numbers.
    """
    try:
        array = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise ConfigError(f"--ids: {path} cannot be read as a .npy file: {error}") from error
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ConfigError(
            f"--ids: {path} must hold a row of whole numbers, it has {array.dtype}"
            f"{list(array.shape)}."
        )
    return np.asarray(array, np.int32)


def most_likely(
    logits: npt.NDArray[np.float32], n_tokens: int, tokenizer: Tokenizer
) -> list[dict[str, Any]]:
    """Return the most likely tokens, best first; among equals the lower id."""
    order = np.argsort(-logits, kind="stable")[:n_tokens]
    shifted = np.exp(logits.astype(np.float64) - float(logits.max()))
    probabilities = shifted / shifted.sum()
    return [
        {
            "rank": rank,
            "id": int(token),
            "logit": float(logits[token]),
            "probability": float(probabilities[token]),
            "text": tokenizer.decode([int(token)], keep_special=True),
        }
        for rank, token in enumerate(order, 1)
    ]
