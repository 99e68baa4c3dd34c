"""From the pool of a snapshot to tiles and stretches: who holds which chunk, in which colour.

Pure functions over frozen values, and the one cache that keeps tiles which did not change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from strata_desktop.viewmodels.memory_text import bytes_text, count_text, fraction, plural

if TYPE_CHECKING:
    from engine.stats import ChunkHolding, KvPoolSnapshot


@dataclass(frozen=True, kw_only=True, slots=True)
class Tile:
    """One chunk as the map draws it.

    Attributes:
        id: chunk id.
        sessions: ids of its holders; empty = free.
        colors: palette places of the holders, in their order.
        fill: part of its cells whose K/V is known, 0 to 1.
        n_cells_used: those cells.
    """

    id: int
    sessions: tuple[str, ...]
    colors: tuple[int, ...]
    fill: float
    n_cells_used: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Holding:
    """One stretch of the stacked bar.

    Attributes:
        session: whose, "" = free.
        name: as shown.
        color: palette place, -1 = free.
        cells: cells, a shared chunk divided among its holders.
    """

    session: str
    name: str
    color: int
    cells: float


def make_tiles(pool: KvPoolSnapshot, places: Mapping[str, int]) -> tuple[Tile, ...]:
    """Return every chunk as a tile, in id order."""
    return tuple(make_tile(chunk, pool.chunk_cells, places) for chunk in pool.chunks)


def make_tile(chunk: ChunkHolding, chunk_cells: int, places: Mapping[str, int]) -> Tile:
    """Return one chunk as a tile."""
    return Tile(
        id=chunk.id,
        sessions=chunk.sessions,
        colors=tuple(places[session] for session in chunk.sessions if session in places),
        fill=fraction(chunk.n_cells_used, chunk_cells) or 0.0,
        n_cells_used=chunk.n_cells_used,
    )


class TileCache:
    """Tiles of the last pool: a chunk that did not change keeps its very tile.

    Most chunks of a large pool are the same from one report to the next; who compares tiles by
    identity then finds the few that changed at once.
    """

    def __init__(self) -> None:
        self._chunks: tuple[ChunkHolding, ...] = ()
        self._tiles: tuple[Tile, ...] = ()
        self._places: dict[str, int] = {}
        self._chunk_cells = 0

    def update(self, pool: KvPoolSnapshot, places: dict[str, int]) -> tuple[Tile, ...]:
        """Return the tiles of a pool, new ones only where something changed."""
        is_same_pool = (
            len(pool.chunks) == len(self._chunks)
            and places == self._places
            and pool.chunk_cells == self._chunk_cells
        )
        if is_same_pool:
            self._tiles = tuple(
                tile
                if new.n_cells_used == old.n_cells_used and new.sessions == old.sessions
                else make_tile(new, pool.chunk_cells, places)
                for new, old, tile in zip(pool.chunks, self._chunks, self._tiles, strict=True)
            )
        else:
            self._tiles = make_tiles(pool, places)
        self._chunks, self._places = pool.chunks, places
        self._chunk_cells = pool.chunk_cells
        return self._tiles


def make_holdings(
    pool: KvPoolSnapshot, places: Mapping[str, int], names: Mapping[str, str]
) -> tuple[Holding, ...]:
    """Return the stacked bar: sessions in their order, then what is free; sums to the pool."""
    cells_of: dict[str, float] = {session.id: 0.0 for session in pool.sessions}
    for chunk in pool.chunks:
        for session in chunk.sessions:
            if session in cells_of:
                cells_of[session] += pool.chunk_cells / len(chunk.sessions)
    holdings = [
        Holding(session=session, name=names[session], color=places[session], cells=cells)
        for session, cells in cells_of.items()
        if cells > 0
    ]
    rest = max(0.0, pool.cells - sum(holding.cells for holding in holdings))
    return (*holdings, Holding(session="", name="free", color=-1, cells=rest))


def describe_tile(tile: Tile, pool: KvPoolSnapshot, names: Mapping[str, str]) -> str:
    """Return a chunk in one line: id, holders, cells used, memory."""
    n_bytes = pool.chunk_cells * pool.bytes_per_cell
    size = bytes_text(n_bytes)
    if not tile.sessions:
        return f"Chunk {tile.id} · free · {count_text(pool.chunk_cells)} cells · {size}"
    holders = " + ".join(names.get(session, session) for session in tile.sessions)
    shared = "shared by " if len(tile.sessions) > 1 else ""
    return (
        f"Chunk {tile.id} · {shared}{holders} · {count_text(tile.n_cells_used)} of "
        f"{count_text(pool.chunk_cells)} cells used · {size}"
    )


def summary_text(pool: KvPoolSnapshot) -> str:
    """Return the map in one sentence for screen readers."""
    n_held = sum(1 for chunk in pool.chunks if chunk.sessions)
    n_shared = sum(1 for chunk in pool.chunks if len(chunk.sessions) > 1)
    return (
        f"{plural(len(pool.chunks), 'chunk')}, {n_held} held, {n_shared} shared, "
        f"{len(pool.chunks) - n_held} free; {plural(len(pool.sessions), 'session')}."
    )
