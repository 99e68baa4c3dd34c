"""Writing a tape: working memory, records, and what every op of the CPU needs for them.

The ops themselves are in `engine.backend.cpu_ops` and `engine.backend.cpu_layer_ops`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from engine.backend.lane_states import LaneStates
from engine.memory.kv_pool import KvStorage
from engine.ops import Batch, Ids, LongIds, Rows, Selection, State
from kernels.cpu import records
from kernels.cpu.layer_records import StatePlace
from kernels.cpu.library import Team

ALIGNMENT_BYTES = 64
"""A cache line; also what the widest vector loads like."""


@dataclass(slots=True)
class Arena:
    """Stack of working memory: addresses from `base` on, no memory of its own.

    Attributes:
        base: first address.
        used_bytes: in use now.
        peak_bytes: most in use so far.
    """

    base: int
    used_bytes: int = 0
    peak_bytes: int = 0

    def take(self, n_bytes: int) -> int:
        """Return the address of the next `n_bytes`."""
        address = self.base + self.used_bytes
        self.used_bytes += -(-n_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        self.peak_bytes = max(self.peak_bytes, self.used_bytes)
        return address


@dataclass(frozen=True, slots=True)
class Note:
    """A value shown by a model, and the record before which it is whole.

    Attributes:
        n_records: records to run before it can be looked at.
        name: what it is.
        layer: of which layer.
        value: where it lies.
    """

    n_records: int
    name: str
    layer: int
    value: Rows | LongIds | Selection


@dataclass(frozen=True, slots=True)
class TapeMemory:
    """What records point into besides weights and working memory.

    Attributes:
        kv: K/V cells and chunk tables.
        states: recurrent states of the lanes.
        expert_counts: address of i64[n_layers, n_experts].
    """

    kv: KvStorage
    states: LaneStates
    expert_counts: int


class TapeWriter:
    """Records of a batch as they are made, and the memory they use.

    Attributes:
        recorded: the records so far.
        notes: the values shown so far.
        arena: where rows lie.
    """

    def __init__(self, team: Team, memory: TapeMemory, arena: Arena, *, is_exact: bool) -> None:
        self.recorded: list[records.Record] = []
        self.notes: list[Note] = []
        self.arena = arena
        self._team = team
        self._memory = memory
        self._kv = memory.kv
        self._is_exact = is_exact
        self._codes: tuple[Rows, int, int] | None = None

    @contextmanager
    def scratch(self) -> Iterator[None]:
        """Give back at the end what was made inside."""
        mark = self.arena.used_bytes
        yield
        self.arena.used_bytes = mark
        if self._codes is not None and self._codes[1] >= self.arena.base + mark:
            self._codes = None

    def note(self, name: str, layer: int, value: Rows | LongIds | Selection) -> None:
        """Remember where a value lies and when it is whole."""
        self.notes.append(Note(len(self.recorded), name, layer, value))

    def _rows(self, n_rows: int, n_cols: int) -> Rows:
        return Rows(self.arena.take(4 * n_rows * n_cols), n_rows, n_cols)

    def _ids(self, n: int) -> Ids:
        return Ids(self.arena.take(4 * n), n)

    def _record(self, record: records.Record) -> None:
        self.recorded.append(record)

    def _quantize(self, x: Rows) -> tuple[int, int]:
        """Return addresses of codes and scales of x; made once for several products of it."""
        if self._codes is not None and self._codes[0] is x:
            return self._codes[1:]
        n_values, n_floats = self._team.library.code_shape(x.n_cols)
        qs = self.arena.take(2 * x.n_rows * n_values)
        ds = self.arena.take(4 * x.n_rows * n_floats)
        self._record(
            records.Quantize(
                kind=records.Quantize.KIND,
                x=x.address,
                qs=qs,
                ds=ds,
                n_rows=x.n_rows,
                n_cols=x.n_cols,
            )
        )
        self._codes = (x, qs, ds)
        return qs, ds

    def _changed(self, x: Rows) -> None:
        """Forget codes of rows that an op changes in place."""
        if self._codes is not None and self._codes[0].address == x.address:
            self._codes = None

    def _place(self, layer: int, batch: Batch) -> records.KvPlace:
        layout = self._kv.layout
        if not 0 <= layer < layout.n_layers:
            raise ValueError(f"There is no K/V layer {layer}; there are {layout.n_layers}.")
        return records.KvPlace(
            cells=self._kv.layer_address(layer),
            tables=int(self._kv.tables.ctypes.data),
            lanes=batch.lanes.address,
            positions=batch.positions.address,
            n_table=layout.n_table,
            chunk_cells=layout.chunk_cells,
            chunk_bytes=layout.chunk_bytes,
            v_offset_bytes=layout.part_bytes,
        )

    def _state(self, state: State, batch: Batch) -> StatePlace:
        states = self._memory.states
        return StatePlace(
            states=states.address(state),
            lanes=batch.lanes.address,
            lane_bytes=states.lane_bytes,
        )


def is_alike(x: Rows, y: Rows) -> bool:
    """Return whether two handles have the same shape."""
    return (x.n_rows, x.n_cols) == (y.n_rows, y.n_cols)


def check_shapes(is_right: bool, op: str, left: object, right: object) -> None:  # noqa: FBT001
    """Raise for a model that calls an op with shapes that do not fit."""
    if not is_right:
        raise ValueError(f"{op} was called with shapes that do not fit: {left} and {right}.")
