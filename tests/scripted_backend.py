"""A backend without a model, for tests of everything above the arithmetic.

It keeps the token id of every cell in chunk storage and makes the logits of a position from a hash
of ALL cells 0..p of the lane, read back through the chunk tables. So a wrong table, a missing copy
or an overwritten cell changes the text, as it would with a model.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.memory.chunks import PoolShape
from engine.step import LaneId, Logits, StepPlan, StepResult

EMPTY = -1
"""Id in cells never written."""


@dataclass(frozen=True)
class ScriptedSpec:
    """The part of a model's spec that others look at."""

    n_vocab: int = 64
    n_layers: int = 1
    context_tokens: int = 256
    architecture: str = "scripted"


class ScriptedBackend:
    """Runs step plans over ids instead of K/V.

    Args:
        spec: anything with `n_vocab`.
        shape: sizes of the storage.
        delay_s: time each step takes at least.
        next_id: what a lane says after the ids it has read back; None = drawn from their hash.
        before_step: called with every plan before it is run (a gate, or a fault to raise).
    """

    name = "scripted"
    n_threads = 1

    def __init__(
        self,
        spec: Any,
        *,
        shape: PoolShape,
        delay_s: float = 0.0,
        next_id: Callable[[npt.NDArray[np.int32]], int] | None = None,
        before_step: Callable[[StepPlan], None] | None = None,
        kv_bytes_per_cell: int = 4,
    ) -> None:
        self.spec = spec
        self.shape = shape
        self.kv_bytes_per_cell = kv_bytes_per_cell
        self.plans: list[StepPlan] = []
        self.is_closed = False
        self._delay_s = delay_s
        self._next_id = next_id
        self._before_step = before_step
        self._cells = np.full((shape.n_chunks + 1, shape.chunk_cells), EMPTY, np.int32)
        if shape.is_pooled:
            self._tables = np.full((shape.n_lanes, shape.n_table), shape.trash, np.int32)
        else:
            self._tables = np.arange(shape.n_chunks, dtype=np.int32).reshape(shape.n_lanes, -1)

    def run(self, plan: StepPlan) -> StepResult:
        """Copy, update tables, write every span, then read back and answer."""
        if self.is_closed:
            raise RuntimeError("the scripted backend is closed")
        begin = time.perf_counter()
        if self._before_step is not None:
            self._before_step(plan)
        self.plans.append(plan)
        for copy in plan.copies:
            self._cells[copy.target, : copy.n_cells] = self._cells[copy.source, : copy.n_cells]
        if plan.tables and not self.shape.is_pooled:
            raise ValueError(f"step {plan.step_id} has tables, but there is no pool")
        for lane, table in plan.tables.items():
            self._tables[lane] = table
        for span in plan.spans:
            self._write(span.lane, span.start, span.ids)
        logits: dict[LaneId, Logits] = {
            span.lane: self._logits(self.read(span.lane, span.stop))
            for span in plan.spans
            if span.wants_logits
        }
        if self._delay_s:
            time.sleep(self._delay_s)
        return StepResult(
            step_id=plan.step_id,
            logits=logits,
            elapsed_s=time.perf_counter() - begin,
            copied_bytes=sum(copy.n_cells for copy in plan.copies) * self.kv_bytes_per_cell,
        )

    def close(self) -> None:
        """Take no more plans."""
        self.is_closed = True

    def read(self, lane: int, n_cells: int) -> npt.NDArray[np.int32]:
        """The ids of the lane's first cells, read through its table."""
        return self._cells[self._tables[lane]].reshape(-1)[:n_cells]

    def _write(self, lane: int, start: int, ids: npt.NDArray[np.int32]) -> None:
        positions = np.arange(start, start + len(ids))
        chunks = self._tables[lane][positions // self.shape.chunk_cells]
        self._cells[chunks, positions % self.shape.chunk_cells] = ids

    def _logits(self, ids: npt.NDArray[np.int32]) -> Logits:
        n_vocab = int(self.spec.n_vocab)
        if self._next_id is not None:
            logits = np.zeros(n_vocab, np.float32)
            logits[self._next_id(ids)] = 20.0
            return logits
        digest = hashlib.blake2b(ids.tobytes(), digest_size=8).digest()
        draw = np.random.default_rng(int.from_bytes(digest, "little"))
        return draw.standard_normal(n_vocab, np.float32)


END_ID = 0
"""The token that ends an answer of `LetterTokenizer`."""

LETTERS = "".join(chr(code) for code in range(0x41, 0x41 + 64))
"""Text of the ids 0..63, one character each."""


class LetterTokenizer:
    """One character a token: enough of a tokenizer for the real `TextAssembler`."""

    end_ids = frozenset({END_ID})
    adds_space_prefix = False

    def token_bytes(self, token_id: int, *, keep_special: bool = False) -> bytes:
        return LETTERS[token_id % len(LETTERS)].encode()
