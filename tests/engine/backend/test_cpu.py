"""Steps on the CPU: the same bits for any spans, lanes, tables and threads; copies; refusals."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from engine.backend import cpu
from engine.backend.base import Backend
from engine.backend.cpu import CpuBackend
from engine.config import BackendConfig
from engine.errors import DeviceError
from engine.gguf.reader import GGUFModel, open_model
from engine.stats import LoadProgress
from engine.step import CellCopy, ChunkId, LaneId, Span, StepPlan
from kernels.quants import QuantType
from tests.builders import make_tiny_llama

Array = npt.NDArray[Any]

N_IDS = 100
IDS = np.random.default_rng(4).integers(0, 350, (4, N_IDS)).astype(np.int32)


@pytest.fixture(scope="module", params=[QuantType.Q4_1, QuantType.F16], ids=lambda q: q.name)
def model(request: pytest.FixtureRequest, tmp_path_factory: Any) -> Iterator[GGUFModel]:
    path = tmp_path_factory.mktemp("models") / "tiny.gguf"
    make_tiny_llama(path, quant=request.param, is_tied=True)
    with open_model(path) as opened:
        yield opened


def make_backend(model: GGUFModel, **changes: Any) -> CpuBackend:
    n_threads = changes.pop("n_threads", 2)
    sizes: dict[str, Any] = {
        "n_lanes": 4,
        "context_tokens": 128,
        "n_chunks": 16,
        "chunk_cells": 32,
        "is_pooled": False,
    }
    return CpuBackend(model, BackendConfig(n_threads=n_threads), **(sizes | changes))


def span(lane: int, start: int, stop: int, *, wants_logits: bool = True) -> Span:
    ids = IDS[lane, start:stop]
    return Span(lane=LaneId(lane), start=start, ids=ids, wants_logits=wants_logits)


def read_in_spans(backend: CpuBackend, lane: int, n_tokens: int) -> Array:
    """Return logits of the last id after reading a lane's ids in spans of n_tokens."""
    result: Array | None = None
    for start in range(0, N_IDS, n_tokens):
        plan = StepPlan(step_id=start, spans=(span(lane, start, min(start + n_tokens, N_IDS)),))
        result = backend.run(plan).logits[LaneId(lane)]
    assert result is not None
    return result


@pytest.fixture(scope="module")
def alone(model: GGUFModel) -> list[Array]:
    """Logits of each lane's last id, read alone in one span by one thread."""
    results = []
    for lane in range(4):
        backend = make_backend(model, n_threads=1)
        results.append(read_in_spans(backend, lane, N_IDS))
        backend.close()
    return results


@pytest.mark.parametrize("n_tokens", [1, 7, 64])
@pytest.mark.parametrize("n_threads", [1, 3])
def test_any_cut_of_a_prompt_gives_the_same_bits(
    model: GGUFModel, alone: list[Array], n_tokens: int, n_threads: int
) -> None:
    backend = make_backend(model, n_threads=n_threads)
    assert np.array_equal(read_in_spans(backend, 2, n_tokens), alone[2])
    backend.close()


def test_four_lanes_at_once_give_the_bits_of_each_alone(
    model: GGUFModel, alone: list[Array]
) -> None:
    backend = make_backend(model)
    starts = [0, 0, 0, 0]
    strides = [40, 13, 1, 31]  # each lane at its own pace, decode beside prefill
    step_id = 0
    while any(start < N_IDS for start in starts):
        spans = tuple(
            span(lane, start, min(start + stride, N_IDS))
            for lane, (start, stride) in enumerate(zip(starts, strides, strict=True))
            if start < N_IDS
        )
        result = backend.run(StepPlan(step_id=step_id, spans=spans))
        assert result.step_id == step_id
        for part in spans:
            starts[part.lane] = part.stop
            if part.stop == N_IDS:
                assert np.array_equal(result.logits[part.lane], alone[part.lane])
        step_id += 1
    backend.close()


