"""From a status snapshot to the figures of the memory page: values, texts, reasons for gaps.

Pure functions over frozen values; `viewmodels.memory` calls them, views print what they return.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from strata_desktop.viewmodels.memory_sessions import STATE_ORDER
from strata_desktop.viewmodels.memory_text import (
    GIB,
    NOTHING,
    UNKNOWN,
    bytes_text,
    count_text,
    fraction,
    percent_text,
    rate_text,
)

if TYPE_CHECKING:
    from engine.stats import HostMemory, StatusSnapshot


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """One number of the headline row.

    Attributes:
        label: what it is.
        value: the number, `–` when there is none.
        unit: behind the number, smaller; may be empty.
        detail: at most two lines below.
        explanation: tooltip.
    """

    label: str
    value: str
    unit: str
    detail: str
    explanation: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Gauge:
    """A bar with a limit.

    Attributes:
        label: what is measured.
        used_bytes, total_bytes: how much of how much; total 0 = unknown.
        own_bytes: of the used, what the engine's process holds; 0 = not told.
        text: the numbers in words.
        note: one more line, may be empty.
        explanation: tooltip.
    """

    label: str
    used_bytes: int
    total_bytes: int
    own_bytes: int
    text: str
    note: str
    explanation: str

    @property
    def fill(self) -> float | None:
        """Part that is used, None when the limit is unknown."""
        return fraction(self.used_bytes, self.total_bytes)


def ram_headroom_bytes(memory: HostMemory) -> int | None:
    """Return RAM that can still be had; None when the machine did not tell."""
    if memory.ram_total_bytes <= 0:
        return None
    return max(0, memory.ram_available_bytes)


def commit_headroom_bytes(memory: HostMemory) -> int | None:
    """Return what the OS can still promise, never below 0; None when it did not tell."""
    if memory.commit_limit_bytes <= 0:
        return None
    return max(0, memory.commit_limit_bytes - memory.commit_used_bytes)


def make_figures(status: StatusSnapshot | None) -> tuple[Figure, ...]:
    """Return the headline; always the same figures in the same places."""
    return (*_pool_figures(status), *_speed_figures(status), *_headroom_figures(status))


def _pool_figures(status: StatusSnapshot | None) -> tuple[Figure, ...]:
    pool = None if status is None or status.engine is None else status.engine.kv_pool
    about_held = "K/V cells that conversations hold, of all cells there are; shared ones once."
    about_free = "Cells no conversation holds. They cost RAM only once they are used."
    about_sessions = "Conversations whose K/V is kept, busy and idle."
    if pool is None:
        detail = "no model"
        return (
            Figure(
                label="Pool held", value=NOTHING, unit="", detail=detail, explanation=about_held
            ),
            Figure(
                label="Pool free", value=NOTHING, unit="", detail=detail, explanation=about_free
            ),
            Figure(
                label="Sessions", value=NOTHING, unit="", detail=detail, explanation=about_sessions
            ),
        )
    n_by_state = Counter(session.state for session in pool.sessions)
    states = [f"{n_by_state[state]} {state}" for state in STATE_ORDER if n_by_state[state]]
    half = (len(states) + 1) // 2
    lines = [" · ".join(part) for part in (states[:half], states[half:]) if part]
    held, unit = _split_unit(bytes_text(pool.held * pool.bytes_per_cell))
    free, free_unit = _split_unit(bytes_text(pool.free * pool.bytes_per_cell))
    return (
        Figure(
            label="Pool held",
            value=held,
            unit=unit,
            detail=_cells_lines(pool.held, pool.cells),
            explanation=about_held,
        ),
        Figure(
            label="Pool free",
            value=free,
            unit=free_unit,
            detail=_cells_lines(pool.free, pool.cells),
            explanation=about_free,
        ),
        Figure(
            label="Sessions",
            value=count_text(len(pool.sessions)),
            unit="",
            detail="\n".join(lines) or "none yet",
            explanation=about_sessions,
        ),
    )


def _cells_lines(cells: int, total: int) -> str:
    return f"{count_text(cells)} cells\n{percent_text(cells, total)} of pool"


def _speed_figures(status: StatusSnapshot | None) -> tuple[Figure, ...]:
    engine = None if status is None else status.engine
    decode = None if engine is None else engine.work.decode_tokens_per_s
    prefill = None if engine is None else engine.work.prefill_tokens_per_s
    n_waiting = 0 if engine is None else engine.requests.waiting
    detail = f"all lanes, 5 s\n{n_waiting} waiting" if n_waiting else "all lanes, 5 s"
    return (
        Figure(
            label="Decode",
            value=rate_text(decode),
            unit="tok/s",
            detail=detail,
            explanation="Tokens written a second by all lanes together, over the last 5 seconds.",
        ),
        Figure(
            label="Prefill",
            value=rate_text(prefill),
            unit="tok/s",
            detail="prompts, 5 s",
            explanation="Prompt tokens read a second, over the last 5 seconds; "
            "those known from before are not counted.",
        ),
    )


def _headroom_figures(status: StatusSnapshot | None) -> tuple[Figure, ...]:
    memory = None if status is None else status.memory
    ram = None if memory is None else ram_headroom_bytes(memory)
    commit = None if memory is None else commit_headroom_bytes(memory)
    ram_value, ram_unit = _split_unit(bytes_text(ram))
    commit_value, commit_unit = _split_unit(bytes_text(commit))
    ram_detail = commit_detail = "not told by the system"
    if memory is not None and ram is not None:
        ram_detail = f"of {bytes_text(memory.ram_total_bytes)}"
    if memory is not None and commit is not None:
        limit = bytes_text(memory.commit_limit_bytes)
        commit_detail = f"of {limit}" if memory.has_commit_limit else f"of {limit}\nno hard limit"
    return (
        Figure(
            label="RAM left",
            value=ram_value,
            unit=ram_unit,
            detail=ram_detail,
            explanation="Physical memory programs can still have without paging.",
        ),
        Figure(
            label="Commit left",
            value=commit_value,
            unit=commit_unit,
            detail=commit_detail,
            explanation="What the system can still promise (RAM and page file together), "
            "whether it is used yet or not.",
        ),
    )


def _split_unit(text: str) -> tuple[str, str]:
    """Part `7.3 GiB` into number and unit; a word has no unit."""
    if text == UNKNOWN:
        return NOTHING, ""
    value, _, unit = text.partition(" ")
    return value, unit


def pool_gap(status: StatusSnapshot | None) -> str:
    """Return why there is no pool to show, "" when there is one."""
    if status is None:
        return "Waiting for the engine's first report."
    if status.engine is not None:
        return ""
    model = status.model
    name = model.summary.name if model.summary is not None else "the model"
    if model.state == "loading":
        stage = f": {model.progress.stage}" if model.progress is not None else ""
        return f"The pool appears when {name} is loaded{stage}."
    if model.state == "failed":
        return f"No pool, because {name} did not load: {model.error}"
    return "No model is loaded, so no memory is set aside for conversations. Load one under Models."


def sessions_gap(status: StatusSnapshot | None) -> str:
    """Return why the table is empty, "" when it is not."""
    if status is None or status.engine is None:
        return "Conversations and what they hold appear here once a model is loaded."
    if not status.engine.kv_pool.sessions:
        return "No conversation holds memory yet. Send a message and it appears here."
    return ""


def ram_gauge(memory: HostMemory) -> Gauge:
    """Return RAM as a gauge."""
    own = f"this engine {bytes_text(memory.process_bytes)}" if memory.process_bytes > 0 else ""
    is_told = memory.ram_total_bytes > 0
    return Gauge(
        label="RAM",
        used_bytes=memory.ram_used_bytes,
        total_bytes=memory.ram_total_bytes,
        own_bytes=memory.process_bytes,
        text=_used_text(memory.ram_used_bytes, memory.ram_total_bytes, ram_headroom_bytes(memory)),
        note=own if is_told else "",
        explanation="Physical memory of this computer. The darker part is this engine's.",
    )


def commit_gauge(memory: HostMemory) -> Gauge:
    """Return commit as a gauge."""
    note = "" if memory.has_commit_limit else "This system sets no hard commit limit."
    return Gauge(
        label="Commit",
        used_bytes=memory.commit_used_bytes,
        total_bytes=memory.commit_limit_bytes,
        own_bytes=0,
        text=_used_text(
            memory.commit_used_bytes, memory.commit_limit_bytes, commit_headroom_bytes(memory)
        ),
        note=note,
        explanation="Memory the system has promised to programs, of what it can promise "
        "(RAM and page file). At the limit, programs are refused memory"
        + (". Here the limit is advisory." if not memory.has_commit_limit else "."),
    )


def _used_text(used_bytes: int, total_bytes: int, headroom_bytes: int | None) -> str:
    if total_bytes <= 0:
        return "not told by the system"
    used, total, left = (
        NOTHING if n_bytes is None else f"{n_bytes / GIB:,.1f}"
        for n_bytes in (used_bytes, total_bytes, headroom_bytes)
    )
    return f"{used} of {total} GiB · {left} left"


def vram_gauge(status: StatusSnapshot) -> Gauge | None:
    """Return the card's memory as a gauge, None where no card answered."""
    vram = status.vram
    if not vram.is_present or vram.total_bytes <= 0:
        return None
    return Gauge(
        label=vram.name or "Graphics card",
        used_bytes=vram.used_bytes,
        total_bytes=vram.total_bytes,
        own_bytes=0,
        text=_used_text(vram.used_bytes, vram.total_bytes, vram.total_bytes - vram.used_bytes),
        note="",
        explanation="Memory of the graphics card, all programs together.",
    )
