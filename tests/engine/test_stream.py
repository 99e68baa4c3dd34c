"""A stream of events between two threads."""

from __future__ import annotations

import threading

import pytest

from engine.step import EventKind, FinishReason, TokenEvent, Usage
from engine.stream import TokenStream


def token(n: int) -> TokenEvent:
    return TokenEvent(kind=EventKind.TOKEN, request_id="a", usage=Usage(), token_id=n)


FINISH = TokenEvent(kind=EventKind.FINISH, request_id="a", usage=Usage(), finish=FinishReason.STOP)


@pytest.fixture
def cancelled() -> list[str]:
    return []


@pytest.fixture
def stream(cancelled: list[str]) -> TokenStream:
    return TokenStream("a", on_cancel=cancelled.append)


def test_iterating_waits_for_each_event_and_ends_with_the_finish(stream: TokenStream) -> None:
    events = [token(1), token(2), FINISH]
    writer = threading.Thread(target=lambda: [stream.push(event) for event in events])
    writer.start()
    assert list(stream) == events
    writer.join()
    assert stream.is_finished


def test_timeout_says_who_waits_how_long(stream: TokenStream) -> None:
    stream.push(token(1))
    events = stream.events(timeout_s=0.01)
    assert next(events) == token(1)
    with pytest.raises(TimeoutError, match=r"request a: no event for 0\.01 seconds"):
        next(events)


def test_callback_gets_what_came_before_and_after(stream: TokenStream) -> None:
    got: list[TokenEvent] = []
    stream.push(token(1))
    stream.push(token(2))
    stream.subscribe(got.append)
    assert got == [token(1), token(2)]
    stream.push(FINISH)
    assert got == [token(1), token(2), FINISH]
    with pytest.raises(RuntimeError, match="callback already"):
        stream.subscribe(got.append)
    with pytest.raises(RuntimeError, match="no more events"):
        stream.next_event()


def test_nothing_comes_after_the_finish(stream: TokenStream) -> None:
    stream.push(FINISH)
    with pytest.raises(RuntimeError, match="after its FINISH"):
        stream.push(token(1))
    assert list(stream) == [FINISH]
    with pytest.raises(RuntimeError, match="no more events"):
        stream.next_event()


def test_cancel_is_passed_on_until_the_finish(stream: TokenStream, cancelled: list[str]) -> None:
    stream.cancel()
    stream.push(FINISH)
    stream.cancel()
    assert cancelled == ["a"]
