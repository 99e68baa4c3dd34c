"""The queue: which waiting request gets a lane, and which read gives its lane up.

Requests come in by arrival. What a lane and its cells cost is planned in `engine.scheduler.entry`;
what a refusal means to its client is the scheduler's.
"""

from __future__ import annotations

import bisect
import itertools
import logging
from collections.abc import Iterator, Sequence

from engine.memory.prefix import Use
from engine.memory.snapshots import plan_marks
from engine.scheduler.entry import Entry, enter, plan_entry
from engine.scheduler.policy import lane_yields
from engine.scheduler.request import OpenRequest, Phase
from engine.scheduler.rows import SessionRows

_log = logging.getLogger(__name__)

MAX_TRIES = 4
"""Waiting prompts tried for a lane in one step; each costs a search of all conversations."""


class Admission:
    """Requests without a lane, and the ways they get one.

    Args:
        rows: the sessions.
        max_yields: how often one read gives way.
    """

    def __init__(self, rows: SessionRows, *, max_yields: int) -> None:
        self._rows = rows
        self._max_yields = max_yields
        self._waiting: list[OpenRequest] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, one: OpenRequest) -> bool:
        return one in self._waiting

    def add(self, one: OpenRequest) -> None:
        """Let a request wait in its place: the earlier arrival is asked first."""
        one.phase = Phase.WAITING
        bisect.insort(self._waiting, one, key=lambda waiting: waiting.number)

    def remove(self, one: OpenRequest) -> None:
        """Let a waiting request go."""
        self._waiting.remove(one)

    def admit(self) -> Iterator[OpenRequest]:
        """Give lanes to waiting requests as long as one is empty or idle.

        Yields:
            Requests that the pool cannot hold even if every idle session gave way; they are out
            of the queue, and the next one is asked.
        """
        while self._waiting and self._rows.has_place:
            one = self._waiting.pop(0)
            if one.session is not None:
                self._rows.bring_to_lane(one.session)
                self._rows.states.restore(one.session)
                one.phase = Phase.READING
            elif (entry := self._plan(one)) is not None:
                self._enter(one, entry)
            else:
                yield one

    def admit_by_yield(self, readers: Sequence[OpenRequest]) -> None:
        """Let at most one long read give its lane to a much shorter waiting prompt.

        A read that gives way keeps its cells in a parking row and waits for a lane again. Nobody
        gives way for a prompt that would be refused.

        Args:
            readers: requests whose prompt is read.
        """
        if not self._rows.shape.is_pooled or self._rows.has_place:
            return
        pairs = lane_yields(self._waiting, readers, max_yields=self._max_yields)
        for one, reader in itertools.islice(pairs, MAX_TRIES):
            if self._take_lane(one, reader):
                _log.debug("request %d gives its lane to %d", reader.number, one.number)
                reader.n_yields += 1
                self.add(reader)
                return

    def _take_lane(self, one: OpenRequest, reader: OpenRequest) -> bool:
        """Put a waiting request in the lane of a reader, if that can be; else change nothing."""
        assert reader.session is not None
        if one.session is not None:
            if not self._rows.exchange(reader.session, one.session):
                return False
            self._rows.states.restore(one.session)
            one.phase = Phase.READING
            self._waiting.remove(one)
            return True
        entry = self._plan(one)
        if entry is None:
            return False
        if entry.use is Use.CONTINUE and entry.source is not None:
            if not self._rows.exchange(reader.session, entry.source):
                return False
        elif not self._rows.park(reader.session, keep=entry.source):
            return False
        entry = self._plan(one)
        assert entry is not None, "parking may free chunks, but takes none"
        self._waiting.remove(one)
        self._enter(one, entry)
        return True

    def _plan(self, one: OpenRequest) -> Entry | None:
        request = one.request
        return plan_entry(
            self._rows, request.prompt_ids, key=request.session_key, n_cells=one.n_prompt + 1
        )

    def _enter(self, one: OpenRequest, entry: Entry) -> None:
        one.session = enter(self._rows, entry, key=one.request.session_key)
        one.n_cached = one.session.n_tokens
        if self._rows.states.shelf.limit:
            one.marks = plan_marks(
                one.request.marks,
                n_prompt=one.n_prompt,
                n_known=one.n_cached,
                common=entry.common,
            )
        one.phase = Phase.READING
