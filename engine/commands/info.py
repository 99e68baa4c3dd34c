"""`strata info`: what a GGUF file holds, read from its header alone."""

from __future__ import annotations

import argparse
import dataclasses
import json

from engine.commands.options import add_model, model_path
from engine.gguf.summary import summarize_file
from engine.models.registry import ARCHITECTURES
from engine.stats import ModelSummary


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    add_model(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(options: argparse.Namespace) -> int:
    """Print the summary.

    Raises:
        EngineError: the file cannot be read.
    """
    summary = summarize_file(model_path(options), ARCHITECTURES)
    if options.json:
        fields = dataclasses.asdict(summary)
        fields["kv_bytes_per_context"] = summary.kv_bytes_per_token * summary.context_tokens
        print(json.dumps(fields, ensure_ascii=False, indent=2))
    else:
        print(describe(summary))
    return 0


def describe(summary: ModelSummary) -> str:
    """Return the summary as lines for people."""
    kv_context_bytes = summary.kv_bytes_per_token * summary.context_tokens
    rows = [
        ("Name", summary.name),
        ("File", summary.path),
        ("Size", f"{as_bytes(summary.file_bytes)} in {summary.n_shards} file(s)"),
        ("Architecture", summary.architecture),
        ("Runs here", "yes" if summary.is_supported else f"no: {summary.reason}"),
        ("Weights", f"{summary.n_params:,}, most of them {summary.quantization}"),
        ("Tensors", ", ".join(f"{n} {kind}" for kind, n in summary.tensor_types.items())),
        ("Layers", f"{summary.n_layers}, width {summary.d_model}"),
        ("Heads", f"{summary.n_heads}, {summary.n_kv_heads} for K and V"),
        ("Experts", f"{summary.n_experts}, {summary.n_experts_used} used for each token")
        if summary.n_experts
        else ("Experts", "none"),
        ("Vocabulary", f"{summary.n_vocab:,} tokens"),
        ("Chat template", "yes" if summary.has_chat_template else "no"),
        ("Context", f"{summary.context_tokens:,} tokens"),
        ("K/V per token", as_bytes(summary.kv_bytes_per_token)),
        ("K/V of a whole context", as_bytes(kv_context_bytes)),
        *((f"K/V per token in {name}", as_bytes(n)) for name, n in summary.kv_format_bytes.items()),
        *(
            (f"Size of {group}", f"{as_bytes(n)}: {_formats(summary, group)}")
            for group, n in summary.group_bytes.items()
            if n
        ),
    ]
    if summary.state_bytes_per_lane:
        rows.append(("Recurrent state of a lane", as_bytes(summary.state_bytes_per_lane)))
    rows.extend(("Warning", warning) for warning in summary.warnings)
    width = max(len(label) for label, _ in rows)
    return "\n".join(f"{label:<{width}}  {text}" for label, text in rows)


def _formats(summary: ModelSummary, group: str) -> str:
    """Return the formats of a group's tensors with their shares of its bytes."""
    formats = summary.group_formats.get(group, {})
    n_all = sum(formats.values()) or 1
    return ", ".join(f"{kind} {100 * n / n_all:.1f} %" for kind, n in formats.items())


def as_bytes(n_bytes: int) -> str:
    """Return a number of bytes for people, exact below 10 KiB."""
    if n_bytes < 10 * 1024:
        return f"{n_bytes:,} B"
    size = float(n_bytes)
    for unit in ("KiB", "MiB", "GiB"):
        size /= 1024
        if size < 1024 or unit == "GiB":
            return f"{size:,.1f} {unit} ({n_bytes:,} B)"
    raise AssertionError("the last unit takes any size")
