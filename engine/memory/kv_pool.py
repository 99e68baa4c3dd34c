"""Storage of K/V cells in RAM: chunks, the lanes' tables, copies. Who holds what is not known here.

Bytes of the pool, chunk-major:

    chunk 0                                                     chunk 1 ... n_chunks = trash
    | layer 0                            | ... | index keys              |
    | K: cell 0, 1, ... | V: cell 0, ... | ... | layer 0: page 0, 1, ... | layer 1 ... |

      a cell: n_kv_heads x head_dim values,      a page: key_dim values, float32
      float16 (float32 when exact)

Pages come on first use: a pool costs RAM only where cells were written.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engine.errors import MemoryBudgetError
from engine.step import CellCopy, LaneId


@dataclass(frozen=True, kw_only=True, slots=True)
class KvLayout:
    """Sizes of the storage.

    Attributes:
        n_layers: layers that keep K and V.
        kv_dim: values of K (and of V) a cell and layer.
        value_bytes: 2 for float16, 4 for float32.
        chunk_cells: cells a chunk.
        n_chunks: chunks that can be reserved; one more, the trash chunk, lies behind them.
        n_lanes: rows of the table.
        n_table: entries of a lane's table.
        n_index_layers: layers that also keep an index key for each page of cells.
        index_dim: values of an index key, float32.
        page_cells: cells of a page; a chunk holds whole pages.
    """

    n_layers: int
    kv_dim: int
    value_bytes: int
    chunk_cells: int
    n_chunks: int
    n_lanes: int
    n_table: int
    n_index_layers: int = 0
    index_dim: int = 0
    page_cells: int = 1

    def __post_init__(self) -> None:
        if self.chunk_cells % self.page_cells:
            raise ValueError(
                f"A chunk of {self.chunk_cells} cells is no whole number of pages of "
                f"{self.page_cells} cells."
            )

    @property
    def cell_bytes(self) -> int:
        """Bytes of K (or of V) of one cell and layer."""
        return self.kv_dim * self.value_bytes

    @property
    def part_bytes(self) -> int:
        """Bytes of K (or of V) of one layer in a chunk: also the distance from K to V."""
        return self.chunk_cells * self.cell_bytes

    @property
    def kv_bytes(self) -> int:
        """Bytes of K and V of all layers in a chunk; its index keys lie behind them."""
        return 2 * self.n_layers * self.part_bytes

    @property
    def page_bytes(self) -> int:
        """Bytes of the index key of one page and layer."""
        return 4 * self.index_dim

    @property
    def index_bytes(self) -> int:
        """Bytes of the index keys of one layer in a chunk."""
        return self.chunk_cells // self.page_cells * self.page_bytes

    @property
    def chunk_bytes(self) -> int:
        """Bytes of a chunk."""
        return self.kv_bytes + self.n_index_layers * self.index_bytes

    @property
    def trash(self) -> int:
        """Id of the trash chunk."""
        return self.n_chunks


class KvStorage:
    """The cells and the chunk tables that kernels read.

    Attributes:
        layout: its sizes.
        tables: i32[n_lanes, n_table], chunk of each run of chunk_cells positions of a lane. It
            stays where it is; `write_table` changes it in place.
    """

    def __init__(self, layout: KvLayout, *, is_pooled: bool) -> None:
        """Reserve address space for all chunks.

        Args:
            layout: sizes.
            is_pooled: every table entry names the trash chunk until written; otherwise lane L has
                the chunks L * n_table and on (identity layout).

        Raises:
            MemoryBudgetError: the system does not promise that much memory.
        """
        self.layout = layout
        n_bytes = (layout.n_chunks + 1) * layout.chunk_bytes
        try:
            self._cells = np.zeros(n_bytes, np.uint8)
        except MemoryError as fault:
            raise MemoryBudgetError(
                f"The system does not give {n_bytes / 2**20:.0f} MiB for the K/V cells "
                f"({layout.n_chunks} chunks of {layout.chunk_cells} cells). Use a smaller "
                "--max-context, --batch or --kv-pool-tokens.",
                limit="ram",
            ) from fault
        shape = (layout.n_lanes, layout.n_table)
        if is_pooled:
            self.tables = np.full(shape, layout.trash, np.int32)
        else:
            self.tables = np.arange(shape[0] * shape[1], dtype=np.int32).reshape(shape)

    def layer_address(self, layer: int) -> int:
        """Return where K of a layer begins in chunk 0; V follows `part_bytes` later."""
        return int(self._cells.ctypes.data) + 2 * layer * self.layout.part_bytes

    def index_address(self, layer: int) -> int:
        """Return where the index keys of a layer (among those that have some) lie in chunk 0."""
        layout = self.layout
        return int(self._cells.ctypes.data) + layout.kv_bytes + layer * layout.index_bytes

    def write_table(self, lane: LaneId, table: npt.NDArray[np.int32]) -> None:
        """Replace a lane's table.

        Raises:
            ValueError: it has another length, or names a chunk that does not exist.
        """
        if table.shape != (self.layout.n_table,):
            raise ValueError(
                f"The table of lane {lane} has {table.shape} entries, wanted {self.layout.n_table}."
            )
        if table.min() < 0 or table.max() > self.layout.trash:
            raise ValueError(
                f"The table of lane {lane} names chunk {table.min()} or {table.max()}; there are "
                f"0 .. {self.layout.trash}, the last one being the trash chunk."
            )
        self.tables[lane] = table

    def copy_cells(self, copy: CellCopy) -> int:
        """Copy the first cells of one chunk to another, all layers.

        Returns:
            Bytes copied.

        Raises:
            ValueError: there are no such chunks or cells.
        """
        layout = self.layout
        is_known = 0 <= copy.source <= layout.trash and 0 <= copy.target <= layout.trash
        if not is_known or not 0 <= copy.n_cells <= layout.chunk_cells:
            raise ValueError(
                f"Cannot copy {copy.n_cells} cells from chunk {copy.source} to {copy.target}: "
                f"there are chunks 0 .. {layout.trash} of {layout.chunk_cells} cells."
            )
        chunks = self._cells.reshape(layout.n_chunks + 1, layout.chunk_bytes)
        target, source = chunks[copy.target], chunks[copy.source]
        n_bytes = copy.n_cells * layout.cell_bytes
        _copy_starts(target[: layout.kv_bytes], source, layout.part_bytes, n_bytes)
        n_page_bytes = copy.n_cells // layout.page_cells * layout.page_bytes
        if layout.n_index_layers:
            index = slice(layout.kv_bytes, None)
            _copy_starts(target[index], source[index], layout.index_bytes, n_page_bytes)
        return 2 * layout.n_layers * n_bytes + layout.n_index_layers * n_page_bytes


def _copy_starts(
    target: npt.NDArray[np.uint8], source: npt.NDArray[np.uint8], part_bytes: int, n_bytes: int
) -> None:
    """Copy the first bytes of each part of the target from the same part of the source."""
    n_parts = len(target) // part_bytes
    parts = target.reshape(n_parts, part_bytes)
    parts[:, :n_bytes] = source[: len(target)].reshape(n_parts, part_bytes)[:, :n_bytes]