def test_scrambled_chunks_give_the_bits_of_the_identity_layout(
    model: GGUFModel, alone: list[Array]
) -> None:
    backend = make_backend(model, is_pooled=True, chunk_cells=8, n_chunks=64)
    order = np.random.default_rng(9).permutation(64).astype(np.int32)
    tables = {LaneId(lane): order[16 * lane : 16 * lane + 16] for lane in range(4)}
    backend.run(
        StepPlan(step_id=0, tables=tables, spans=tuple(span(lane, 0, 50) for lane in range(4)))
    )
    result = backend.run(
        StepPlan(step_id=1, spans=tuple(span(lane, 50, N_IDS) for lane in range(4)))
    )
    for lane in range(4):
        assert np.array_equal(result.logits[LaneId(lane)], alone[lane])
    backend.close()


def test_tables_move_a_conversation_to_another_lane(model: GGUFModel, alone: list[Array]) -> None:
    backend = make_backend(model, is_pooled=True, chunk_cells=32, n_chunks=8)
    trash = 8
    first = np.array([5, 2, trash, trash], np.int32)
    backend.run(StepPlan(step_id=0, tables={LaneId(1): first}, spans=(span(1, 0, 60),)))
    moved = np.array([5, 2, 7, 0], np.int32)
    nothing = np.full(4, trash, np.int32)
    rest = Span(lane=LaneId(3), start=60, ids=IDS[1, 60:], wants_logits=True)
    result = backend.run(
        StepPlan(step_id=1, tables={LaneId(3): moved, LaneId(1): nothing}, spans=(rest,))
    )
    assert np.array_equal(result.logits[LaneId(3)], alone[1])
    backend.close()


def test_copied_cells_continue_like_the_original(model: GGUFModel, alone: list[Array]) -> None:
    backend = make_backend(model, is_pooled=True, chunk_cells=64, n_chunks=5)
    own = np.array([0, 1], np.int32)
    backend.run(StepPlan(step_id=0, tables={LaneId(0): own}, spans=(span(0, 0, 90),)))
    # Lane 1 shares chunk 0 and gets the first 20 cells of chunk 1: it knows 84 ids of lane 0.
    copy = CellCopy(source=ChunkId(1), target=ChunkId(4), n_cells=20)
    shared = np.array([0, 4], np.int32)
    rest = Span(lane=LaneId(1), start=84, ids=IDS[0, 84:], wants_logits=True)
    result = backend.run(
        StepPlan(step_id=1, copies=(copy,), tables={LaneId(1): shared}, spans=(rest,))
    )
    assert np.array_equal(result.logits[LaneId(1)], alone[0])
    assert result.copied_bytes == 20 * backend.kv_bytes_per_cell
    backend.close()


def test_logits_come_only_for_spans_that_want_them(model: GGUFModel, alone: list[Array]) -> None:
    backend = make_backend(model)
    result = backend.run(
        StepPlan(
            step_id=0, spans=(span(0, 0, 50, wants_logits=False), span(1, 0, N_IDS), span(2, 0, 5))
        )
    )
    assert set(result.logits) == {1, 2}
    assert np.array_equal(result.logits[LaneId(1)], alone[1])
    result = backend.run(StepPlan(step_id=1, spans=(span(0, 50, 99, wants_logits=False),)))
    assert result.logits == {}
    result = backend.run(StepPlan(step_id=2, spans=(span(0, 99, 100),)))
    assert np.array_equal(result.logits[LaneId(0)], alone[0])
    assert backend.run(StepPlan(step_id=3)).logits == {}
    backend.close()


def test_more_rows_than_a_batch_holds_give_the_same_bits(
    model: GGUFModel, alone: list[Array], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu, "MOST_ROWS", 33)
    backend = make_backend(model)
    result = backend.run(StepPlan(step_id=0, spans=tuple(span(i, 0, N_IDS) for i in range(4))))
    for lane in range(4):
        assert np.array_equal(result.logits[LaneId(lane)], alone[lane])
    backend.close()


def test_a_result_stays_as_it_is_after_later_steps(model: GGUFModel, alone: list[Array]) -> None:
    backend = make_backend(model)
    kept = read_in_spans(backend, 0, N_IDS)
    read_in_spans(backend, 1, 64)
    assert np.array_equal(kept, alone[0])
    backend.close()


