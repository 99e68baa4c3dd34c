from __future__ import annotations

import pytest

from strata_desktop.views.pool_layout import (
    FEW_TILE_HEIGHT_PX,
    FEW_TILE_WIDTH_PX,
    MIN_PITCH_PX,
    TileGrid,
)

SIZES = [
    (n, width, height)
    for n in (1, 6, 7, 64, 65, 1024, 4096)
    for width, height in ((200, 90), (500, 140), (1300, 300))
]


@pytest.mark.parametrize(("n_tiles", "width", "height"), SIZES)
def test_every_tile_lies_inside_and_none_overlap(n_tiles: int, width: int, height: int) -> None:
    grid = TileGrid.fit(n_tiles, width=width, height=height)
    seen: set[tuple[int, int]] = set()
    for number in range(n_tiles):
        x, y, tile_width, tile_height = grid.cell(number)
        assert x >= 0
        assert x + tile_width <= width
        assert y + tile_height <= grid.height
        assert tile_width >= 4
        assert tile_height >= 4
        assert x % grid.pitch_x == 0
        assert y % grid.pitch_y == 0
        seen.add((x, y))
    assert len(seen) == n_tiles


@pytest.mark.parametrize(("n_tiles", "width", "height"), SIZES)
def test_the_tile_for_a_point_is_exact(n_tiles: int, width: int, height: int) -> None:
    grid = TileGrid.fit(n_tiles, width=width, height=height)
    for number in {0, n_tiles // 3, n_tiles - 1}:
        x, y, tile_width, tile_height = grid.cell(number)
        assert grid.tile_at(x, y) == number
        assert grid.tile_at(x + tile_width - 0.01, y + tile_height - 0.01) == number
        assert grid.tile_at(x + tile_width, y) is None
        assert grid.tile_at(x, y + tile_height) is None
    assert grid.tile_at(-1, 0) is None
    assert grid.tile_at(0, -1) is None
    assert grid.tile_at(0, grid.height) is None


def test_places_behind_the_last_tile_are_empty() -> None:
    grid = TileGrid.fit(65, width=500, height=140)
    x, y, *_ = grid.cell(64)
    assert grid.tile_at(x + grid.pitch_x, y) is None


def test_tiles_fit_the_room_as_long_as_they_can_be_seen() -> None:
    for n_tiles in (1, 6, 64, 300):
        assert TileGrid.fit(n_tiles, width=500, height=140).height <= 140
    many = TileGrid.fit(4096, width=500, height=140)
    assert many.pitch_y == MIN_PITCH_PX
    assert many.height > 140


def test_few_tiles_are_large_and_numbered() -> None:
    few = TileGrid.fit(6, width=520, height=140)
    assert few.label_height > 0
    assert few.pitch_x > 80
    many = TileGrid.fit(64, width=520, height=140)
    assert many.label_height == 0
    assert few.pitch_x > many.pitch_x


@pytest.mark.parametrize("n_tiles", [1, 2, 3, 8, 13, 16])
def test_few_tiles_share_the_room(n_tiles: int) -> None:
    grid = TileGrid.fit(n_tiles, width=800, height=190)
    assert grid.label_height > 0
    used = n_tiles * grid.pitch_x * grid.pitch_y
    is_largest = grid.pitch_x == FEW_TILE_WIDTH_PX or grid.pitch_y == FEW_TILE_HEIGHT_PX
    assert is_largest or used > 0.7 * 800 * 190
    *_, right = sorted(grid.cell(n)[0] + grid.cell(n)[2] for n in range(n_tiles))
    assert right <= 800


def test_a_rectangle_finds_exactly_the_tiles_it_touches() -> None:
    grid = TileGrid.fit(64, width=500, height=140)
    for number in (0, 17, 63):
        x, y, width, height = grid.cell(number)
        assert grid.tiles_in(x, y, width, height) == [number]
    assert grid.tiles_in(0, 0, 500, grid.height) == list(range(64))
