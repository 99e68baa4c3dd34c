"""Which session a prompt goes on from, on chunks of 64 cells."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest

from engine.memory.chunks import PoolShape
from engine.memory.prefix import (
    Choice,
    KnownTokens,
    Use,
    choose_session,
    common_prefix,
    reusable_by_fork,
)

SHAPE = PoolShape(
    n_lanes=2, n_parked=2, context_tokens=640, chunk_cells=64, n_chunks=10, is_pooled=True
)
LANES = PoolShape(
    n_lanes=2, n_parked=0, context_tokens=640, chunk_cells=64, n_chunks=20, is_pooled=False
)


def ids(*runs: tuple[int, int]) -> npt.NDArray[np.int32]:
    """Runs of (value, length)."""
    return np.concatenate([np.full(n, value, np.int32) for value, n in runs])


def known(
    number: int,
    tokens: npt.NDArray[np.int32],
    *,
    key: str = "",
    is_idle: bool = True,
    used: int = 0,
) -> KnownTokens:
    return KnownTokens(number=number, key=key, tokens=tokens, is_idle=is_idle, last_used=used)


def choose(
    prompt: npt.NDArray[np.int32],
    sessions: Sequence[KnownTokens],
    *,
    key: str = "",
    shape: PoolShape = SHAPE,
) -> Choice:
    return choose_session(prompt, sessions, key=key, shape=shape)


@pytest.mark.parametrize("n", [0, 1, 4095, 4096, 4097, 9000])
def test_common_prefix_finds_the_first_difference(n: int) -> None:
    a = np.arange(10_000, dtype=np.int32)
    b = a.copy()
    b[n] = -1
    assert common_prefix(a, b) == n
    assert common_prefix(a[:n], a) == n
    assert common_prefix(a, a[:n]) == n


def test_nothing_known_is_new() -> None:
    assert choose(ids((1, 10)), []) == Choice(use=Use.NEW)
    assert choose(ids((1, 10)), [known(1, ids((2, 10)))]) == Choice(use=Use.NEW)


def test_whole_session_is_continued() -> None:
    choice = choose(ids((1, 100), (2, 30)), [known(1, ids((1, 100)))])
    assert choice == Choice(use=Use.CONTINUE, number=1, n_reused=100)


def test_last_prompt_token_is_always_computed() -> None:
    choice = choose(ids((1, 100)), [known(1, ids((1, 100)))])
    assert choice == Choice(use=Use.CONTINUE, number=1, n_reused=99)
    choice = choose(ids((1, 100)), [known(1, ids((1, 150)))])
    assert choice == Choice(use=Use.CONTINUE, number=1, n_reused=99)


def test_half_of_a_session_is_rewound_less_is_forked() -> None:
    session = known(1, ids((1, 200), (2, 200)))
    assert choose(ids((1, 200), (3, 9)), [session]) == Choice(
        use=Use.CONTINUE, number=1, n_reused=200
    )
    session = known(1, ids((1, 200), (2, 201)))
    assert choose(ids((1, 200), (3, 9)), [session]) == Choice(use=Use.FORK, number=1, n_reused=192)


def test_started_chunk_is_copied_from_32_cells_on() -> None:
    assert reusable_by_fork(64 + 31, SHAPE) == 64
    assert reusable_by_fork(64 + 32, SHAPE) == 96
    assert reusable_by_fork(31, SHAPE) == 0
    assert reusable_by_fork(128, SHAPE) == 128


def test_too_little_to_fork_is_new() -> None:
    assert choose(ids((1, 31), (3, 9)), [known(1, ids((1, 31), (2, 90)))]) == Choice(use=Use.NEW)


def test_busy_session_is_forked() -> None:
    busy = known(1, ids((1, 100)), is_idle=False)
    assert choose(ids((1, 100), (2, 5)), [busy]) == Choice(use=Use.FORK, number=1, n_reused=100)


def test_fork_that_saves_more_beats_going_on() -> None:
    short = known(1, ids((1, 40)))
    long = known(2, ids((1, 300)), is_idle=False)
    assert choose(ids((1, 300), (2, 5)), [short, long]) == Choice(
        use=Use.FORK, number=2, n_reused=300
    )


def test_longest_prefix_wins_then_the_one_used_last_then_the_older() -> None:
    sessions = [
        known(1, ids((1, 90)), used=9),
        known(2, ids((1, 100)), used=1),
        known(3, ids((1, 100)), used=2),
        known(4, ids((1, 100)), used=2),
    ]
    assert choose(ids((1, 100), (2, 5)), sessions).number == 3


def test_own_key_wins_if_it_shares_anything() -> None:
    mine = known(1, ids((1, 5), (9, 300)), key="mine")
    other = known(2, ids((1, 100)))
    assert choose(ids((1, 100), (2, 5)), [mine, other], key="mine") == Choice(
        use=Use.CONTINUE, number=1, n_reused=5
    )
    mine = known(1, ids((9, 300)), key="mine")
    assert choose(ids((1, 100), (2, 5)), [mine, other], key="mine").number == 2


def test_session_of_another_key_is_never_rewound() -> None:
    theirs = known(1, ids((1, 100)), key="theirs")
    prompt = ids((1, 100), (2, 5))
    expected = Choice(use=Use.FORK, number=1, n_reused=100)
    assert choose(prompt, [theirs], key="mine") == expected
    assert choose(prompt, [theirs]) == expected


def test_busy_session_of_the_key_is_forked() -> None:
    busy = known(1, ids((1, 100)), key="k", is_idle=False)
    assert choose(ids((1, 100), (2, 5)), [busy], key="k").use is Use.FORK


def test_without_a_pool_nothing_is_forked() -> None:
    busy = known(1, ids((1, 100)), is_idle=False)
    assert choose(ids((1, 100), (2, 5)), [busy], shape=LANES) == Choice(use=Use.NEW)
    idle = known(2, ids((1, 100)))
    assert choose(ids((1, 100), (2, 5)), [busy, idle], shape=LANES) == Choice(
        use=Use.CONTINUE, number=2, n_reused=100
    )


def test_long_conversations_are_searched_fast() -> None:
    prompt = np.arange(262_144, dtype=np.int32)
    sessions = [known(n, prompt[: 262_000 - n]) for n in range(20)]
    assert choose(prompt, sessions) == Choice(use=Use.CONTINUE, number=0, n_reused=262_000)
