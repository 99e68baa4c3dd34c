"""Exact chunk ids and their order of reuse on a pool of ten chunks of four cells."""

from __future__ import annotations

import numpy as np
import pytest

from engine.config import PoolConfig
from engine.errors import ConfigError
from engine.memory.chunks import ChunkTables, IdentityTables, PoolShape

TRASH = 10


def make_shape(**changes: object) -> PoolShape:
    sizes: dict[str, object] = {
        "n_lanes": 2,
        "n_parked": 2,
        "context_tokens": 24,
        "chunk_cells": 4,
        "n_chunks": 10,
        "is_pooled": True,
    }
    return PoolShape(**(sizes | changes))  # type: ignore[arg-type]


@pytest.fixture
def tables() -> ChunkTables:
    return ChunkTables(make_shape())


def table(tables: ChunkTables, row: int) -> list[int]:
    tables.check()
    return list(tables.table(row))


def test_fresh_pool_gives_lowest_ids_first(tables: ChunkTables) -> None:
    assert tables.reserve(0, 9)
    assert tables.reserve(1, 4)
    assert table(tables, 0) == [0, 1, 2, TRASH, TRASH, TRASH]
    assert table(tables, 1) == [3, TRASH, TRASH, TRASH, TRASH, TRASH]
    assert (tables.n_free, tables.n_held) == (6, 4)


def test_reserving_fewer_or_equal_cells_changes_nothing(tables: ChunkTables) -> None:
    tables.reserve(0, 9)
    assert tables.reserve(0, 12)
    assert tables.reserve(0, 1)
    assert table(tables, 0) == [0, 1, 2, TRASH, TRASH, TRASH]


def test_chunk_freed_last_is_taken_first(tables: ChunkTables) -> None:
    tables.reserve(0, 12)  # 0 1 2
    tables.reserve(1, 8)  # 3 4
    tables.release(0)  # frees 2, 1, 0
    tables.shrink(1, 4)  # frees 4
    tables.reserve(2, 16)
    assert table(tables, 2) == [4, 0, 1, 2, TRASH, TRASH]


def test_shrinking_and_reserving_again_takes_the_same_chunks(tables: ChunkTables) -> None:
    tables.reserve(0, 20)
    tables.shrink(0, 5)
    assert table(tables, 0) == [0, 1, TRASH, TRASH, TRASH, TRASH]
    tables.reserve(0, 20)
    assert table(tables, 0) == [0, 1, 2, 3, 4, TRASH]


def test_reserve_is_all_or_nothing(tables: ChunkTables) -> None:
    tables.reserve(0, 24)
    tables.reserve(1, 8)
    before = table(tables, 1)
    assert not tables.reserve(1, 20)  # 3 lacking, 2 free
    assert table(tables, 1) == before
    assert tables.n_free == 2
    assert tables.reserve(1, 16)
    assert tables.n_free == 0


def test_reserving_past_the_table_is_a_fault(tables: ChunkTables) -> None:
    with pytest.raises(ValueError, match="25 cells wanted, but a table holds 6 chunks"):
        tables.reserve(0, 25)


def test_swap_exchanges_rows(tables: ChunkTables) -> None:
    tables.reserve(0, 8)
    tables.reserve(3, 4)
    tables.swap(0, 3)
    assert table(tables, 0) == [2, TRASH, TRASH, TRASH, TRASH, TRASH]
    assert table(tables, 3) == [0, 1, TRASH, TRASH, TRASH, TRASH]
    tables.release(3)
    assert tables.n_free == 9


def test_shared_chunk_is_free_when_its_last_holder_is_gone(tables: ChunkTables) -> None:
    tables.reserve(0, 12)
    tables.share(0, 2, 2)
    tables.reserve(2, 12)
    assert table(tables, 2) == [0, 1, 3, TRASH, TRASH, TRASH]
    assert list(tables.holders()) == [2, 2, 1, 1, 0, 0, 0, 0, 0, 0]
    assert (tables.n_free, tables.n_held) == (6, 4)
    tables.release(0)
    assert table(tables, 2) == [0, 1, 3, TRASH, TRASH, TRASH]
    assert tables.n_free == 7
    tables.release(2)
    assert tables.n_free == 10
    tables.check()


def test_share_wants_an_empty_row_and_enough_chunks(tables: ChunkTables) -> None:
    tables.reserve(0, 8)
    tables.reserve(1, 4)
    with pytest.raises(ValueError, match="row 1 already holds 1"):
        tables.share(0, 1, 1)
    with pytest.raises(ValueError, match="row 0 holds 2 chunks, 3 wanted"):
        tables.share(0, 2, 3)


def test_check_finds_a_lost_chunk(tables: ChunkTables) -> None:
    tables.reserve(0, 8)
    tables._free.pop()
    with pytest.raises(AssertionError, match="2 held"):
        tables.check()


def test_check_finds_a_miscounted_chunk(tables: ChunkTables) -> None:
    tables.reserve(0, 8)
    tables._n_holders[1] = 2
    with pytest.raises(AssertionError, match="miscounted"):
        tables.check()


def test_table_is_a_copy(tables: ChunkTables) -> None:
    tables.reserve(0, 4)
    tables.table(0)[0] = 7
    assert table(tables, 0)[0] == 0


def test_without_a_pool_lanes_own_their_chunks() -> None:
    shape = make_shape(n_parked=0, n_chunks=12, is_pooled=False)
    lanes = IdentityTables(shape)
    assert lanes.n_free == 12
    assert lanes.reserve(1, 3)
    assert lanes.chunks(0) == ()
    assert lanes.chunks(1) == (6, 7, 8, 9, 10, 11)
    assert list(lanes.holders()) == [0] * 6 + [1] * 6
    lanes.shrink(1, 1)
    assert lanes.n_free == 6
    lanes.release(1)
    assert lanes.n_free == 12
    with pytest.raises(ValueError, match="25 cells wanted"):
        lanes.reserve(0, 25)


def test_shape_is_rounded_up_to_chunks() -> None:
    config = PoolConfig(n_lanes=3, context_tokens=10, pool_tokens=33, chunk_cells=8, n_parked=5)
    shape = PoolShape.from_config(config, model_context_tokens=100)
    assert (shape.n_table, shape.n_chunks, shape.cells, shape.trash) == (2, 5, 40, 5)
    assert (shape.n_rows, shape.context_tokens, shape.is_pooled) == (8, 10, True)


def test_shape_without_a_pool_has_a_whole_context_a_lane() -> None:
    shape = PoolShape.from_config(PoolConfig(n_lanes=3, chunk_cells=8), model_context_tokens=20)
    assert (shape.n_table, shape.n_chunks, shape.n_parked) == (3, 9, 0)
    assert (shape.context_tokens, shape.is_pooled) == (20, False)


def test_context_longer_than_the_models_is_refused() -> None:
    with pytest.raises(ConfigError, match="--max-context 30 is longer than the 20"):
        PoolShape.from_config(PoolConfig(context_tokens=30), model_context_tokens=20)


def test_table_entries_are_int32(tables: ChunkTables) -> None:
    assert tables.table(0).dtype == np.int32
