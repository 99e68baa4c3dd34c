"""Hands out pieces of one owner's range, one behind the other.

Good for what is laid out once (weights, lane states) or anew for every step (workspace). Memory is
mapped as the pieces reach it; freeing single pieces is left to nobody.
"""

from __future__ import annotations

from engine.memory.arena import Arena
from engine.memory.budget import VramOwner

ALIGN_BYTES = 256
"""What CUDA's own allocator aligns to, so any kernel may load any vector from a piece."""


class Bump:
    """Pieces of an owner's range in the order they were asked for.

    Attributes:
        owner: whose range.
        used_bytes: how far the pieces reach; a mark for `rewind`.
    """

    def __init__(self, arena: Arena, owner: VramOwner) -> None:
        self._arena = arena
        self._range = arena.range_of(owner)
        self.owner = owner
        self.used_bytes = 0

    def alloc(self, n_bytes: int) -> int | None:
        """Take the next piece, mapping memory where there is none yet.

        Args:
            n_bytes: its size, 1 or more.

        Returns:
            Its address, a multiple of ALIGN_BYTES, or None if there is no memory for it now; then
            nothing changed.

        Raises:
            ValueError: no size, or past the end of the owner's addresses (the plan was too small).
            DriverError: the driver failed; nothing changed.
        """
        start = -(-self.used_bytes // ALIGN_BYTES) * ALIGN_BYTES
        if n_bytes < 1 or start + n_bytes > self._range.n_bytes:
            raise ValueError(
                f"Cannot place {n_bytes} bytes for {self.owner} behind the {start} in use: its "
                f"addresses end after {self._range.n_bytes}."
            )
        touched = self._range.places_of(start, n_bytes)
        holes = [place for place in touched if self._range.extent(place) is None]
        if holes and not self._arena.map_at(self.owner, holes):
            return None
        self.used_bytes = start + n_bytes
        return self._range.address + start

    def rewind(self, mark_bytes: int = 0) -> None:
        """Forget the pieces behind a mark; their memory stays mapped for the next ones.

        Raises:
            ValueError: the mark lies behind the last piece.
        """
        if not 0 <= mark_bytes <= self.used_bytes:
            raise ValueError(f"Cannot rewind to {mark_bytes}: {self.used_bytes} bytes are in use.")
        self.used_bytes = mark_bytes