def test_every_position_predicts_what_it_predicts_alone(model: GGUFModel) -> None:
    backend = make_backend(model)
    logits, best = backend.read_span(span(0, 0, N_IDS))
    assert len(best) == N_IDS
    assert int(logits.argmax()) == best[-1]
    other = make_backend(model)
    for at in range(20):
        one = other.run(StepPlan(step_id=at, spans=(span(0, at, at + 1),))).logits[LaneId(0)]
        assert int(one.argmax()) == best[at]
    backend.close()
    other.close()


@pytest.mark.parametrize(
    ("plan", "text"),
    [
        (StepPlan(step_id=7, spans=(span(0, 0, 5), span(3, 99, 100))), None),
        (
            StepPlan(
                step_id=7,
                spans=(Span(lane=LaneId(4), start=0, ids=IDS[0], wants_logits=True),),
            ),
            "no lane 4",
        ),
        (
            StepPlan(
                step_id=7,
                spans=(Span(lane=LaneId(0), start=29, ids=IDS[0], wants_logits=True),),
            ),
            "positions 29 to 128",
        ),
        (
            StepPlan(
                step_id=7,
                spans=(
                    Span(lane=LaneId(0), start=0, ids=np.array([352], np.int32), wants_logits=True),
                ),
            ),
            "vocabulary of 352",
        ),
        (StepPlan(step_id=7, spans=(span(0, 3, 3),)), "empty"),
        (
            StepPlan(
                step_id=7, copies=(CellCopy(source=ChunkId(0), target=ChunkId(17), n_cells=1),)
            ),
            "chunk 0 to 17",
        ),
        (
            StepPlan(
                step_id=7, copies=(CellCopy(source=ChunkId(0), target=ChunkId(1), n_cells=33),)
            ),
            "33 cells",
        ),
        (
            StepPlan(step_id=7, tables={LaneId(0): np.array([0, 1, 2, 17], np.int32)}),
            "chunk 0 or 17",
        ),
        (StepPlan(step_id=7, tables={LaneId(0): np.array([0], np.int32)}), "entries"),
    ],
)
def test_plans_outside_the_storage_are_refused(
    model: GGUFModel, plan: StepPlan, text: str | None
) -> None:
    backend = make_backend(model)
    if text is None:
        backend.run(plan)
    else:
        with pytest.raises(DeviceError, match=f"Step 7.*{text}"):
            backend.run(plan)
    backend.close()


def test_a_closed_backend_says_so_and_closes_twice(model: GGUFModel) -> None:
    backend = make_backend(model)
    backend.close()
    backend.close()
    with pytest.raises(DeviceError, match="stopped"):
        backend.run(StepPlan(step_id=0, spans=(span(0, 0, 5),)))


def test_identity_layout_needs_chunks_for_every_lane(model: GGUFModel) -> None:
    with pytest.raises(ValueError, match="16 chunks of 32 cells, got 15"):
        make_backend(model, n_chunks=15)


def test_loading_tells_progress_up_to_the_end(model: GGUFModel) -> None:
    told: list[LoadProgress] = []
    backend = make_backend(model, on_progress=told.append)
    assert told[-1].done_bytes == told[-1].total_bytes > 0
    assert [p.done_bytes for p in told] == sorted(p.done_bytes for p in told)
    backend.close()


def test_it_offers_what_the_protocol_says(model: GGUFModel) -> None:
    backend = make_backend(model)
    protocol: Backend = backend
    assert protocol.name == "cpu"
    assert protocol.n_threads == 2
    assert protocol.kv_bytes_per_cell == backend.spec.kv_values_per_token * 2
    backend.close()


def test_exact_cells_are_float32(tmp_path: Path) -> None:
    with open_model(make_tiny_llama(tmp_path / "tiny.gguf")) as opened:
        backend = CpuBackend(
            opened,
            BackendConfig(n_threads=1, is_exact=True),
            n_lanes=1,
            context_tokens=16,
            n_chunks=1,
            chunk_cells=16,
            is_pooled=False,
        )
        assert backend.kv_bytes_per_cell == backend.spec.kv_values_per_token * 4
        backend.close()
