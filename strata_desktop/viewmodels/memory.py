"""State of the memory page: who holds which chunk, how full RAM is, what is highlighted.

It turns status snapshots into what the page shows, ten times a second at most, and passes on
the one command the page has; drawing is left to `views.memory_page`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal

from strata_desktop.client.replies import ApiFailure
from strata_desktop.viewmodels.expert_map import ExpertMapModel
from strata_desktop.viewmodels.memory_colors import SessionColors
from strata_desktop.viewmodels.memory_figures import (
    Figure,
    Gauge,
    commit_gauge,
    make_figures,
    pool_gap,
    ram_gauge,
    sessions_gap,
    vram_gauge,
)
from strata_desktop.viewmodels.memory_history import MemoryHistory, MemorySample
from strata_desktop.viewmodels.memory_sessions import SessionRow, SessionTable, SortedSessions
from strata_desktop.viewmodels.memory_text import bytes_text, plural
from strata_desktop.viewmodels.memory_throttle import Throttle
from strata_desktop.viewmodels.memory_tiles import (
    Holding,
    Tile,
    TileCache,
    describe_tile,
    make_holdings,
    summary_text,
)

if TYPE_CHECKING:
    from engine.stats import KvPoolSnapshot, SessionHolding, StatusSnapshot


TITLE_S = 2.0
"""How long a title is taken as it was; looking one up may cost a question to the disk."""


class MemoryModel(QObject):
    """What the memory page shows.

    Attributes:
        table: rows of the session table.
        sorted_table: the same rows in the person's order.
        history: five minutes of RAM and commit.
        expert_map: which experts the router picks.
        title_of: gives a conversation's title by its key, None where it has none; settable.

    Signals:
        changed: figures, tiles, holdings, gauges were brought up to date.
        history_changed: the curve has a new sample.
        highlight_changed: another session (or none) is highlighted.
        selection_changed: another session (or none) is selected.
        notice: a sentence about what a command did, or why it failed.
        can_forget_changed: whether there are idle conversations to forget.
    """

    changed = Signal()
    history_changed = Signal()
    highlight_changed = Signal()
    selection_changed = Signal()
    notice = Signal(str)
    can_forget_changed = Signal()

    def __init__(self, feed: QObject, client: QObject, *, throttle: Throttle | None = None) -> None:
        """Join the page's state to its sources.

        Args:
            feed: the status feed.
            client: the API's client, for commands.
            throttle: gate of repaints; None = ten a second.
        """
        super().__init__()
        self._client = client
        self._throttle = throttle or Throttle(self)
        self._throttle.fired.connect(self._look)
        self._newest: StatusSnapshot | None = None
        self._shown: StatusSnapshot | None = None
        self._lost = ""
        self._colors = SessionColors()
        self._names: dict[str, str] = {}
        self._order: dict[str, int] = {}
        self._titles: dict[str, tuple[float, str | None]] = {}
        self._n_seen = 0
        self._tiles: tuple[Tile, ...] = ()
        self._tile_cache = TileCache()
        self._holdings: tuple[Holding, ...] = ()
        self._hovered: str | None = None
        self._selected: str | None = None
        self._is_forgetting = False
        self.title_of: Callable[[str], str | None] | None = None
        self.table = SessionTable(self)
        self.sorted_table = SortedSessions(self.table, self)
        self.history = MemoryHistory()
        self.expert_map = ExpertMapModel(feed, self)
        feed.status.connect(self.take)
        feed.offline.connect(self.take_loss)
        if feed.latest is not None:
            self.take(feed.latest)

    # What the page shows

    @property
    def status(self) -> StatusSnapshot | None:
        """The snapshot shown now."""
        return self._shown

    @property
    def pool(self) -> KvPoolSnapshot | None:
        """The pool shown now, None while no model is ready."""
        engine = None if self._shown is None else self._shown.engine
        return None if engine is None else engine.kv_pool

    @property
    def figures(self) -> tuple[Figure, ...]:
        """The headline."""
        return make_figures(self._shown)

    @property
    def tiles(self) -> tuple[Tile, ...]:
        """Every chunk, in id order."""
        return self._tiles

    @property
    def holdings(self) -> tuple[Holding, ...]:
        """The stacked bar."""
        return self._holdings

    @property
    def pool_gap(self) -> str:
        """Why there is no pool, "" when there is one."""
        return self._lost or pool_gap(self._shown)

    @property
    def sessions_gap(self) -> str:
        """Why the table is empty, "" when it is not."""
        return self._lost or sessions_gap(self._shown)

    @property
    def ram(self) -> Gauge | None:
        """RAM, None before the first report."""
        return None if self._shown is None else ram_gauge(self._shown.memory)

    @property
    def commit(self) -> Gauge | None:
        """Commit, None before the first report."""
        return None if self._shown is None else commit_gauge(self._shown.memory)

    @property
    def vram(self) -> Gauge | None:
        """The card's memory, None where there is no card or no report yet."""
        return None if self._shown is None else vram_gauge(self._shown)

    @property
    def vram_reason(self) -> str:
        """Why the engine holds no VRAM."""
        return "" if self._shown is None else self._shown.vram.reason

    @property
    def experts_reason(self) -> str:
        """Why there are no expert slots to show."""
        return "" if self._shown is None else self._shown.experts.reason

    @property
    def map_summary(self) -> str:
        """The map in one sentence."""
        return "" if self.pool is None else summary_text(self.pool)

    def describe(self, tile: Tile) -> str:
        """Return a chunk in one line."""
        return "" if self.pool is None else describe_tile(tile, self.pool, self._names)

    # Highlight and selection

    @property
    def highlighted(self) -> str | None:
        """The session to lift out: the hovered one, else the selected one."""
        return self._hovered or self._selected

    @property
    def selected(self) -> str | None:
        """The session the person chose, on the map or in the table."""
        return self._selected

    def hover(self, session_id: str | None) -> None:
        """Lift a session out while the pointer is on it."""
        if session_id != self._hovered:
            before = self.highlighted
            self._hovered = session_id
            if before != self.highlighted:
                self.highlight_changed.emit()

    def select(self, session_id: str | None) -> None:
        """Choose a session, or none."""
        if session_id != self._selected:
            before = self.highlighted
            self._selected = session_id
            self.selection_changed.emit()
            if before != self.highlighted:
                self.highlight_changed.emit()

    # News

    def take(self, status: StatusSnapshot) -> None:
        """Take a snapshot; it is shown when the throttle lets it through."""
        self._newest = status
        self._lost = ""
        self._throttle.trigger()

    def take_loss(self, reason: str) -> None:
        """Take the news that reports no longer come, and why."""
        self._lost = reason
        self._newest = None
        self._throttle.trigger()

    def refresh_names(self) -> None:
        """Look up the titles again, after a conversation was renamed."""
        self._titles.clear()
        self._throttle.trigger()

    def _look(self) -> None:
        status = self._newest
        could_forget = self.can_forget
        if status is not self._shown and status is not None:
            memory = status.memory
            is_new_sample = memory.ram_total_bytes > 0 and self.history.add(
                MemorySample(
                    time_s=status.time_s,
                    ram_used_bytes=memory.ram_used_bytes,
                    commit_used_bytes=memory.commit_used_bytes,
                    process_bytes=memory.process_bytes,
                )
            )
            if is_new_sample:
                self.history_changed.emit()
        self._shown = status
        self._show_pool()
        self.changed.emit()
        if could_forget != self.can_forget:
            self.can_forget_changed.emit()

    def _show_pool(self) -> None:
        pool = self.pool
        sessions = () if pool is None else pool.sessions
        self._colors.follow(session.id for session in sessions)
        self._names = {session.id: self._name(session) for session in sessions}
        keys = {session.key for session in sessions}
        self._titles = {key: found for key, found in self._titles.items() if key in keys}
        self._order = {session.id: self._order_of(session.id) for session in sessions}
        if pool is None:
            self._tiles = ()
            self._holdings = ()
        else:
            places = self._colors.as_dict()
            self._tiles = self._tile_cache.update(pool, places)
            self._holdings = make_holdings(pool, places, self._names)
        self.table.update_rows(
            [self._row(session, pool) for session in sessions if pool is not None]
        )
        present = self._names.keys()
        if self._hovered is not None and self._hovered not in present:
            self.hover(None)
        if self._selected is not None and self._selected not in present:
            self.select(None)

    def _name(self, session: SessionHolding) -> str:
        if not session.key or self.title_of is None:
            return session.id
        now_s = 0.0 if self._shown is None else self._shown.time_s
        found = self._titles.get(session.key)
        if found is None or not 0 <= now_s - found[0] < TITLE_S:
            found = (now_s, self.title_of(session.key))
            self._titles[session.key] = found
        return found[1] or session.id

    def _order_of(self, session_id: str) -> int:
        if session_id not in self._order:
            self._n_seen += 1
            return self._n_seen
        return self._order[session_id]

    def _row(self, session: SessionHolding, pool: KvPoolSnapshot) -> SessionRow:
        return SessionRow(
            id=session.id,
            key=session.key,
            order=self._order[session.id],
            name=self._names[session.id],
            color=self._colors.place(session.id),
            lane=session.lane,
            state=session.state,
            n_tokens=session.n_tokens,
            cells=session.cells,
            n_chunks=session.n_chunks,
            n_shared_chunks=session.n_shared_chunks,
            n_bytes=session.bytes,
            pool_cells=pool.cells,
            tokens_per_s=session.tokens_per_s,
            idle_s=session.idle_s,
        )

    # Forgetting

    @property
    def n_idle(self) -> int:
        """Idle conversations that hold memory."""
        return sum(1 for row in self.table.rows if row.state == "idle" and row.n_chunks)

    @property
    def can_forget(self) -> bool:
        """Whether there is an idle conversation to forget, and none is being forgotten."""
        return self.n_idle > 0 and not self._is_forgetting

    @property
    def forget_text(self) -> str:
        """What the button would do now, in words."""
        if not self.n_idle:
            return "No idle conversation holds memory."
        n_bytes = sum(row.n_bytes for row in self.table.rows if row.state == "idle")
        return (
            f"Frees up to {bytes_text(n_bytes)} of {plural(self.n_idle, 'idle conversation')}. "
            "Nothing is deleted: the messages stay, and the next turn reads its prompt anew."
        )

    def forget_idle(self) -> None:
        """Ask the engine to drop what idle conversations hold; `notice` says what came of it."""
        if not self.can_forget:
            return
        self._is_forgetting = True
        self.can_forget_changed.emit()
        n_idle = self.n_idle
        self._client.post_json(
            "/v1/sessions/forget", {"ids": None}, lambda _: self._forgot(n_idle), self._not_forgot
        )

    def _forgot(self, n_idle: int) -> None:
        self._end_forgetting(
            f"{plural(n_idle, 'idle conversation')} forgotten. The messages are still there; "
            "the next turn reads its prompt anew."
        )

    def _not_forgot(self, failure: ApiFailure) -> None:
        self._end_forgetting(f"Nothing was forgotten: {failure.message}")

    def _end_forgetting(self, text: str) -> None:
        self._is_forgetting = False
        self.can_forget_changed.emit()
        self.notice.emit(text)
