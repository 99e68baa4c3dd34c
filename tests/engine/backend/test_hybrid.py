"""Hybrid models on the CPU: the same bits for any cut, lanes, tables and states kept in between."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from engine.backend import cpu
from engine.backend.base import Backend
from engine.backend.cpu import CpuBackend
from engine.errors import ConfigError, DeviceError
from engine.step import (
    CellCopy,
    ChunkId,
    DropState,
    LaneId,
    LoadState,
    SaveState,
    SnapshotId,
    Span,
    StepPlan,
    SwapState,
)
from tests.engine.models.goldens import COMMITTED, one_span, open_backend, read

Array = npt.NDArray[Any]

N_IDS = 700
FILES = ["qwen4exp-t-f16", "qwen4exp-q-iq2_xs", "qwen35moe-t-f16-fused", "qwen3next-t-bf16"]
STATELESS = "qwen3moe-q-iq3_s"


def make_ids(lane: int = 0, n_ids: int = N_IDS) -> Array:
    """Ids with an end-of-text here and there, so that n-grams are cut."""
    rng = np.random.default_rng(40 + lane)
    ids = rng.integers(0, 2000, n_ids).astype(np.int32)
    ids[rng.integers(0, n_ids, 12)] = 2005
    return ids


@pytest.fixture(scope="module", params=FILES)
def path(request: pytest.FixtureRequest) -> Path:
    return COMMITTED / f"{request.param}.gguf"


@pytest.fixture(scope="module")
def wanted(path: Path) -> Array:
    """Logits of the last of N_IDS ids, read in one step by one thread."""
    with open_backend(path, n_threads=1) as backend:
        return read(backend, make_ids(), n_tokens=N_IDS)


@pytest.fixture
def backend(path: Path) -> Iterator[CpuBackend]:
    with open_backend(path, n_lanes=4, n_chunks=32) as opened:
        yield opened


@pytest.mark.parametrize("n_tokens", [1, 7, 64, 257])
def test_any_cut_of_a_prompt_gives_the_same_bits(
    backend: CpuBackend, wanted: Array, n_tokens: int
) -> None:
    assert np.array_equal(read(backend, make_ids(), lane=2, n_tokens=n_tokens), wanted)


def test_a_cut_changes_no_bit_on_the_exact_path(path: Path) -> None:
    with open_backend(path, is_exact=True) as backend:
        whole = read(backend, make_ids(), n_tokens=N_IDS)
        assert np.array_equal(read(backend, make_ids(), n_tokens=61), whole)


def test_a_lane_forgets_what_it_read_when_a_span_starts_at_0(
    backend: CpuBackend, wanted: Array
) -> None:
    read(backend, make_ids(lane=1))
    assert np.array_equal(read(backend, make_ids()), wanted)


def test_four_lanes_at_once_give_the_bits_of_each_alone(
    backend: CpuBackend, path: Path, wanted: Array
) -> None:
    ids = [make_ids(lane) for lane in range(4)]
    with open_backend(path) as other:
        alone = [wanted, *(read(other, ids[lane]) for lane in (1, 2, 3))]
    at, strides = [0] * 4, [300, 41, 5, 90]
    last: dict[int, Array] = {}
    for step_id in range(200):
        spans = tuple(
            one_span(lane, at[lane], ids[lane][at[lane] : at[lane] + strides[lane]])
            for lane in range(4)
            if at[lane] < N_IDS
        )
        result = backend.run(StepPlan(step_id=step_id, spans=spans))
        for span in spans:
            at[span.lane] = span.stop
            last[span.lane] = result.logits[span.lane]
        if not spans:
            break
    assert at == [N_IDS] * 4
    for lane in range(4):
        assert np.array_equal(last[lane], alone[lane])


def test_more_rows_than_a_batch_holds_give_the_same_bits(
    backend: CpuBackend, wanted: Array, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu, "MOST_ROWS", 33)
    spans = tuple(one_span(lane, 0, make_ids(lane)) for lane in (3, 0, 1))
    assert np.array_equal(backend.run(StepPlan(step_id=0, spans=spans)).logits[LaneId(0)], wanted)


def test_chunk_tables_give_the_bits_of_the_identity_layout(path: Path, wanted: Array) -> None:
    with open_backend(path, n_lanes=2, n_chunks=80, chunk_cells=32, is_pooled=True) as backend:
        table = np.full(32, 80, np.int32)
        table[:22] = np.random.default_rng(5).permutation(80)[:22]
        lane = LaneId(1)
        half = one_span(lane, 0, make_ids()[:333], wants_logits=False)
        backend.run(StepPlan(step_id=0, tables={lane: table}, spans=(half,)))
        rest = one_span(lane, 333, make_ids()[333:])
        result = backend.run(StepPlan(step_id=1, spans=(rest,)))
        assert np.array_equal(result.logits[lane], wanted)


def test_a_kept_state_continues_bit_for_bit(backend: CpuBackend, wanted: Array) -> None:
    ids, lane, kept = make_ids(), LaneId(0), SnapshotId(7)
    first = one_span(lane, 0, ids[:401], wants_logits=False)
    backend.run(StepPlan(step_id=0, spans=(first,), saves=(SaveState(lane=lane, snapshot=kept),)))
    for turn in range(2):  # once to see the rest, once more from the same snapshot
        if turn:
            load = LoadState(snapshot=kept, lane=lane)
            backend.run(StepPlan(step_id=2, state_ops=(load,)))
        result = backend.run(StepPlan(step_id=3, spans=(one_span(lane, 401, ids[401:]),)))
        assert np.array_equal(result.logits[lane], wanted)
    # Other cells were written behind position 401 meanwhile: they are overwritten again.
    other = np.concatenate([ids[:401], make_ids(lane=3)[:150]])
    load = LoadState(snapshot=kept, lane=lane)
    plan = StepPlan(step_id=4, state_ops=(load,), spans=(one_span(lane, 401, other[401:]),))
    edited = backend.run(plan).logits[lane]
    assert np.array_equal(read(backend, other, lane=1), edited)
    plan = StepPlan(step_id=5, state_ops=(load,), spans=(one_span(lane, 401, ids[401:]),))
    assert np.array_equal(backend.run(plan).logits[lane], wanted)


def test_a_state_saved_before_the_spans_of_its_step_is_the_old_one(
    backend: CpuBackend, wanted: Array
) -> None:
    ids, lane, kept = make_ids(), LaneId(2), SnapshotId(1)
    backend.run(StepPlan(step_id=0, spans=(one_span(lane, 0, ids[:98], wants_logits=False),)))
    save = SaveState(lane=lane, snapshot=kept)
    spans = (one_span(lane, 98, ids[98:200], wants_logits=False),)
    backend.run(StepPlan(step_id=1, state_ops=(save,), spans=spans))
    load = LoadState(snapshot=kept, lane=lane)
    plan = StepPlan(step_id=2, state_ops=(load,), spans=(one_span(lane, 98, ids[98:]),))
    assert np.array_equal(backend.run(plan).logits[lane], wanted)


def test_a_conversation_moves_to_another_lane_with_tables_and_state(
    path: Path, wanted: Array
) -> None:
    ids, a, b = make_ids(), LaneId(0), LaneId(1)
    with open_backend(path, n_lanes=2, n_chunks=24, chunk_cells=64, is_pooled=True) as backend:
        tables = {lane: np.full(16, 24, np.int32) for lane in (a, b)}
        tables[a][:12], tables[b][:2] = np.arange(12), [20, 21]
        spans = (one_span(a, 0, ids[:250], wants_logits=False), one_span(b, 0, ids[5:70]))
        backend.run(StepPlan(step_id=0, tables=tables, spans=spans))
        swapped = {a: tables[b], b: tables[a]}
        plan = StepPlan(
            step_id=1,
            tables=swapped,
            state_ops=(SwapState(lane_a=a, lane_b=b),),
            spans=(one_span(b, 250, ids[250:]), one_span(a, 65, ids[70:90])),
        )
        result = backend.run(plan)
        assert np.array_equal(result.logits[b], wanted)
        assert np.array_equal(result.logits[a], read(backend, ids[5:90], lane=0))


def test_a_prefix_is_shared_by_chunk_copy_and_snapshot(path: Path, wanted: Array) -> None:
    ids, a, b, kept = make_ids(), LaneId(0), LaneId(1), SnapshotId(0)
    with open_backend(path, n_lanes=2, n_chunks=24, chunk_cells=64, is_pooled=True) as backend:
        own, other = np.full(16, 24, np.int32), np.full(16, 24, np.int32)
        own[:4] = [3, 9, 1, 4]
        other[:11] = [3, 9, 1, *range(12, 20)]  # three chunks shared, the fourth copied in part
        first = one_span(a, 0, ids[:229], wants_logits=False)  # an open page and an open chunk
        save = SaveState(lane=a, snapshot=kept)
        backend.run(StepPlan(step_id=0, tables={a: own}, spans=(first,), saves=(save,)))
        plan = StepPlan(
            step_id=1,
            copies=(CellCopy(source=ChunkId(4), target=ChunkId(12), n_cells=37),),
            tables={b: other},
            state_ops=(LoadState(snapshot=kept, lane=b), DropState(snapshot=kept)),
            spans=(one_span(b, 229, ids[229:]),),
        )
        result = backend.run(plan)
        assert np.array_equal(result.logits[b], wanted)
        index = backend.spec.index
        pages = 0 if index is None else 37 // 4 * index.key_dim * 4 * index.n_layers
        assert result.copied_bytes == 37 * backend.spec.kv_values_per_token * 2 + pages


def test_a_span_that_does_not_start_at_the_state_is_refused(backend: CpuBackend) -> None:
    ids, lane = make_ids(), LaneId(0)
    backend.run(StepPlan(step_id=0, spans=(one_span(lane, 0, ids[:50]),)))
    for start in (49, 51):
        with pytest.raises(DeviceError, match=f"starts at {start}.*taken in 50 tokens"):
            backend.run(StepPlan(step_id=1, spans=(one_span(lane, start, ids[start : start + 9]),)))
    backend.run(StepPlan(step_id=2, spans=(one_span(lane, 50, ids[50:60]),)))


@pytest.mark.parametrize(
    ("plan", "text"),
    [
        (
            StepPlan(step_id=1, state_ops=(LoadState(snapshot=SnapshotId(3), lane=LaneId(0)),)),
            "no snapshot 3",
        ),
        (StepPlan(step_id=1, state_ops=(DropState(snapshot=SnapshotId(3)),)), "no snapshot 3"),
        (
            StepPlan(step_id=1, saves=(SaveState(snapshot=SnapshotId(3), lane=LaneId(4)),)),
            "no lane 4",
        ),
        (
            StepPlan(step_id=1, saves=(SaveState(snapshot=SnapshotId(3), lane=LaneId(1)),) * 2),
            "snapshot 3 is there already",
        ),
        (
            StepPlan(step_id=1, state_ops=(SwapState(lane_a=LaneId(0), lane_b=LaneId(9)),)),
            "no lane 9",
        ),
    ],
)
def test_states_that_are_not_there_are_refused(
    backend: CpuBackend, plan: StepPlan, text: str
) -> None:
    with pytest.raises(DeviceError, match=f"Step 1.*{text}"):
        backend.run(plan)


def test_a_dropped_name_may_be_used_again(backend: CpuBackend) -> None:
    save, drop = (
        SaveState(lane=LaneId(0), snapshot=SnapshotId(3)),
        DropState(snapshot=SnapshotId(3)),
    )
    backend.run(StepPlan(step_id=0, state_ops=(save, drop, save, drop), saves=(save,)))


def test_a_model_of_k_and_v_alone_takes_no_notice_of_states() -> None:
    ids, lane = make_ids(n_ids=60), LaneId(0)
    with open_backend(COMMITTED / f"{STATELESS}.gguf") as backend:
        assert backend.state_bytes_per_lane == 0
        assert not backend.spec.has_recurrent_state
        whole = read(backend, ids)
        plan = StepPlan(
            step_id=1,
            state_ops=(LoadState(snapshot=SnapshotId(5), lane=lane),),
            spans=(one_span(lane, 33, ids[33:]),),
        )
        assert np.array_equal(backend.run(plan).logits[lane], whole)


def test_every_pick_of_an_expert_is_counted(path: Path) -> None:
    ids = make_ids()
    with open_backend(path, n_lanes=2, n_chunks=16) as backend:
        spec = backend.spec
        none = backend.expert_counts()
        assert none is not None
        assert none.shape == (spec.n_layers, spec.n_experts)
        assert not none.any()
        read(backend, ids, n_tokens=100)
        once = backend.expert_counts()
        assert once is not None
        assert (once.sum(axis=1) == N_IDS * spec.n_experts_used).all()
        assert (once > 0).sum() > spec.n_layers * spec.n_experts_used
        assert not none.any()
        read(backend, ids, lane=1)
        twice = backend.expert_counts()
        assert np.array_equal(twice, 2 * once)


def test_a_dense_model_counts_no_experts() -> None:
    with open_backend(COMMITTED / "llama-t-q8_0.gguf") as backend:
        assert backend.expert_counts() is None


def test_the_table_of_n_grams_is_not_read_at_the_start(path: Path) -> None:
    with open_backend(path) as backend:
        streamed = [weight.name for weight in backend._model.weights if weight.is_streamed]
    expected = ["per_layer_token_embd.weight"] if "qwen4exp" in path.stem else []
    assert streamed == expected


def test_chunks_hold_whole_pages() -> None:
    with (
        pytest.raises(ConfigError, match="multiple of 4 .*got 126"),
        open_backend(COMMITTED / "qwen4exp-t-f16.gguf", chunk_cells=126, n_chunks=9),
    ):
        pass


def test_it_offers_what_the_protocol_says(backend: CpuBackend) -> None:
    protocol: Backend = backend
    spec = protocol.spec
    assert protocol.state_bytes_per_lane == spec.state_bytes > 0
    index = spec.index
    index_bytes = 0 if index is None else index.n_layers * index.key_dim
    assert protocol.kv_bytes_per_cell == spec.kv_values_per_token * 2 + index_bytes


def test_spans_of_one_lane_only_once(backend: CpuBackend) -> None:
    first: Span = one_span(0, 0, make_ids()[:4])
    plan = StepPlan(step_id=0, spans=(first, replace(first, start=4)))
    with pytest.raises(DeviceError, match="lane 0 has two spans"):
        backend.run(plan)
