"""Tokens of a session."""

from __future__ import annotations

import numpy as np
import pytest

from engine.scheduler.session import Session


def test_tokens_grow_and_are_rewound() -> None:
    session = Session(3, key="k", row=1)
    assert (session.id, session.n_tokens, len(session.tokens)) == ("s3", 0, 0)
    for start in range(0, 1000, 100):
        session.append(np.arange(start, start + 100, dtype=np.int32))
    assert np.array_equal(session.tokens, np.arange(1000))
    session.rewind(10)
    session.append(np.array([7], np.int32))
    assert list(session.tokens) == [*range(10), 7]


def test_rewinding_forwards_is_a_fault() -> None:
    session = Session(1, key="", row=0)
    with pytest.raises(ValueError, match="session s1: rewind to 1, but it knows 0"):
        session.rewind(1)
