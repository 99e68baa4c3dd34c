"""The CPU backend: runs step plans with the native kernels, any number of lanes at once.

All spans of a step are joined to one batch. Ops are left to `engine.backend.cpu_ops` and
its neighbours, what a model computes to `engine.models`.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import psutil

from engine.backend.cpu_ops import check_weights
from engine.backend.cpu_sparse_ops import CpuOps
from engine.backend.cpu_tape import Arena, Note, TapeMemory
from engine.backend.lane_states import LaneStates
from engine.config import BackendConfig
from engine.errors import ConfigError, DeviceError
from engine.gguf.reader import GGUFModel
from engine.memory.kv_pool import KvLayout, KvStorage
from engine.models.registry import build_model
from engine.models.spec import ModelSpec
from engine.ops import Batch, Ids, LongIds, Rows
from engine.stats import LoadProgress
from engine.step import LaneId, Logits, Span, StepPlan, StepResult
from kernels.cpu.library import Level, Team, load_library, make_tape
from kernels.cpu.records import OP_BYTES
from kernels.errors import KernelError

_log = logging.getLogger(__name__)

MOST_ROWS = 512
"""Rows of a batch; a step with more is run in several batches, with the same results."""
MOST_TAPES = 64
"""Tapes kept; each is for one number of rows and of wanted rows."""
TOUCH_BYTES = 4 << 20
"""Weights are read from the disk in steps of this many bytes, each told as progress."""
PAGE_BYTES = 4096

Watch = Callable[[str, int, tuple[npt.NDArray[Any], ...]], None]
"""Sees values of a model: name, layer, arrays."""


@dataclass(frozen=True, slots=True)
class _Tape:
    """A recorded batch: what to run, and where its results then lie."""

    code: bytes
    logits: Rows
    best: Ids
    notes: tuple[Note, ...]


class CpuBackend:
    """A model on the CPU.

    Attributes:
        spec: dims of the model.
        kv_bytes_per_cell: K, V and index keys of all layers for one position.
        state_bytes_per_lane: recurrent state of a lane; 0 if there is none.
        name: "cpu".
        n_threads: threads, the caller's included.
        level: instructions in use.
    """

    def __init__(
        self,
        model: GGUFModel,
        config: BackendConfig,
        *,
        n_lanes: int,
        context_tokens: int,
        n_chunks: int,
        chunk_cells: int,
        is_pooled: bool,
        on_progress: Callable[[LoadProgress], None] | None = None,
        level: Level | None = None,
    ) -> None:
        """Take the weights from an open file and start the threads.

        Args:
            model: stays open, and mapped, as long as the backend lives.
            config: threads and exactness.
            n_lanes: lanes that plans may name.
            context_tokens: positions a lane can have.
            n_chunks: chunks of K/V cells, the trash chunk not counted.
            chunk_cells: cells a chunk.
            is_pooled: lanes hold chunks by tables that plans bring; else each has its own.
            on_progress: called while weights are read.
            level: instructions to use; None = the best there are.

        Raises:
            UnsupportedModelError, GGUFFormatError: the file cannot be run.
            ConfigError: a chunk is no whole number of the model's pages.
            MemoryBudgetError: no room for the K/V cells.
            DeviceError: the kernels are not built or cannot be started.
        """
        self.name = "cpu"
        self.n_threads = config.n_threads or _physical_cores()
        n_table = -(-context_tokens // chunk_cells)
        if not is_pooled and n_chunks < n_lanes * n_table:
            raise ValueError(
                f"Without a pool {n_lanes} lanes of {context_tokens} tokens need "
                f"{n_lanes * n_table} chunks of {chunk_cells} cells, got {n_chunks}."
            )
        self._file = model
        self._model = build_model(model)
        self.spec = self._model.spec
        _check_pages(self.spec, chunk_cells)
        self._context_tokens = context_tokens
        self._is_exact = config.is_exact
        layout = KvLayout(
            n_layers=self.spec.n_kv_layers,
            kv_dim=self.spec.kv_dim,
            value_bytes=4 if config.is_exact else 2,
            chunk_cells=chunk_cells,
            n_chunks=n_chunks,
            n_lanes=n_lanes,
            n_table=n_table,
            **_index_sizes(self.spec),
        )
        self.kv_bytes_per_cell = layout.chunk_bytes // chunk_cells
        self.state_bytes_per_lane = self.spec.state_bytes
        self._kv = KvStorage(layout, is_pooled=is_pooled)
        self._states = LaneStates(n_lanes=n_lanes, n_values=self.spec.state_values)
        self._inputs = np.zeros((4, MOST_ROWS), np.int32)
        self._watch: Watch | None = None
        self._tapes: OrderedDict[tuple[int, int, bool], _Tape] = OrderedDict()
        self._memory = np.empty(0, np.uint8)
        self._expert_counts = np.zeros((self.spec.n_layers, self.spec.n_experts), np.int64)
        with ExitStack() as undo:
            try:
                self._team = Team(load_library(), self.n_threads, level=level)
            except KernelError as fault:
                raise DeviceError(str(fault)) from fault
            undo.callback(self._team.close)
            self.level = self._team.level
            check_weights(self._team, self._model.weights)
            self._read_weights(on_progress)
            undo.pop_all()

    def run(self, plan: StepPlan) -> StepResult:
        """Do a step, in the order that `StepPlan` says.

        Raises:
            DeviceError: the plan names lanes, positions, ids or snapshots that do not exist, or a
                lane's recurrent state stands elsewhere than where its span starts.
        """
        started = time.perf_counter()
        try:
            copied_bytes = sum(self._kv.copy_cells(copy) for copy in plan.copies)
            for lane, table in plan.tables.items():
                self._kv.write_table(lane, table)
            for op in plan.state_ops:
                self._states.apply(op)
            for span in plan.spans:
                self._check_span(span)
            _check_lanes(plan.spans)
            logits, _ = self._run_spans(plan.spans, wants_best=False)
            for save in plan.saves:
                self._states.apply(save)
        except (ValueError, KernelError) as fault:
            raise DeviceError(f"Step {plan.step_id} cannot be run: {fault}") from fault
        return StepResult(
            step_id=plan.step_id,
            logits=logits,
            elapsed_s=time.perf_counter() - started,
            copied_bytes=copied_bytes,
        )

    def read_span(self, span: Span) -> tuple[Logits, npt.NDArray[np.int32]]:
        """Read one span and return what every position of it predicts, for comparisons.

        Returns:
            Logits of the last position, and the id with the largest logit at each.

        Raises:
            DeviceError: the span names lanes, positions or ids that do not exist.

        Shapes:
            result: f32[n_vocab], i32[n_tokens].
        """
        try:
            self._check_span(span)
            logits, best = self._run_spans((span,), wants_best=True)
        except (ValueError, KernelError) as fault:
            raise DeviceError(f"A span cannot be read: {fault}") from fault
        return logits[span.lane], best

    def expert_counts(self) -> npt.NDArray[np.int64] | None:
        """Return how often each expert was picked since the model was loaded, or None without any.

        Shapes:
            result: i64[n_layers, n_experts], a copy.
        """
        return self._expert_counts.copy() if self.spec.n_experts else None

    def watch(self, watch: Watch | None) -> None:
        """Show every value that the model notes to a function, from now on; for tests.

        It is called with name, layer and copies of the value's arrays. Steps then run in pieces.
        """
        self._watch = watch

    def close(self) -> None:
        """Stop the threads and let memory go. A second call does nothing."""
        self._team.close()
        self._tapes.clear()
        self._memory = np.empty(0, np.uint8)

    def _run_spans(
        self, spans: Sequence[Span], *, wants_best: bool
    ) -> tuple[dict[LaneId, Logits], npt.NDArray[np.int32]]:
        """Join spans to batches, in order, and run them."""
        for span in spans:
            self._states.begin(span)
        logits: dict[LaneId, Logits] = {}
        best: list[npt.NDArray[np.int32]] = []
        n_rows = 0
        wanted: list[tuple[int, LaneId | None]] = []

        def run_batch() -> None:
            nonlocal n_rows
            if n_rows:
                tape = self._run_batch(n_rows, len(wanted), wants_best=wants_best)
                for i, (_, lane) in enumerate(wanted):
                    if lane is not None:
                        logits[lane] = self._floats(tape.logits)[i].copy()
                if wants_best:
                    best.append(self._ints(tape.best).copy())
            n_rows = 0
            wanted.clear()

        ids, positions, lanes, wanted_rows = self._inputs
        for span in spans:
            done, n_tokens = 0, len(span.ids)
            while done < n_tokens:
                n = min(n_tokens - done, MOST_ROWS - n_rows)
                rows = slice(n_rows, n_rows + n)
                ids[rows] = span.ids[done : done + n]
                positions[rows] = np.arange(span.start + done, span.start + done + n)
                lanes[rows] = span.lane
                is_last = done + n == n_tokens
                for row in range(n_rows if wants_best else n_rows + n - 1, n_rows + n):
                    has_logits = span.wants_logits and is_last and row == n_rows + n - 1
                    if has_logits or wants_best:
                        wanted_rows[len(wanted)] = row
                        wanted.append((row, span.lane if has_logits else None))
                done += n
                n_rows += n
                if n_rows == MOST_ROWS:
                    run_batch()
        run_batch()
        for span in spans:
            self._states.end(span)
        return logits, np.concatenate(best) if best else np.empty(0, np.int32)

    def _run_batch(self, n_rows: int, n_wanted: int, *, wants_best: bool) -> _Tape:
        """Run the model over the rows that lie in the inputs."""
        key = (n_rows, n_wanted, wants_best)
        tape = self._tapes.get(key)
        if tape is None:
            tape = self._record(n_rows, n_wanted, wants_best=wants_best)
            self._tapes[key] = tape
            if len(self._tapes) > MOST_TAPES:
                self._tapes.popitem(last=False)
        else:
            self._tapes.move_to_end(key)
        done = 0
        for note in tape.notes if self._watch is not None else ():
            stop = note.n_records * OP_BYTES
            self._team.run(tape.code[done:stop])
            self._show(note)
            done = stop
        self._team.run(tape.code[done:] if done else tape.code)
        return tape

    def _show(self, note: Note) -> None:
        """Give a noted value to whoever watches."""
        value = note.value
        if isinstance(value, Rows):
            shown: tuple[npt.NDArray[Any], ...] = (self._floats(value).copy(),)
        elif isinstance(value, LongIds):
            shown = (self._at(value.address, 8 * value.n).view(np.int64).copy(),)
        else:
            shown = (self._ints(value.pages).copy(), self._ints(value.lasts).copy())
        if self._watch is not None:
            self._watch(note.name, note.layer, shown)

    def _record(self, n_rows: int, n_wanted: int, *, wants_best: bool) -> _Tape:
        """Record a batch; a second time in larger memory when it does not fit."""
        for _ in range(2):
            base = -(-int(self._memory.ctypes.data) // 64) * 64
            arena = Arena(base)
            memory = TapeMemory(self._kv, self._states, int(self._expert_counts.ctypes.data))
            ops = CpuOps(self._team, memory, arena, is_exact=self._is_exact)
            at = int(self._inputs.ctypes.data)
            row_bytes = self._inputs.strides[0]
            batch = Batch(
                ids=Ids(at, n_rows),
                positions=Ids(at + row_bytes, n_rows),
                lanes=Ids(at + 2 * row_bytes, n_rows),
                wanted=Ids(at + 3 * row_bytes, n_wanted),
            )
            logits = self._model.forward(ops, batch)
            best = ops.argmax(logits) if wants_best else Ids(base, 0)
            if base + arena.peak_bytes <= int(self._memory.ctypes.data) + len(self._memory):
                return _Tape(make_tape(ops.recorded), logits, best, tuple(ops.notes))
            self._tapes.clear()  # they name the old memory
            self._memory = np.empty(arena.peak_bytes + 64, np.uint8)
            _log.debug("working memory is now %d bytes", arena.peak_bytes)
        raise AssertionError("a batch needs the same memory each time it is recorded")

    def _floats(self, rows: Rows) -> npt.NDArray[np.float32]:
        values = self._at(rows.address, 4 * rows.n_rows * rows.n_cols).view(np.float32)
        return values.reshape(rows.n_rows, rows.n_cols)

    def _ints(self, ids: Ids) -> npt.NDArray[np.int32]:
        return self._at(ids.address, 4 * ids.n).view(np.int32)

    def _at(self, address: int, n_bytes: int) -> npt.NDArray[np.uint8]:
        start = address - int(self._memory.ctypes.data)
        return self._memory[start : start + n_bytes]

    def _check_span(self, span: Span) -> None:
        layout = self._kv.layout
        if not 0 <= span.lane < layout.n_lanes:
            raise ValueError(f"there is no lane {span.lane}; there are {layout.n_lanes}.")
        if len(span.ids) == 0:
            raise ValueError(f"the span of lane {span.lane} is empty.")
        if span.start < 0 or span.stop > self._context_tokens:
            raise ValueError(
                f"positions {span.start} to {span.stop - 1} of lane {span.lane} are outside the "
                f"context of {self._context_tokens} tokens."
            )
        if int(span.ids.min()) < 0 or int(span.ids.max()) >= self.spec.n_vocab:
            raise ValueError(
                f"a token id of lane {span.lane} is outside the vocabulary of "
                f"{self.spec.n_vocab}: {int(span.ids.min())} or {int(span.ids.max())}."
            )

    def _read_weights(self, on_progress: Callable[[LoadProgress], None] | None) -> None:
        """Touch every page of the weights, so that the first request does not wait for the disk.

        Tables of which a step reads a few rows stay in the file.
        """
        weights = [weight for weight in self._model.weights if not weight.is_streamed]
        total = sum(weight.blocks.nbytes for weight in weights)
        done, told = 0, -1
        for weight in weights:
            for start in range(0, weight.blocks.nbytes, TOUCH_BYTES):
                part = weight.blocks[start : start + TOUCH_BYTES]
                int(part[::PAGE_BYTES].max())
                done += part.nbytes
                if on_progress is not None and (done - told >= TOUCH_BYTES or done == total):
                    on_progress(
                        LoadProgress(stage="Reading weights", done_bytes=done, total_bytes=total)
                    )
                    told = done


def _check_pages(spec: ModelSpec, chunk_cells: int) -> None:
    if spec.index is not None and chunk_cells % spec.index.page_cells:
        raise ConfigError(
            f"--kv-chunk-cells must be a multiple of {spec.index.page_cells} for this model, whose "
            f"sparse attention has pages of {spec.index.page_cells} cells; got {chunk_cells}."
        )


def _check_lanes(spans: Sequence[Span]) -> None:
    """Raise for two spans of the same lane: their order would not be the order of their rows."""
    lanes = [span.lane for span in spans]
    for lane in lanes:
        if lanes.count(lane) > 1:
            raise ValueError(f"lane {lane} has two spans.")


def _index_sizes(spec: ModelSpec) -> dict[str, int]:
    """Return what the K/V layout must know of the sparse attention's index."""
    if spec.index is None:
        return {}
    return {
        "n_index_layers": spec.index.n_layers,
        "index_dim": spec.index.key_dim,
        "page_cells": spec.index.page_cells,
    }


def _physical_cores() -> int:
    return psutil.cpu_count(logical=False) or psutil.cpu_count() or 1
