"""Native ops of hybrid and mixture models against their definitions, whole and in pieces."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from kernels.cpu import layer_records as layers
from kernels.cpu import records
from kernels.cpu.library import Team
from kernels.quants import QuantType
from kernels.reference import attention, gates, ngram, picks, recurrent, sparse
from tests.builders import quantize as quantize_weights
from tests.kernels import native

Array = npt.NDArray[Any]

ROUNDING = 2e-6
"""Relative to the largest value: float32 sums and exponentials against float64."""
RECURRENT_ROUNDING = 1e-5
"""The same after some hundred steps that each feed on the one before."""

WIDTHS = [1, 15, 16, 64, 200]


def normal(*shape: int, seed: int = 21) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def run(team: Team, record: type[records.Record], **fields: Any) -> None:
    """Run one record; arrays stand for their addresses."""
    plain = {k: native.at(v) if isinstance(v, np.ndarray) else v for k, v in fields.items()}
    native.run(team, record(**plain))


def assert_close(had: Array, wanted: Array, tolerance: float = ROUNDING) -> None:
    assert np.isfinite(had).all()
    np.testing.assert_allclose(had, wanted, rtol=0, atol=tolerance * float(np.abs(wanted).max()))


def lanes_of(*counts: int) -> Array:
    """Lanes 2, 0, 1, ... with some rows each."""
    return np.repeat([2, 0, 1, 3][: len(counts)], counts).astype(np.int32)


def place(states: Array, lanes: Array) -> layers.StatePlace:
    return layers.StatePlace(
        states=native.at(states), lanes=native.at(lanes), lane_bytes=states.strides[0]
    )


# --------------------------------------------------------------------------- gates


@pytest.mark.parametrize("n_cols", WIDTHS)
def test_in_place_functions(team: Team, n_cols: int) -> None:
    for name, wanted in (("silu", gates.silu(9 * normal(7, n_cols), 0.25)), ("sigmoid", None)):
        x = 9 * normal(7, n_cols)
        if name == "silu":
            run(team, layers.Silu, scale=0.25, x=x, n_rows=7, n_cols=n_cols)
        else:
            wanted = gates.sigmoid(x)
            run(team, layers.Sigmoid, x=x, n_rows=7, n_cols=n_cols)
        assert_close(x, wanted)


@pytest.mark.parametrize(("n_cols", "n_gates"), [(48, 48), (33, 33), (48, 1), (60, 4)])
def test_gate(team: Team, n_cols: int, n_gates: int) -> None:
    x, values = normal(5, n_cols), 4 * normal(5, n_gates, seed=1)
    wanted = gates.gate(x, values)
    run(team, layers.Gate, x=x, gate=values, n_rows=5, n_cols=n_cols, n_gates=n_gates)
    assert_close(x, wanted)


def test_decay_of_small_and_large_inputs(team: Team) -> None:
    x = np.array([[-90, -20, -1, 0], [1, 19.5, 20.5, 90]], np.float32)
    rate, bias = -np.array([0.01, 1, 0.3, 2], np.float32), np.array([0, 0.5, -1, 1], np.float32)
    wanted = gates.decay(x, rate, bias)
    run(team, layers.Decay, x=x, rate=rate, bias=bias, n_rows=2, n_heads=4)
    np.testing.assert_allclose(x, wanted, rtol=2e-6, atol=1e-30)


def test_repeat_and_columns(team: Team) -> None:
    x = normal(5, 12)
    y = np.full((5, 36), np.nan, np.float32)
    run(team, layers.Repeat, n_copies=3, x=x, y=y, n_rows=5, n_cols=12)
    assert np.array_equal(y, gates.repeat(x, 3))
    y = np.full((5, 6), np.nan, np.float32)
    run(team, layers.Columns, n_groups=3, x=x, y=y, n_rows=5, n_cols=4, first=1, n_taken=2)
    assert np.array_equal(y, gates.columns(x, n_groups=3, first=1, n_taken=2))


@pytest.mark.parametrize("n_cols", WIDTHS)
def test_norms_of_groups_and_heads(team: Team, n_cols: int) -> None:
    x, weight = normal(4, 3 * n_cols), normal(3 * n_cols, seed=2)
    y = np.full_like(x, np.nan)
    run(
        team,
        layers.GroupedNorm,
        epsilon=1e-6,
        x=x,
        weight=weight,
        y=y,
        n_rows=4,
        n_groups=3,
        n_cols=n_cols,
    )
    assert_close(y, gates.grouped_norm(x, weight, n_groups=3, epsilon=1e-6))
    wanted = gates.l2_norm(x, n_heads=2, head_dim=n_cols, epsilon=1e-6)
    run(
        team,
        layers.L2Norm,
        epsilon=1e-6,
        x=x,
        n_rows=4,
        n_cols=3 * n_cols,
        n_heads=2,
        head_dim=n_cols,
    )
    assert_close(x, wanted)


@pytest.mark.parametrize("n_streams", [1, 3, 4])
@pytest.mark.parametrize("n_cols", WIDTHS)
def test_streams_are_mixed_and_injected(team: Team, n_cols: int, n_streams: int) -> None:
    x, values = normal(6, n_streams * n_cols), 3 * normal(6, n_streams * n_cols, seed=3)
    y = np.full((6, n_cols), np.nan, np.float32)
    run(
        team, layers.MixStreams, n_streams=n_streams, x=x, gate=values, y=y, n_rows=6, n_cols=n_cols
    )
    assert_close(y, gates.mix_streams(x, values, n_streams=n_streams))
    shares = 5 * normal(6, n_streams, seed=4)
    wanted = gates.inject(x, y, shares)
    run(team, layers.Inject, n_streams=n_streams, x=x, y=y, gate=shares, n_rows=6, n_cols=n_cols)
    assert_close(x, wanted)


# --------------------------------------------------------------------------- states


def native_conv(
    team: Team, x: Array, weight: Array, states: Array, lanes: Array, dilation: int
) -> Array:
    y = np.full_like(x, np.nan)
    run(
        team,
        layers.Conv,
        n_taps=len(weight),
        x=x,
        weight=weight,
        y=y,
        state=place(states, lanes),
        n_rows=len(x),
        n_cols=x.shape[1],
        dilation=dilation,
    )
    return y


@pytest.mark.parametrize("dilation", [1, 3])
@pytest.mark.parametrize("n_cols", [10, 64, 300])
def test_conv(team: Team, n_cols: int, dilation: int) -> None:
    counts = (5, 1, 30)
    x, lanes, weight = normal(36, n_cols), lanes_of(*counts), normal(4, n_cols, seed=5)
    states = normal(4, 3 * dilation, n_cols, seed=6)
    before = states.copy()
    y = native_conv(team, x, weight, states, lanes, dilation)
    for lane in (2, 0, 1):
        rows = lanes == lane
        wanted, state = recurrent.conv(x[rows], weight, before[lane], dilation=dilation)
        assert_close(y[rows], wanted)
        assert np.array_equal(states[lane], state)
    assert np.array_equal(states[3], before[3])
    for cut in (1, 4, 13):
        states = before.copy()
        parts = [
            native_conv(team, x[rows], weight, states, lanes[rows], dilation)
            for rows in (slice(at, at + cut) for at in range(0, 36, cut))
        ]
        assert np.array_equal(np.concatenate(parts), y)


def native_delta(
    team: Team,
    inputs: dict[str, Array],
    states: Array,
    lanes: Array,
    *,
    is_tiled: bool,
    n_keys: int,
) -> Array:
    n_rows, n_heads = inputs["decay"].shape
    dim = states.shape[-1]
    y = np.full((n_rows, n_heads * dim), np.nan, np.float32)
    run(
        team,
        layers.Delta,
        scale=dim**-0.5,
        qkv=inputs["qkv"],
        decay=inputs["decay"],
        strength=inputs["strength"],
        y=y,
        state=place(states, lanes),
        n_rows=n_rows,
        n_key_heads=n_keys,
        n_value_heads=n_heads,
        head_dim=dim,
        is_tiled=is_tiled,
    )
    return y


@pytest.mark.parametrize("is_tiled", [True, False])
@pytest.mark.parametrize("dim", [8, 32, 100, 128])
def test_delta_rule(team: Team, dim: int, is_tiled: bool) -> None:
    n_keys, n_heads, lanes = 2, 4, lanes_of(70, 1, 40)
    rng = np.random.default_rng(7)
    qkv = normal(len(lanes), (2 * n_keys + n_heads) * dim)
    qkv = gates.l2_norm(qkv, n_heads=2 * n_keys, head_dim=dim, epsilon=1e-6)
    inputs = {
        "qkv": qkv,
        "decay": rng.uniform(0.5, 1, (len(lanes), n_heads)).astype(np.float32),
        "strength": rng.uniform(0, 1, (len(lanes), n_heads)).astype(np.float32),
    }
    states = normal(4, n_heads, dim, dim, seed=8)
    before = states.copy()
    y = native_delta(team, inputs, states, lanes, is_tiled=is_tiled, n_keys=n_keys)
    heads = qkv.reshape(len(lanes), -1, dim)
    key_head = recurrent.key_head_of(n_heads, n_keys, is_tiled=is_tiled)
    for lane in (2, 0, 1):
        rows = lanes == lane
        wanted, state = recurrent.delta_rule(
            heads[rows][:, key_head],
            heads[rows][:, n_keys + key_head],
            heads[rows][:, 2 * n_keys :],
            decay=inputs["decay"][rows],
            strength=inputs["strength"][rows],
            state=before[lane],
        )
        assert_close(y[rows], wanted.reshape(-1, n_heads * dim), RECURRENT_ROUNDING)
        assert_close(states[lane], state, RECURRENT_ROUNDING)
    after, states = states, before.copy()
    for at in range(0, len(lanes), 17):
        part = {name: values[at : at + 17] for name, values in inputs.items()}
        had = native_delta(
            team, part, states, lanes[at : at + 17], is_tiled=is_tiled, n_keys=n_keys
        )
        assert np.array_equal(had, y[at : at + 17])
    assert np.array_equal(states, after)


def test_value_heads_find_their_key_heads() -> None:
    assert recurrent.key_head_of(6, 2, is_tiled=True).tolist() == [0, 1, 0, 1, 0, 1]
    assert recurrent.key_head_of(6, 2, is_tiled=False).tolist() == [0, 0, 0, 1, 1, 1]


# --------------------------------------------------------------------------- experts


def native_route(team: Team, logits: Array, n_used: int) -> tuple[Array, Array]:
    n_rows, n_experts = logits.shape
    experts = np.full((n_rows, n_used), -1, np.int32)
    shares = np.full((n_rows, n_used), np.nan, np.float32)
    run(
        team,
        layers.Route,
        n_used=n_used,
        logits=logits,
        experts=experts,
        shares=shares,
        n_rows=n_rows,
        n_experts=n_experts,
    )
    return experts, shares


@pytest.mark.parametrize(("n_experts", "n_used"), [(8, 2), (20, 4), (512, 10), (3, 3), (5, 1)])
def test_route(team: Team, n_experts: int, n_used: int) -> None:
    logits = 3 * normal(40, n_experts)
    logits[3] = np.round(logits[3])  # many equals
    logits[4] = 0
    experts, shares = native_route(team, logits, n_used)
    wanted, wanted_shares = picks.route(logits, n_used)
    assert np.array_equal(experts, wanted)
    assert_close(shares, wanted_shares)
    assert experts[4].tolist() == list(range(n_used))


def native_groups(team: Team, experts: Array, n_experts: int, counts: Array) -> dict[str, Array]:
    n_rows, n_used = experts.shape
    n_groups = min(experts.size, n_experts)
    made = {
        "rows": np.full(experts.size, -1, np.int32),
        "places": np.full(experts.shape, -1, np.int32),
        "groups": np.full(n_groups, -1, np.int32),
        "firsts": np.full(n_groups + 1, -1, np.int32),
    }
    run(
        team,
        layers.GroupPicks,
        n_used=n_used,
        experts=experts,
        **made,
        scratch=np.empty(n_experts, np.int32),
        counts=counts,
        n_rows=n_rows,
        n_experts=n_experts,
        n_groups=n_groups,
    )
    return made


@pytest.mark.parametrize("n_rows", [1, 3, 60])
def test_picks_are_sorted_and_counted(team: Team, n_rows: int) -> None:
    experts, _ = picks.route(normal(n_rows, 9), 3)
    counts = np.arange(9)
    made = native_groups(team, experts, 9, counts)
    wanted = picks.group_picks(experts)
    assert np.array_equal(made["rows"], wanted.rows)
    assert np.array_equal(made["places"], wanted.places)
    n = len(wanted.groups)
    assert np.array_equal(made["groups"][:n], wanted.groups)
    assert np.array_equal(made["firsts"][: n + 1], wanted.firsts)
    assert (made["firsts"][n:] == experts.size).all()  # groups without picks are empty
    assert np.array_equal(counts - np.arange(9), np.bincount(experts.reshape(-1), minlength=9))


def native_experts(
    team: Team, x: Array, blocks: Array, quant: QuantType, logits: Array, *, is_exact: bool
) -> tuple[Array, Array, Array]:
    """Return products of the picks, their weighted sum, and the picked rows of x."""
    n_experts, n_out, row_bytes = blocks.shape
    experts, shares = native_route(team, logits, 3)
    made = native_groups(team, experts, n_experts, np.zeros(n_experts, np.int64))
    picked = x[made["rows"]]
    qs, ds = (None, None) if is_exact else native.quantize(team, picked)
    y = np.full((len(picked), n_out), np.nan, np.float32)
    run(
        team,
        layers.MatmulPicks,
        quant=quant,
        weight=blocks,
        x=picked,
        qs=qs,
        ds=ds,
        y=y,
        scratch=np.empty((team.n_threads, x.shape[1]), np.float32),
        groups=made["groups"],
        firsts=made["firsts"],
        n_groups=len(made["groups"]),
        n_out=n_out,
        n_cols=x.shape[1],
        row_bytes=row_bytes,
        expert_bytes=n_out * row_bytes,
    )
    total = np.full((len(x), n_out), np.nan, np.float32)
    run(
        team,
        layers.SumPicks,
        n_used=3,
        x=y,
        places=made["places"],
        shares=shares,
        y=total,
        n_rows=len(x),
        n_cols=n_out,
    )
    return y, total, picked


@pytest.mark.parametrize("quant", [QuantType.F32, QuantType.F16, QuantType.Q4_1, QuantType.Q8_0])
@pytest.mark.parametrize("is_exact", [True, False])
def test_products_with_experts(team: Team, quant: QuantType, is_exact: bool) -> None:
    n_experts, n_out, n_cols, n_rows = 7, 600, 96, 45
    encoded = quantize_weights(normal(n_experts * n_out, n_cols, seed=9), quant).encoded
    blocks = np.frombuffer(encoded, np.uint8).reshape(n_experts, n_out, -1).copy()
    x, logits = normal(n_rows, n_cols, seed=10), normal(n_rows, n_experts, seed=11)
    is_exact = is_exact or quant.is_float
    y, total, picked = native_experts(team, x, blocks, quant, logits, is_exact=is_exact)
    experts, shares = picks.route(logits, 3)
    grouped = picks.group_picks(experts)
    for row in (0, 17, len(picked) - 1):  # a pick is what a plain product gives, bit for bit
        group = int(np.searchsorted(grouped.firsts, row, side="right")) - 1
        expert = blocks[grouped.groups[group]]
        plain = native.matmul(team, picked[row : row + 1], expert, quant, is_exact=is_exact)
        assert np.array_equal(y[row], plain[0])
    assert_close(total, picks.sum_picks(y, grouped, shares))
    alone = native_experts(team, x[5:6], blocks, quant, logits[5:6], is_exact=is_exact)[1]
    assert np.array_equal(alone[0], total[5])
    if quant is QuantType.F32:
        weight = blocks.view(np.float32)
        assert_close(y, picks.matmul_picks(x[grouped.rows], weight, grouped))


# --------------------------------------------------------------------------- n-grams


MULTIPLIERS = np.array([2**59 + 12345677, 2**58 + 98765431, 2**57 + 192837465], np.uint64)
OFFSETS = np.array([0, 10**11, 2 * 10**11, 2**40], np.uint64)
SIZES = np.array([10**11 - 23, 99999999977, 7, 1], np.uint64)
END = 5


def native_ngrams(team: Team, ids: Array, positions: Array, lanes: Array, states: Array) -> Array:
    y = np.full((len(ids), 4), -1, np.int64)
    run(
        team,
        layers.NgramRows,
        n_gram=3,
        ids=ids,
        positions=positions,
        multipliers=MULTIPLIERS,
        offsets=OFFSETS,
        sizes=SIZES,
        y=y,
        state=place(states, lanes),
        n_rows=len(ids),
        n_heads=4,
        end_id=END,
    )
    return y


@pytest.mark.parametrize("cut", [1, 2, 5, 100])
def test_ngram_rows_of_64_bits(team: Team, cut: int) -> None:
    rng = np.random.default_rng(12)
    ids = {lane: rng.integers(0, 9, 40).astype(np.int32) for lane in (2, 0)}  # many ends
    states = np.zeros((3, 2), np.int32)
    had: dict[int, list[Array]] = {2: [], 0: []}
    for at in range(0, 40, cut):
        parts = {lane: ids[lane][at : at + cut] for lane in ids}
        n = len(parts[0])
        positions = np.tile(np.arange(at, at + n, dtype=np.int32), 2)
        joined = np.concatenate(list(parts.values()))
        y = native_ngrams(team, joined, positions, lanes_of(n, n), states)
        had[2].append(y[:n])
        had[0].append(y[n:])
    for lane in ids:
        wanted = ngram.ngram_rows(
            ids[lane], multipliers=MULTIPLIERS, offsets=OFFSETS, sizes=SIZES, end_id=END
        )
        assert np.array_equal(np.concatenate(had[lane]), wanted)


def test_rows_by_64_bit_index(team: Team) -> None:
    encoded = quantize_weights(normal(50, 64), QuantType.Q8_0).encoded
    table = np.frombuffer(encoded, np.uint8).reshape(50, -1).copy()
    rows = np.array([49, 0, 7, 7], np.int64)
    y, wanted = np.full((4, 64), np.nan, np.float32), np.empty((4, 64), np.float32)
    run(
        team,
        layers.EmbedFar,
        quant=QuantType.Q8_0,
        table=table,
        rows=rows,
        y=y,
        n_rows=4,
        n_cols=64,
        row_bytes=table.shape[1],
    )
    ids = rows.astype(np.int32)
    run(
        team,
        records.Embed,
        quant=QuantType.Q8_0,
        table=table,
        ids=ids,
        y=wanted,
        n_rows=4,
        n_cols=64,
        row_bytes=table.shape[1],
    )
    assert np.array_equal(y, wanted)


def test_ngram_gate(team: Team) -> None:
    key, query, value = normal(6, 4, 40), normal(6, 4, 40, seed=13), normal(6, 40, seed=14)
    query[0] = 0  # a root of exactly 0, not of 1e-6
    query[1] *= 1e-6
    y = np.full((6, 4, 40), np.nan, np.float32)
    run(
        team,
        layers.NgramGate,
        n_streams=4,
        key=key,
        query=query,
        value=value,
        y=y,
        n_rows=6,
        n_cols=40,
    )
    assert_close(y, ngram.ngram_gate(key, query, value))
    assert np.array_equal(y[0, 0], value[0] / 2)


# --------------------------------------------------------------------------- sparse attention

PAGE, KEY_DIM, N_PAIRS, N_HEADS = 4, 24, 5, 3


class Index:
    """Two lanes whose pages lie in scrambled chunks of 8 cells."""

    def __init__(self) -> None:
        self.tables = np.random.default_rng(15).permutation(40).astype(np.int32).reshape(2, 20)
        self.cells = np.full((40, 8 // PAGE, KEY_DIM), np.nan, np.float32)
        self.states = np.full((2, PAGE - 1, KEY_DIM), np.nan, np.float32)
        self.norm = normal(KEY_DIM, seed=16)
        self.frequencies = np.float32(10000.0) ** -np.linspace(0, 0.9, N_PAIRS, dtype=np.float32)

    def place(self, lanes: Array, positions: Array) -> records.KvPlace:
        return records.KvPlace(
            cells=native.at(self.cells),
            tables=native.at(self.tables),
            lanes=native.at(lanes),
            positions=native.at(positions),
            n_table=20,
            chunk_cells=8,
            chunk_bytes=self.cells.strides[0],
        )

    def store(self, team: Team, keys: Array, lanes: Array, positions: Array) -> None:
        run(
            team,
            layers.StoreIndex,
            epsilon=1e-6,
            keys=keys,
            norm=self.norm,
            frequencies=self.frequencies,
            kv=self.place(lanes, positions),
            states=self.states,
            lane_bytes=self.states.strides[0],
            n_rows=len(keys),
            key_dim=KEY_DIM,
            n_pairs=N_PAIRS,
            page_cells=PAGE,
        )

    def keys_of(self, lane: int) -> Array:
        return self.cells[self.tables[lane]].reshape(-1, KEY_DIM)

    def select(
        self, team: Team, q: Array, lanes: Array, positions: Array, n_most: int
    ) -> tuple[Array, Array]:
        n_rows, n_pages = len(q), 40
        scores = np.full((n_rows, n_pages), np.nan, np.float32)
        pages = np.full((n_rows, n_most), -1, np.int32)
        lasts = np.full(n_rows, -1, np.int32)
        scratch = np.empty((team.n_threads, N_HEADS, layers.SCORE_BLOCK), np.float32)
        run(
            team,
            layers.ScorePages,
            n_heads=N_HEADS,
            q=q,
            scores=scores,
            kv=self.place(lanes, positions),
            scratch=scratch,
            n_rows=n_rows,
            key_dim=KEY_DIM,
            page_cells=PAGE,
            n_pages=n_pages,
            n_most=n_most,
        )
        run(
            team,
            layers.SelectPages,
            n_most=n_most,
            scores=scores,
            positions=positions,
            pages=pages,
            lasts=lasts,
            scratch=np.empty((team.n_threads, n_pages), np.float32),
            n_rows=n_rows,
            page_cells=PAGE,
            n_pages=n_pages,
        )
        return pages, lasts


@pytest.mark.parametrize("cut", [1, 3, 7, 131])
def test_pages_get_their_keys(team: Team, cut: int) -> None:
    index, keys = Index(), {lane: normal(131, KEY_DIM, seed=17 + lane) for lane in (0, 1)}
    for at in range(0, 131, cut):
        parts = [keys[1][at : at + cut], keys[0][at : at + cut]]
        n = len(parts[0])
        lanes = np.repeat([1, 0], n).astype(np.int32)
        positions = np.tile(np.arange(at, at + n, dtype=np.int32), 2)
        index.store(team, np.concatenate(parts), lanes, positions)
    for lane in (0, 1):
        wanted = sparse.page_keys(
            keys[lane], index.norm, index.frequencies, page_cells=PAGE, epsilon=1e-6
        )
        assert_close(index.keys_of(lane)[: len(wanted)], wanted)
        assert np.isnan(index.keys_of(lane)[len(wanted) :]).all()
        assert np.array_equal(index.states[lane], keys[lane][128:])


@pytest.mark.parametrize("n_most", [1, 5, 32, 40])
def test_the_best_pages_are_chosen(team: Team, n_most: int) -> None:
    index = Index()
    keys = np.concatenate([normal(131, KEY_DIM, seed=18), normal(131, KEY_DIM, seed=19)])
    lanes = np.repeat([0, 1], 131).astype(np.int32)
    positions = np.tile(np.arange(131, dtype=np.int32), 2)
    index.store(team, keys, lanes, positions)
    q = normal(262, N_HEADS, KEY_DIM, seed=20)
    q[200] = 0  # all pages are equal
    pages, lasts = index.select(team, q, lanes, positions, n_most)
    for row in range(262):
        n_whole = (positions[row] + 1) // PAGE
        scores = sparse.score_pages(q[row], index.keys_of(lanes[row])[:n_whole])
        wanted = sparse.select_pages(scores, n_most)
        assert np.array_equal(pages[row][: len(wanted)], wanted)
        cells = sparse.chosen_cells(wanted, int(positions[row]), PAGE)
        assert lasts[row] == len(cells) - 1
    alone, _ = index.select(team, q[100:101], lanes[100:101], positions[100:101], n_most)
    assert np.array_equal(alone[0], pages[100])


def test_of_equal_scores_the_first_pages_are_chosen(team: Team) -> None:
    scores = np.array([[2, 1, 3, 1, 1, 3, 1, 0]], np.float32)
    pages, lasts = np.full((1, 4), -1, np.int32), np.full(1, -1, np.int32)
    run(
        team,
        layers.SelectPages,
        n_most=4,
        scores=scores,
        positions=np.array([33], np.int32),
        pages=pages,
        lasts=lasts,
        scratch=np.empty((team.n_threads, 8), np.float32),
        n_rows=1,
        page_cells=4,
        n_pages=8,
    )
    assert pages.tolist() == [[0, 1, 2, 5]]
    assert lasts.tolist() == [17]


@pytest.mark.parametrize("is_half", [True, False])
@pytest.mark.parametrize("n_most", [3, 150, 400])
def test_attention_over_chosen_pages(team: Team, n_most: int, is_half: bool) -> None:
    n_heads, n_kv_heads, dim, chunk_cells, n_table = 4, 2, 40, 64, 24
    rng = np.random.default_rng(23)
    tables = rng.permutation(n_table).astype(np.int32)[None]
    dtype = np.float16 if is_half else np.float32
    cells = normal(n_table, 2, chunk_cells, n_kv_heads, dim, seed=24).astype(dtype)
    positions = np.array([0, 2, 3, 17, 700, 1201, 1402], np.int32)
    lanes = np.zeros(len(positions), np.int32)
    q = normal(len(positions), n_heads, dim, seed=25)
    pages, lasts = np.full((len(q), n_most), -1, np.int32), np.empty(len(q), np.int32)
    wanted = np.empty_like(q)
    for row, position in enumerate(positions):
        n_whole = (position + 1) // PAGE
        chosen = np.sort(rng.permutation(n_whole)[:n_most]).astype(np.int32)
        pages[row][: len(chosen)] = chosen
        at = sparse.chosen_cells(chosen, int(position), PAGE)
        lasts[row] = len(at) - 1
        picked = cells[tables[0, at // chunk_cells], :, at % chunk_cells]
        few = attention.Cells(
            k=picked[None, :, 0], v=picked[None, :, 1], tables=np.zeros((1, 1), np.int32)
        )
        wanted[row] = attention.attend(
            few, q[row : row + 1], lanes=lanes[:1], positions=lasts[row : row + 1], scale=0.2
        )[0]
    n_segments = -(-(n_most * PAGE + PAGE - 1) // records.SEGMENT_CELLS)
    floats = team.library.attend_scratch(n_heads=n_heads, n_kv_heads=n_kv_heads, head_dim=dim)
    partials = np.full(
        (len(q), n_heads, n_segments, records.STATE_FLOATS + dim), np.nan, np.float32
    )
    results = []
    for is_split in (False, True):
        y = np.full_like(q, np.nan)
        record = layers.AttendPages(
            is_half=is_half,
            q=native.at(q),
            y=native.at(y),
            kv=native.place(cells, tables, lanes, positions),
            pages=native.at(pages),
            lasts=native.at(lasts),
            partials=native.at(partials) if is_split else None,
            scratch=native.at(scratch := np.empty((team.n_threads, floats), np.float32)),
            n_rows=len(q),
            n_heads=n_heads,
            n_kv_heads=n_kv_heads,
            head_dim=dim,
            n_segments=n_segments,
            page_cells=PAGE,
            n_most=n_most,
            scale=0.2,
        )
        merge = records.AttendMerge(
            partials=native.at(partials),
            positions=native.at(lasts),
            y=native.at(y),
            n_rows=len(q),
            n_heads=n_heads,
            head_dim=dim,
            n_segments=n_segments,
        )
        native.run(team, record, *([merge] if is_split else []))
        del scratch
        results.append(y)
    assert np.array_equal(results[0], results[1])
    assert_close(results[0], wanted, 2e-6)
    if n_most == 400:  # everything is chosen: the bits of plain attention
        plain = native.attend(team, q, cells, tables, lanes=lanes, positions=positions, scale=0.2)
        assert np.array_equal(results[0], plain)
