from __future__ import annotations

from strata_desktop.client.sse import SseEvent, SseParser


def feed_all(*pieces: bytes) -> list[SseEvent]:
    parser = SseParser()
    return [event for piece in pieces for event in parser.feed(piece)]


def test_event_split_at_every_byte() -> None:
    stream = 'data: {"a": "é\u2028x"}\n\n: ping\r\n\r\n'.encode()
    stream += b"event: error\r\ndata: 1\r\ndata: 2\r\n\r\n"
    whole = [SseEvent("message", '{"a": "é\u2028x"}'), SseEvent("error", "1\n2")]
    assert feed_all(stream) == whole
    assert feed_all(*(stream[i : i + 1] for i in range(len(stream)))) == whole


def test_cr_alone_ends_a_line() -> None:
    assert feed_all(b"data: 1\rdata: 2\r\r", b"data: 3\r\r", b"x") == [
        SseEvent("message", "1\n2"),
        SseEvent("message", "3"),
    ]


def test_unfinished_event_is_not_delivered() -> None:
    assert feed_all(b"data: half") == []


def test_comment_and_unknown_fields_are_dropped() -> None:
    assert feed_all(b": keep-alive\n\nid: 4\nretry: 10\n\ndata:x\n\n") == [SseEvent("message", "x")]
