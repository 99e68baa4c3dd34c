"""Which colour a session has: chosen when it appears, kept for its life.

It deals in palette places; the theme turns a place into a colour for light or dark.
"""

from __future__ import annotations

from collections.abc import Iterable

PALETTE_LENGTH = 12
"""Places handed out before colours repeat."""


class SessionColors:
    """Palette places by session id.

    A new session gets the place with the fewest holders, among those the one unused longest, so
    a colour just given back does not return at once as somebody else's.
    """

    def __init__(self, n_places: int = PALETTE_LENGTH) -> None:
        self._n_places = n_places
        self._place_of: dict[str, int] = {}
        self._last_use = [-1] * n_places
        self._n_given = 0

    def place(self, session_id: str) -> int:
        """Return the place of a session known since the last `follow`.

        Raises:
            KeyError: if the session is not there.
        """
        return self._place_of[session_id]

    def as_dict(self) -> dict[str, int]:
        """Return a copy of all places by session id."""
        return dict(self._place_of)

    def follow(self, session_ids: Iterable[str]) -> None:
        """Give places to new sessions and take back those of sessions gone."""
        present = list(session_ids)
        gone = self._place_of.keys() - set(present)
        for session_id in gone:
            place = self._place_of.pop(session_id)
            self._n_given += 1
            self._last_use[place] = self._n_given
        for session_id in present:
            if session_id not in self._place_of:
                self._place_of[session_id] = self._choose()

    def _choose(self) -> int:
        n_holders = [0] * self._n_places
        for place in self._place_of.values():
            n_holders[place] += 1
        return min(
            range(self._n_places),
            key=lambda place: (n_holders[place], self._last_use[place], place),
        )
