"""Options that several commands share, and the settings made of them.

Every default is written where the setting lives (`engine.config`, `engine.sampling`); help texts
read it there.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from engine.config import BackendConfig, ModelConfig, PoolConfig, SchedulerConfig
from engine.errors import ConfigError, ModelFileError
from engine.paths import default_model, demo_model, find_model, named_models
from engine.sampling import SamplingParams


def add_model(parser: argparse.ArgumentParser) -> None:
    """Add the model, by itself or behind `--model`."""
    names = " or ".join(named_models())
    parser.add_argument(
        "model",
        metavar="MODEL",
        nargs="?",
        help=f"GGUF file (any shard of a split one), or {names} (default: smollm2 if it was "
        "fetched, else bard, which is part of the program)",
    )
    parser.add_argument("--model", metavar="MODEL", dest="model_flag", help="the same as a flag")


def model_path(options: argparse.Namespace) -> Path:
    """Return the model file that is meant.

    Raises:
        ConfigError: two were given.
        ModelFileError: there is no such file.
    """
    if options.model is not None and options.model_flag is not None:
        raise ConfigError(
            f"Two models were named, {options.model} and --model {options.model_flag}. Name one."
        )
    text = options.model if options.model is not None else options.model_flag
    path = default_model() if text is None else find_model(text)
    if path == demo_model() and not path.is_file():
        raise ModelFileError(
            f"SmolLM2 was not fetched yet; it would be at {path}. Fetch it with: "
            "python -m installer run. The model bard needs no download."
        )
    if not path.is_file():
        what = "is a folder, not a GGUF file" if path.is_dir() else "is not there"
        raise ModelFileError(f"{path} {what}.")
    return path


def add_lengths(parser: argparse.ArgumentParser) -> None:
    """Add the longest conversation and what computing needs."""
    group = parser.add_argument_group("computing")
    group.add_argument(
        "--max-context",
        type=int,
        metavar="N",
        help="longest conversation in tokens (default: the model's own)",
    )
    add_backend(group)
    group.add_argument(
        "--threads", type=int, metavar="N", help="worker threads (default: physical cores)"
    )
    group.add_argument(
        "--span",
        type=int,
        metavar="N",
        default=SchedulerConfig().span_tokens,
        help="prompt tokens read in one step at most (default: %(default)s)",
    )
    group.add_argument(
        "--exact",
        action="store_true",
        help="float32 products and float32 K/V: slow, for comparison",
    )
    group.add_argument(
        "--check",
        action="store_true",
        help="verify the books of the K/V chunks after every step (for debugging)",
    )


def add_backend(parser: argparse._ActionsContainer) -> None:
    """Add what computes the model."""
    parser.add_argument(
        "--backend",
        metavar="NAME",
        default=BackendConfig().backend,
        help="what computes the model (default: %(default)s)",
    )


def add_pool(parser: argparse.ArgumentParser) -> None:
    """Add lanes and the shared K/V pool."""
    pool = PoolConfig()
    group = parser.add_argument_group("lanes and K/V pool")
    group.add_argument(
        "--batch",
        type=int,
        metavar="N",
        default=pool.n_lanes,
        help="lanes: requests computed at the same time (default: %(default)s)",
    )
    group.add_argument(
        "--kv-pool-tokens",
        type=int,
        metavar="N",
        help="share one pool of N cells among all conversations, rounded up to chunks "
        "(default: no pool, every lane has a whole context of its own)",
    )
    group.add_argument(
        "--kv-chunk-cells",
        type=int,
        metavar="N",
        default=pool.chunk_cells,
        help="cells of a chunk of the pool (default: %(default)s)",
    )


def add_sampling(parser: argparse.ArgumentParser) -> None:
    """Add how tokens are picked, and when to stop."""
    default = SamplingParams()
    group = parser.add_argument_group("sampling")
    group.add_argument(
        "--max-new",
        type=int,
        metavar="N",
        help="tokens to generate at most (default: until the model ends its turn)",
    )
    group.add_argument(
        "--temperature",
        type=float,
        metavar="X",
        default=default.temperature,
        help="0 takes the most likely token, 1 is the model's own spread (default: %(default)s)",
    )
    group.add_argument(
        "--top-k",
        type=int,
        metavar="N",
        default=default.top_k,
        help="keep the N most likely tokens, 0 = all (default: %(default)s)",
    )
    group.add_argument(
        "--top-p",
        type=float,
        metavar="X",
        default=default.top_p,
        help="keep the most likely tokens that have this probability together "
        "(default: %(default)s)",
    )
    group.add_argument(
        "--min-p",
        type=float,
        metavar="X",
        default=default.min_p,
        help="keep tokens at least this likely, as a share of the likeliest (default: %(default)s)",
    )
    group.add_argument(
        "--repetition-penalty",
        type=float,
        metavar="X",
        default=default.repetition_penalty,
        help="make tokens of the window less likely, 1 = off (default: %(default)s)",
    )
    group.add_argument(
        "--presence-penalty",
        type=float,
        metavar="X",
        default=default.presence_penalty,
        help="lower each generated token of the window once (default: %(default)s)",
    )
    group.add_argument(
        "--frequency-penalty",
        type=float,
        metavar="X",
        default=default.frequency_penalty,
        help="lower each generated token as often as it came (default: %(default)s)",
    )
    group.add_argument(
        "--penalty-last-n",
        type=int,
        metavar="N",
        default=default.penalty_last_n,
        help="tokens in the window of the penalties, -1 = all (default: %(default)s)",
    )
    group.add_argument(
        "--seed",
        type=int,
        metavar="N",
        help="same seed, same answer (default: another one each time)",
    )
    group.add_argument(
        "--stop",
        action="append",
        metavar="TEXT",
        default=[],
        help="end the answer before this text; may be given several times",
    )


def sampling_params(options: argparse.Namespace) -> SamplingParams:
    """Return the sampling settings of the command line, checked before a model is loaded.

    Raises:
        ConfigError, InvalidRequestError: a value is out of its range.
    """
    if options.max_new is not None and options.max_new < 1:
        raise ConfigError(f"--max-new must be 1 or more, got {options.max_new}.")
    return SamplingParams(
        temperature=options.temperature,
        top_k=options.top_k,
        top_p=options.top_p,
        min_p=options.min_p,
        repetition_penalty=options.repetition_penalty,
        presence_penalty=options.presence_penalty,
        frequency_penalty=options.frequency_penalty,
        penalty_last_n=options.penalty_last_n,
        seed=options.seed,
    )


def single_lane_config(options: argparse.Namespace) -> ModelConfig:
    """Return the settings for one conversation at a time: one lane, no pool.

    Raises:
        ConfigError, ModelFileError: a flag or the file cannot be used.
    """
    pool = PoolConfig(n_lanes=1, context_tokens=options.max_context)
    return model_config(options, pool)


def pooled_config(options: argparse.Namespace) -> ModelConfig:
    """Return the settings of a server.

    Raises:
        ConfigError, ModelFileError: a flag or the file cannot be used.
    """
    pool = PoolConfig(
        n_lanes=options.batch,
        context_tokens=options.max_context,
        pool_tokens=options.kv_pool_tokens,
        chunk_cells=options.kv_chunk_cells,
    )
    return model_config(options, pool)


def model_config(options: argparse.Namespace, pool: PoolConfig) -> ModelConfig:
    """Join the settings of a load."""
    return ModelConfig(
        path=model_path(options),
        alias=getattr(options, "alias", None),
        pool=pool,
        scheduler=SchedulerConfig(span_tokens=options.span, is_checking=options.check),
        backend=BackendConfig(
            backend=options.backend, n_threads=options.threads, is_exact=options.exact
        ),
    )
