"""The CPU backend: runs step plans with the native kernels, any number of lanes at once.

All spans of a step are joined to one batch. Ops are left to `engine.backend.cpu_ops`, what a model
computes to `engine.models`.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import psutil

from engine.backend.cpu_ops import Arena, CpuOps, check_weights
from engine.config import BackendConfig
from engine.errors import DeviceError
from engine.gguf.reader import GGUFModel
from engine.memory.kv_pool import KvLayout, KvStorage
from engine.models.registry import build_model
from engine.ops import Batch, Ids, Rows
from engine.stats import LoadProgress
from engine.step import LaneId, Logits, Span, StepPlan, StepResult
from kernels.cpu.library import Level, Team, load_library, make_tape
from kernels.errors import KernelError

_log = logging.getLogger(__name__)

MOST_ROWS = 512
"""Rows of a batch; a step with more is run in several batches, with the same results."""
MOST_TAPES = 64
"""Tapes kept; each is for one number of rows and of wanted rows."""
TOUCH_BYTES = 4 << 20
"""Weights are read from the disk in steps of this many bytes, each told as progress."""
PAGE_BYTES = 4096


@dataclass(frozen=True, slots=True)
class _Tape:
    """A recorded batch: what to run, and where its results then lie."""

    code: bytes
    logits: Rows
    best: Ids


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
        )
        self.kv_bytes_per_cell = layout.chunk_bytes // chunk_cells
        self.state_bytes_per_lane = self.spec.state_bytes
        self._kv = KvStorage(layout, is_pooled=is_pooled)
        self._inputs = np.zeros((4, MOST_ROWS), np.int32)
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
        """Do a step: copies, then tables, then spans.

        Raises:
            DeviceError: the plan names lanes, positions or ids that do not exist.
        """
        started = time.perf_counter()
        try:
            copied_bytes = sum(self._kv.copy_cells(copy) for copy in plan.copies)
            for lane, table in plan.tables.items():
                self._kv.write_table(lane, table)
            for span in plan.spans:
                self._check_span(span)
            logits, _ = self._run_spans(plan.spans, wants_best=False)
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

    def close(self) -> None:
        """Stop the threads and let memory go. A second call does nothing."""
        self._team.close()
        self._tapes.clear()
        self._memory = np.empty(0, np.uint8)

    def _run_spans(
        self, spans: Sequence[Span], *, wants_best: bool
    ) -> tuple[dict[LaneId, Logits], npt.NDArray[np.int32]]:
        """Join spans to batches, in order, and run them."""
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
        self._team.run(tape.code)
        return tape

    def _record(self, n_rows: int, n_wanted: int, *, wants_best: bool) -> _Tape:
        """Record a batch; a second time in larger memory when it does not fit."""
        for _ in range(2):
            base = -(-int(self._memory.ctypes.data) // 64) * 64
            arena = Arena(base)
            ops = CpuOps(self._team, self._kv, arena, is_exact=self._is_exact)
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
                return _Tape(make_tape(ops.recorded), logits, best)
            self._tapes.clear()  # they name the old memory
            self._memory = np.empty(arena.peak_bytes + 64, np.uint8)
            _log.debug("working memory is now %d bytes", arena.peak_bytes)
        raise AssertionError("a batch needs the same memory each time it is recorded")

    def _floats(self, rows: Rows) -> npt.NDArray[np.float32]:
        start = rows.address - int(self._memory.ctypes.data)
        values = self._memory[start : start + 4 * rows.n_rows * rows.n_cols].view(np.float32)
        return values.reshape(rows.n_rows, rows.n_cols)

    def _ints(self, ids: Ids) -> npt.NDArray[np.int32]:
        start = ids.address - int(self._memory.ctypes.data)
        return self._memory[start : start + 4 * ids.n].view(np.int32)

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
        """Touch every page of the weights, so that the first request does not wait for the disk."""
        weights = self._model.weights
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


def _physical_cores() -> int:
    return psutil.cpu_count(logical=False) or psutil.cpu_count() or 1
