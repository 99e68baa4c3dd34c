"""How a model is loaded: which parts are opened in which order, and what is refused before.

Nothing here runs by itself; threads and the state of a load are `engine.service`'s.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from engine.api.served import LoadedModel
from engine.backend.base import Backend
from engine.backend.picks import read_picks
from engine.config import ModelConfig, PoolConfig
from engine.errors import ConfigError, MemoryBudgetError, ModelFileError, UnsupportedModelError
from engine.gguf.reader import GGUFModel, open_model
from engine.gguf.summary import summarize
from engine.host_memory import read_host_memory
from engine.loop import EngineLoop
from engine.memory.chunks import PoolShape
from engine.models.registry import ARCHITECTURES
from engine.scheduler.scheduler import Scheduler
from engine.scheduler.text import TokenizerText
from engine.stats import HostMemory, LoadProgress, ModelSummary
from engine.tokenizer.prompt import PromptBuilder
from engine.tokenizer.template import ChatTemplate
from engine.tokenizer.tokenizer import Tokenizer

OnProgress = Callable[[LoadProgress], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class BackendOrder:
    """What a backend is made for.

    Attributes:
        file: the open model.
        config: what was asked for.
        shape: sizes of the K/V storage.
        on_progress: called while weights are read; an exception from it gives the load up.
    """

    file: GGUFModel
    config: ModelConfig
    shape: PoolShape
    on_progress: OnProgress


def make_cpu_backend(order: BackendOrder) -> Backend:
    """Make the backend that computes on the CPU; its native library is not loaded before."""
    from engine.backend.cpu import CpuBackend

    shape = order.shape
    return CpuBackend(
        order.file,
        order.config.backend,
        n_lanes=shape.n_lanes,
        context_tokens=shape.context_tokens,
        n_chunks=shape.n_chunks,
        chunk_cells=shape.chunk_cells,
        is_pooled=shape.is_pooled,
        on_progress=order.on_progress,
    )


MakeBackend = Callable[[BackendOrder], Backend]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class OpenedModel:
    """A loaded model with everything that must be closed again.

    Attributes:
        loaded: what the API sees.
        shape: sizes of its pool.
        backend: computes its steps.
        warnings: what a person should know.
        undo: closes everything, last opened first.
    """

    loaded: LoadedModel
    shape: PoolShape
    backend: Backend
    warnings: tuple[str, ...]
    undo: ExitStack


def open_loaded(
    config: ModelConfig,
    make_backend: MakeBackend,
    *,
    on_summary: Callable[[ModelSummary], None],
    on_progress: OnProgress,
) -> OpenedModel:
    """Load a model: file, tokenizer, template, sizes, memory check, backend, scheduler, loop.

    Args:
        config: which model, and how.
        make_backend: makes what computes.
        on_summary: told what the file holds, before anything large is read.
        on_progress: told how far it is; an exception from it gives the load up.

    Returns:
        The model; its engine thread runs.

    Raises:
        ModelFileError: the file cannot be read or run.
        ConfigError: a size cannot be used with this model.
        MemoryBudgetError: it does not fit the machine.
    """
    on_progress(LoadProgress(stage="Reading the header", done_bytes=0, total_bytes=0))
    with ExitStack() as undo:
        file = undo.enter_context(open_model(config.path, allows_unknown_types=True))
        summary = summarize(file, ARCHITECTURES)
        if config.alias:
            summary = dataclasses.replace(summary, id=config.alias)
        on_summary(summary)
        if not summary.is_supported:
            raise UnsupportedModelError(summary.reason, path=config.path)
        on_progress(LoadProgress(stage="Reading the tokenizer", done_bytes=0, total_bytes=0))
        tokenizer = Tokenizer.from_metadata(file.metadata)
        template = ChatTemplate.from_metadata(file.metadata, tokenizer)
        shape, notes = settle_shape(config.pool, model_context_tokens=summary.context_tokens)
        check_memory(summary, shape, read_host_memory())
        backend = make_backend(
            BackendOrder(file=file, config=config, shape=shape, on_progress=on_progress)
        )
        undo.callback(backend.close)
        scheduler = Scheduler(
            shape,
            config.scheduler,
            text=TokenizerText(tokenizer),
            bytes_per_cell=backend.kv_bytes_per_cell,
            state_bytes=backend.state_bytes_per_lane,
        )
        loop = EngineLoop(
            scheduler,
            backend,
            is_checking=config.scheduler.is_checking,
            count_picks=lambda: read_picks(backend),
        )
        loop.start()
        undo.callback(loop.stop)
        loaded = LoadedModel(
            summary=summary,
            context_tokens=shape.context_tokens,
            loaded_at_s=time.time(),
            tokenizer=tokenizer,
            template=template,
            prompts=PromptBuilder(tokenizer, template),
            loop=loop,
        )
        return OpenedModel(
            loaded=loaded,
            shape=shape,
            backend=backend,
            warnings=(*notes, *tokenizer.warnings, *template.warnings),
            undo=undo.pop_all(),
        )


def settle_shape(
    config: PoolConfig, *, model_context_tokens: int
) -> tuple[PoolShape, tuple[str, ...]]:
    """Settle the sizes of the pool; a conversation of full length always fits it.

    Args:
        config: what was asked for.
        model_context_tokens: context length the model was trained with.

    Returns:
        The sizes, and sentences about what was lowered.

    Raises:
        ConfigError: `--max-context` was given and the pool is smaller.
    """
    check_pool_holds_context(config)
    notes: list[str] = []
    context = config.context_tokens
    if context is not None and context > model_context_tokens:
        notes.append(
            f"The model was made for {model_context_tokens} tokens; the context length of "
            f"{context} that was asked for is lowered to that."
        )
        context = model_context_tokens
    if context is None and config.pool_tokens is not None:
        cells = -(-config.pool_tokens // config.chunk_cells) * config.chunk_cells
        if cells < model_context_tokens:
            context = cells
            notes.append(
                f"The pool has {cells} cells; the context length is lowered to that from the "
                f"model's {model_context_tokens} tokens."
            )
    asked = dataclasses.replace(config, context_tokens=context)
    shape = PoolShape.from_config(asked, model_context_tokens=model_context_tokens)
    return shape, tuple(notes)


def check_pool_holds_context(config: PoolConfig) -> None:
    """Refuse a pool that cannot hold the one conversation it was promised to.

    Raises:
        ConfigError: names both numbers.
    """
    context, pool = config.context_tokens, config.pool_tokens
    if context is None or pool is None:
        return
    cells = -(-pool // config.chunk_cells) * config.chunk_cells
    if cells < context:
        raise ConfigError(
            f"--kv-pool-tokens {pool} makes a pool of {cells} cells, but one conversation of "
            f"--max-context {context} tokens must always fit. Raise the first or lower the second."
        )


def check_memory(summary: ModelSummary, shape: PoolShape, memory: HostMemory) -> None:
    """Refuse a load that cannot fit the machine, before anything is allocated.

    Args:
        summary: sizes of the model.
        shape: sizes of the pool.
        memory: of the machine, now.

    Raises:
        MemoryBudgetError: names the limit and the numbers.
    """
    # One more chunk than the pool has: the one that unreserved entries point at.
    n_cells = (shape.n_chunks + 1) * shape.chunk_cells
    kv_bytes = n_cells * summary.kv_bytes_per_token
    parts = f"weights {gib(summary.file_bytes)} and the K/V of {n_cells} cells {gib(kv_bytes)}"
    advice = "Use a smaller --kv-pool-tokens, --max-context or --batch, or a smaller model."
    needed = summary.file_bytes + kv_bytes
    if needed > memory.ram_available_bytes:
        raise MemoryBudgetError(
            f"RAM is the limit: the model needs {gib(needed)} ({parts}), but "
            f"{gib(memory.ram_available_bytes)} of {gib(memory.ram_total_bytes)} are free. "
            + advice,
            limit="ram",
        )
    if memory.has_commit_limit:
        left = memory.commit_limit_bytes - memory.commit_used_bytes
        # Weights are mapped from the file and need no commit.
        if kv_bytes > left:
            raise MemoryBudgetError(
                f"Commit is the limit: the K/V of {n_cells} cells needs {gib(kv_bytes)}, but the "
                f"system can promise only {gib(left)} more. Enlarge the page file. {advice}",
                limit="commit",
            )


def gib(n_bytes: int) -> str:
    """Write a number of bytes for people."""
    return f"{n_bytes / 2**30:.2f} GiB" if n_bytes >= 2**28 else f"{n_bytes / 2**20:.1f} MiB"


def check_is_file(path: Path) -> None:
    """Refuse a path with no file at it.

    Raises:
        ModelFileError: says what is there instead.
    """
    try:
        path.stat()
    except (OSError, ValueError) as fault:
        # Besides "not found": no permission, a name too long, a character no name can have.
        reason = fault.strerror if isinstance(fault, OSError) else str(fault)
        message = f"there is no such file, or it cannot be reached: {reason} ({path})"
        raise ModelFileError(message, path=path) from fault
    if not path.is_file():
        raise ModelFileError(f"this is no file; choose a .gguf file ({path})", path=path)
