"""Which K/V chunk belongs to whom: chunk tables with shared, counted chunks.

Only ids live here. What the chunks contain is the backend's, who may hold what is the scheduler's.

    row 0 .. n_lanes-1      the lanes: their tables are what the backend reads
    row n_lanes ..          parking rows: conversations kept without a lane, host only

    table of a row:   [ 3 | 0 | 7 | T | T ]      T = trash chunk (unreserved)
                        ^ cells 0..C-1 of the conversation lie in chunk 3
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from engine.config import PoolConfig
from engine.errors import ConfigError
from engine.step import ChunkId

Table = npt.NDArray[np.int32]
"""i32[n_table], chunk ids of one row."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PoolShape:
    """Sizes of the K/V storage, settled once the model's context length is known.

    Attributes:
        n_lanes: rows of the running batch.
        n_parked: conversations kept without a lane; 0 without a pool.
        context_tokens: longest conversation.
        chunk_cells: cells a chunk holds.
        n_chunks: real chunks, the trash chunk not counted.
        is_pooled: whether lanes share the chunks through tables.
    """

    n_lanes: int
    n_parked: int
    context_tokens: int
    chunk_cells: int
    n_chunks: int
    is_pooled: bool

    @classmethod
    def from_config(cls, config: PoolConfig, *, model_context_tokens: int) -> PoolShape:
        """Settle the sizes for a model.

        Args:
            config: what was asked for.
            model_context_tokens: the context length the model was trained with.

        Raises:
            ConfigError: the pool or the context is too small to hold a conversation, or the
                context asked for is longer than the model's.
        """
        context = config.context_tokens or model_context_tokens
        if context > model_context_tokens:
            raise ConfigError(
                f"--max-context {context} is longer than the {model_context_tokens} tokens "
                "this model was made for. Ask for at most that."
            )
        if context < 2:
            raise ConfigError(f"The context length must be 2 tokens or more, got {context}.")
        n_table = -(-context // config.chunk_cells)
        is_pooled = config.pool_tokens is not None
        if config.pool_tokens is None:
            n_chunks = config.n_lanes * n_table
        else:
            n_chunks = -(-config.pool_tokens // config.chunk_cells)
        return cls(
            n_lanes=config.n_lanes,
            n_parked=config.n_parked if is_pooled else 0,
            context_tokens=context,
            chunk_cells=config.chunk_cells,
            n_chunks=n_chunks,
            is_pooled=is_pooled,
        )

    @property
    def n_table(self) -> int:
        """Entries of a table: chunks a conversation of full length reaches."""
        return -(-self.context_tokens // self.chunk_cells)

    @property
    def n_rows(self) -> int:
        """Lanes and parking rows."""
        return self.n_lanes + self.n_parked

    @property
    def cells(self) -> int:
        """Cells of all real chunks."""
        return self.n_chunks * self.chunk_cells

    @property
    def trash(self) -> ChunkId:
        """Where unreserved table entries point."""
        return ChunkId(self.n_chunks)

    def n_chunks_for(self, cells: int) -> int:
        """Chunks that `cells` cells reach."""
        return -(-cells // self.chunk_cells)


class Tables(Protocol):
    """What the scheduler asks of the rows, with a pool (`ChunkTables`) or without one."""

    shape: PoolShape

    @property
    def n_free(self) -> int:
        """Chunks nobody holds."""

    def reserve(self, row: int, cells: int) -> bool:
        """Make the row hold `cells` cells; all or nothing."""

    def shrink(self, row: int, cells: int) -> None:
        """Give back the chunks behind the first `cells` cells."""

    def release(self, row: int) -> None:
        """Give back every chunk of the row."""

    def chunks(self, row: int) -> tuple[ChunkId, ...]:
        """Chunks the row holds, in the order of its cells."""

    def holders(self) -> npt.NDArray[np.int32]:
        """Rows that hold each chunk, counted: a copy, i32[n_chunks]."""

    def check(self) -> None:
        """Verify every invariant."""


class ChunkTables:
    """The tables of a shared pool.

    Whole chunks may be held by several rows; each chunk counts its holders and is free when
    nobody is left. The free list is a stack: lowest id first on a fresh pool, afterwards the
    chunk freed last is taken first.

    Attributes:
        shape: sizes of the pool.
    """

    def __init__(self, shape: PoolShape) -> None:
        self.shape = shape
        self._tables = np.full((shape.n_rows, shape.n_table), shape.trash, np.int32)
        self._n_held = [0] * shape.n_rows
        self._n_holders = np.zeros(shape.n_chunks, np.int32)
        self._free = list(range(shape.n_chunks - 1, -1, -1))

    @property
    def n_free(self) -> int:
        """Chunks nobody holds."""
        return len(self._free)

    @property
    def n_held(self) -> int:
        """Distinct chunks somebody holds."""
        return self.shape.n_chunks - len(self._free)

    def reserve(self, row: int, cells: int) -> bool:
        """Make the row hold at least `cells` cells; all or nothing.

        Args:
            row: lane or parking row.
            cells: cells wanted in all, those held already included.

        Returns:
            False, with nothing changed, when the free chunks do not cover the lack.

        Raises:
            ValueError: more cells than a table has.
        """
        n_wanted = self.shape.n_chunks_for(cells)
        if n_wanted > self.shape.n_table:
            raise ValueError(
                f"row {row}: {cells} cells wanted, but a table holds "
                f"{self.shape.n_table} chunks of {self.shape.chunk_cells} cells"
            )
        n_held = self._n_held[row]
        n_lacking = n_wanted - n_held
        if n_lacking > len(self._free):
            return False
        for index in range(n_held, n_wanted):
            chunk = self._free.pop()
            self._n_holders[chunk] = 1
            self._tables[row, index] = chunk
        self._n_held[row] = max(n_held, n_wanted)
        return True

    def shrink(self, row: int, cells: int) -> None:
        """Give back the chunks behind the first `cells` cells.

        The last chunk goes first, so reserving again takes the same chunks in the same order.
        """
        n_kept = min(self.shape.n_chunks_for(cells), self._n_held[row])
        for index in range(self._n_held[row] - 1, n_kept - 1, -1):
            chunk = int(self._tables[row, index])
            self._tables[row, index] = self.shape.trash
            self._n_holders[chunk] -= 1
            if self._n_holders[chunk] == 0:
                self._free.append(chunk)
        self._n_held[row] = n_kept

    def release(self, row: int) -> None:
        """Give back every chunk of the row."""
        self.shrink(row, 0)

    def swap(self, row_a: int, row_b: int) -> None:
        """Exchange two rows: their conversations change places, no cell is copied."""
        self._tables[[row_a, row_b]] = self._tables[[row_b, row_a]]
        held = self._n_held
        held[row_a], held[row_b] = held[row_b], held[row_a]

    def share(self, source_row: int, target_row: int, n_chunks: int) -> None:
        """Let an empty row hold the first chunks of another row too.

        Only chunks that are full and so never written again may be shared; the caller knows.

        Args:
            source_row: row that holds the chunks.
            target_row: row that holds nothing yet.
            n_chunks: how many, from the start.

        Raises:
            ValueError: the target holds chunks, or the source holds fewer than `n_chunks`.
        """
        if self._n_held[target_row]:
            raise ValueError(f"row {target_row} already holds {self._n_held[target_row]} chunks")
        if n_chunks > self._n_held[source_row]:
            raise ValueError(
                f"row {source_row} holds {self._n_held[source_row]} chunks, {n_chunks} wanted"
            )
        shared = self._tables[source_row, :n_chunks]
        self._tables[target_row, :n_chunks] = shared
        self._n_holders[shared] += 1
        self._n_held[target_row] = n_chunks

    def table(self, row: int) -> Table:
        """A copy of the row's table, unreserved entries naming the trash chunk."""
        table: Table = self._tables[row].copy()
        return table

    def chunks(self, row: int) -> tuple[ChunkId, ...]:
        """Chunks the row holds, in the order of its cells."""
        return tuple(ChunkId(int(chunk)) for chunk in self._tables[row, : self._n_held[row]])

    def holders(self) -> npt.NDArray[np.int32]:
        """Rows that hold each chunk, counted: a copy, i32[n_chunks]."""
        return self._n_holders.copy()

    def check(self) -> None:
        """Verify every invariant.

        Raises:
            AssertionError: a chunk is lost, held twice by a row, miscounted, or both free and held.
        """
        n_rows_holding = np.zeros(self.shape.n_chunks, np.int32)
        for row in range(self.shape.n_rows):
            held = self.chunks(row)
            assert len(set(held)) == len(held), f"row {row} holds a chunk twice: {held}"
            assert self.shape.trash not in held, f"row {row} holds the trash chunk: {held}"
            n_rows_holding[list(held)] += 1
            rest = self._tables[row, self._n_held[row] :]
            assert bool(np.all(rest == self.shape.trash)), f"row {row} keeps ids behind its end"
        assert np.array_equal(n_rows_holding, self._n_holders), "holders are miscounted"
        free = set(self._free)
        assert len(free) == len(self._free), "a chunk is twice in the free list"
        assert all(self._n_holders[chunk] == 0 for chunk in free), "a free chunk is held"
        n_held = int(np.count_nonzero(self._n_holders))
        assert n_held + len(free) == self.shape.n_chunks, (
            f"{n_held} held + {len(free)} free is not {self.shape.n_chunks}"
        )


class IdentityTables:
    """The same questions without a pool: every lane owns a whole context of chunks.

    Cell i of lane L lies in chunk `L * n_table + i // chunk_cells`, always; nothing is ever lacking
    and nothing can be shared or moved.

    Attributes:
        shape: sizes; `n_chunks` is `n_lanes * n_table`.
    """

    def __init__(self, shape: PoolShape) -> None:
        self.shape = shape
        self._is_taken = [False] * shape.n_lanes

    @property
    def n_free(self) -> int:
        """Chunks of lanes without a conversation."""
        return self._is_taken.count(False) * self.shape.n_table

    def reserve(self, row: int, cells: int) -> bool:
        """Take the whole lane; always possible.

        Raises:
            ValueError: more cells than the lane has.
        """
        if self.shape.n_chunks_for(cells) > self.shape.n_table:
            raise ValueError(f"lane {row}: {cells} cells wanted, {self.shape.n_table} chunks there")
        self._is_taken[row] = True
        return True

    def shrink(self, row: int, cells: int) -> None:
        """Keep the lane: there is nobody to give its chunks to."""

    def release(self, row: int) -> None:
        """Mark the lane as empty."""
        self._is_taken[row] = False

    def chunks(self, row: int) -> tuple[ChunkId, ...]:
        """All chunks of the lane, or none while it is empty."""
        if not self._is_taken[row]:
            return ()
        first = row * self.shape.n_table
        return tuple(ChunkId(chunk) for chunk in range(first, first + self.shape.n_table))

    def holders(self) -> npt.NDArray[np.int32]:
        """1 for every chunk of a taken lane, i32[n_chunks]."""
        holders = np.zeros((self.shape.n_lanes, self.shape.n_table), np.int32)
        holders[self._is_taken] = 1
        return holders.reshape(-1)

    def check(self) -> None:
        """Nothing can go wrong here: chunks follow from the lane."""
