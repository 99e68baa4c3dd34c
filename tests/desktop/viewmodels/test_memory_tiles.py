from __future__ import annotations

import pytest

from strata_desktop.viewmodels import memory_tiles as tiles_of
from tests.desktop.snapshots import Held, make_pool

NAMES = {"s1": "One", "s2": "Two"}
PLACES = {"s1": 0, "s2": 1}


def test_tiles_and_holdings_add_up() -> None:
    pool = make_pool(8, [Held(id="s1", n_tokens=9000), Held(id="s2", n_tokens=5000, n_shared=1)])
    tiles = tiles_of.make_tiles(pool, PLACES)
    assert [tile.colors for tile in tiles] == [(0, 1), (0,), (0,), (1,), (), (), (), ()]
    assert tiles[2].fill == pytest.approx(808 / 4096)
    assert tiles[7].fill == 0
    holdings = tiles_of.make_holdings(pool, PLACES, NAMES)
    assert [one.name for one in holdings] == ["One", "Two", "free"]
    assert [one.cells for one in holdings] == [4096 * 2.5, 4096 * 1.5, 4096 * 4]
    assert sum(one.cells for one in holdings) == pool.cells


def test_a_chunk_in_one_line() -> None:
    pool = make_pool(3, [Held(id="s1", n_tokens=5000), Held(id="s2", n_tokens=5000, n_shared=1)])
    tiles = tiles_of.make_tiles(pool, PLACES)
    assert tiles_of.describe_tile(tiles[0], pool, NAMES) == (
        "Chunk 0 · shared by One + Two · 4,096 of 4,096 cells used · 45.0 MiB"
    )
    assert tiles_of.describe_tile(tiles[1], pool, NAMES) == (
        "Chunk 1 · One · 904 of 4,096 cells used · 45.0 MiB"
    )
    free = make_pool(1)
    assert tiles_of.describe_tile(tiles_of.make_tiles(free, {})[0], free, {}) == (
        "Chunk 0 · free · 4,096 cells · 45.0 MiB"
    )


def test_a_chunk_that_did_not_change_keeps_its_tile() -> None:
    cache = tiles_of.TileCache()
    first = cache.update(make_pool(8, [Held(id="s1", n_tokens=9000)]), {"s1": 0})
    second = cache.update(make_pool(8, [Held(id="s1", n_tokens=9100)]), {"s1": 0})
    assert [a is b for a, b in zip(first, second, strict=True)] == [True] * 2 + [False] + [True] * 5
    assert second[2].n_cells_used == 9100 - 8192
    recolored = cache.update(make_pool(8, [Held(id="s1", n_tokens=9100)]), {"s1": 3})
    assert recolored[0].colors == (3,)
    shared = cache.update(
        make_pool(8, [Held(id="s1", n_tokens=9100), Held(id="s2", n_tokens=4096, n_shared=1)]),
        {"s1": 3, "s2": 4},
    )
    assert shared[0].colors == (3, 4)
    assert len(cache.update(make_pool(3), {})) == 3
