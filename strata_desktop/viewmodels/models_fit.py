"""What a load would cost: weights and K/V against the RAM there is, before anything is read.

Pure arithmetic; a number that is not known stays None and reads `unknown`.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.config import CHUNK_CELLS
from strata_desktop.client.engine_host import LARGEST_DEFAULT_CONTEXT, LoadOptions, load_body
from strata_desktop.viewmodels.memory_text import UNKNOWN, bytes_text, count_text

if TYPE_CHECKING:
    from pathlib import Path

    from engine.stats import ModelSummary, StatusSnapshot

TIGHT_PART = 0.85
"""Above this part of the free RAM a load is called tight: other programs need room too."""


class Fit(enum.Enum):
    """Whether a load fits."""

    UNKNOWN = "unknown"
    FITS = "fits"
    TIGHT = "tight"
    POOL_TOO_SMALL = "pool too small"
    POOL_TOO_LARGE = "pool too large"
    MODEL_TOO_LARGE = "model too large"


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadEstimate:
    """Memory a load takes.

    Attributes:
        context_tokens: longest conversation.
        pool_tokens: cells of the pool, whole chunks.
        weights_bytes: all weights, None = unknown.
        kv_bytes: the whole pool when every cell is used, None = unknown.
        ram_bytes: RAM to be had for it, None = unknown.
        commit_bytes: what the system can still promise, None = unknown or without limit.
    """

    context_tokens: int
    pool_tokens: int
    weights_bytes: int | None
    kv_bytes: int | None
    ram_bytes: int | None
    commit_bytes: int | None

    @property
    def total_bytes(self) -> int | None:
        """Weights and the whole pool."""
        if self.weights_bytes is None or self.kv_bytes is None:
            return None
        return self.weights_bytes + self.kv_bytes

    @property
    def fit(self) -> Fit:
        """Whether it fits."""
        if self.pool_tokens < self.context_tokens:
            return Fit.POOL_TOO_SMALL
        total, weights, ram = self.total_bytes, self.weights_bytes, self.ram_bytes
        if total is None or weights is None or ram is None:
            return Fit.UNKNOWN
        if weights > ram:
            return Fit.MODEL_TOO_LARGE
        if total > ram or self.is_over_commit:
            return Fit.POOL_TOO_LARGE
        return Fit.TIGHT if total > TIGHT_PART * ram else Fit.FITS

    @property
    def is_over_commit(self) -> bool:
        """Whether the system cannot promise the pool; weights are mapped and need no promise."""
        return (
            self.commit_bytes is not None
            and self.kv_bytes is not None
            and self.kv_bytes > self.commit_bytes
        )

    @property
    def numbers(self) -> tuple[tuple[str, str], ...]:
        """The sum, line by line."""
        lines = [
            ("Weights", bytes_text(self.weights_bytes)),
            (f"K/V pool, {count_text(self.pool_tokens)} cells", bytes_text(self.kv_bytes)),
            ("Together at most", bytes_text(self.total_bytes)),
            ("Free RAM", bytes_text(self.ram_bytes)),
        ]
        if self.commit_bytes is not None:
            lines.append(("Free commit", bytes_text(self.commit_bytes)))
        return tuple(lines)

    @property
    def verdict(self) -> str:
        """What the sum means, in a sentence or two."""
        match self.fit:
            case Fit.UNKNOWN:
                missing = "the machine's free memory" if self.total_bytes else "the model's needs"
                return f"Whether it fits is {UNKNOWN}: {missing} could not be read."
            case Fit.FITS:
                return "Fits. The pool takes memory only as conversations grow."
            case Fit.TIGHT:
                return (
                    "Fits, but when the pool is used up less than "
                    f"{round(100 - 100 * TIGHT_PART)} % of the free RAM is left for the rest."
                )
            case Fit.POOL_TOO_SMALL:
                return (
                    f"The pool of {count_text(self.pool_tokens)} cells cannot hold one whole "
                    f"conversation of {count_text(self.context_tokens)} tokens. Make the pool "
                    "larger or the context smaller."
                )
            case Fit.POOL_TOO_LARGE if self.is_over_commit:
                over = bytes_text((self.kv_bytes or 0) - (self.commit_bytes or 0))
                return (
                    f"The system cannot promise memory for this pool: {over} too much. Make the "
                    "pool smaller, or the page file larger."
                )
            case Fit.POOL_TOO_LARGE:
                over = bytes_text((self.total_bytes or 0) - (self.ram_bytes or 0))
                return (
                    f"The weights fit, the full pool does not: {over} too much. Choose a smaller "
                    "pool or context."
                )
            case Fit.MODEL_TOO_LARGE:
                over = bytes_text((self.weights_bytes or 0) - (self.ram_bytes or 0))
                return (
                    f"The weights alone need {over} more than is free. Close other programs, or "
                    "choose a smaller quantisation."
                )

    @property
    def can_load(self) -> bool:
        """Whether the engine would take it; what is unknown is left to the engine to say."""
        return self.fit in (Fit.UNKNOWN, Fit.FITS, Fit.TIGHT)


def default_context(summary: ModelSummary) -> int:
    """Return the context chosen when nobody chooses: the trained one, within reason."""
    return min(summary.context_tokens or LARGEST_DEFAULT_CONTEXT, LARGEST_DEFAULT_CONTEXT)


def estimate_load(
    summary: ModelSummary, path: Path, options: LoadOptions, status: StatusSnapshot | None
) -> LoadEstimate:
    """Return what loading `summary` with `options` would take, by the same rules as the load.

    Args:
        summary: of the model.
        path: its file.
        options: as chosen.
        status: tells what is free; the K/V of the model loaded now comes back first.
    """
    body = load_body(path, options, summary.context_tokens)
    per_token = summary.kv_bytes_per_token
    # One more chunk than the pool has: the one that unreserved table entries point at.
    n_cells = body["pool_tokens"] + CHUNK_CELLS
    ram = commit = None
    if status is not None and status.memory.ram_total_bytes > 0:
        memory = status.memory
        pool = None if status.engine is None else status.engine.kv_pool
        comes_back = 0 if pool is None else pool.held * pool.bytes_per_cell
        ram = max(0, memory.ram_available_bytes) + comes_back
        if memory.has_commit_limit and memory.commit_limit_bytes > 0:
            commit = max(0, memory.commit_limit_bytes - memory.commit_used_bytes)
            # Commit is promised for the whole pool at once, used or not.
            commit += 0 if pool is None else pool.cells * pool.bytes_per_cell
    return LoadEstimate(
        context_tokens=body["context_tokens"],
        pool_tokens=body["pool_tokens"],
        weights_bytes=summary.file_bytes if summary.file_bytes > 0 else None,
        kv_bytes=per_token * n_cells if per_token > 0 else None,
        ram_bytes=ram,
        commit_bytes=commit,
    )
