"""Frames, comments, and what happens when the client closes the connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from starlette.types import Message

from engine.api.sse import DONE, EventStreamResponse, comment, data_event, wait_for_disconnect


def test_frames() -> None:
    assert data_event('{"a":"\\n"}') == b'data: {"a":"\\n"}\n\n'
    assert data_event(b"{}") == b"data: {}\n\n"
    assert comment("two\r\nlines") == b": two  lines\n\n"
    assert DONE == b"data: [DONE]\n\n"


class Client:
    """The far end of an ASGI connection."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.gone = asyncio.Event()

    async def receive(self) -> Message:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        self.messages.append(message)


class Frames:
    """Frames that notice whether they were closed."""

    def __init__(self, *, n_frames: int, client: Client | None = None) -> None:
        self.is_closed = False
        self.n_ended = 0
        self._n_frames = n_frames
        self._client = client

    async def make(self) -> AsyncIterator[bytes]:
        try:
            for number in range(self._n_frames):
                yield data_event(str(number))
            if self._client is not None:
                self._client.gone.set()
                await asyncio.sleep(60)
        finally:
            self.is_closed = True

    def end(self) -> None:
        self.n_ended += 1


SCOPE = {"type": "http", "method": "GET", "path": "/"}


def test_all_frames_are_sent_and_the_end_is_told_once() -> None:
    async def go() -> None:
        client, frames = Client(), Frames(n_frames=3)
        await EventStreamResponse(frames.make(), on_end=frames.end)(
            SCOPE, client.receive, client.send
        )
        head, *bodies = client.messages
        assert head["status"] == 200
        headers = dict(head["headers"])
        assert headers[b"content-type"].startswith(b"text/event-stream")
        assert b"content-length" not in headers
        assert b"no-cache" in headers[b"cache-control"]
        assert [m["body"] for m in bodies] == [b"data: 0\n\n", b"data: 1\n\n", b"data: 2\n\n", b""]
        assert [m["more_body"] for m in bodies] == [True, True, True, False]
        assert (frames.is_closed, frames.n_ended) == (True, 1)

    asyncio.run(go())


def test_a_client_that_goes_ends_the_frames_at_once() -> None:
    async def go() -> None:
        client = Client()
        frames = Frames(n_frames=2, client=client)
        response = EventStreamResponse(frames.make(), on_end=frames.end)
        await asyncio.wait_for(response(SCOPE, client.receive, client.send), 5)
        assert (frames.is_closed, frames.n_ended) == (True, 1)
        assert len(client.messages) == 3

    asyncio.run(go())


def test_frames_nobody_asked_for_still_end() -> None:
    async def go() -> None:
        client, frames = Client(), Frames(n_frames=2)
        client.gone.set()

        async def send(message: Message) -> None:
            await asyncio.sleep(60)

        response = EventStreamResponse(frames.make(), on_end=frames.end)
        await asyncio.wait_for(response(SCOPE, client.receive, send), 5)
        assert frames.n_ended == 1

    asyncio.run(go())


def test_a_broken_socket_is_a_client_that_went() -> None:
    async def go() -> None:
        client, frames = Client(), Frames(n_frames=2)

        async def send(message: Message) -> None:
            raise ConnectionResetError

        await EventStreamResponse(frames.make(), on_end=frames.end)(SCOPE, client.receive, send)
        assert frames.n_ended == 1

    asyncio.run(go())


def test_a_fault_of_the_frames_comes_out() -> None:
    async def fail() -> AsyncIterator[bytes]:
        yield b"x"
        raise ValueError("ours")

    async def go() -> None:
        client = Client()
        with pytest.raises(ValueError, match="ours"):
            await EventStreamResponse(fail())(SCOPE, client.receive, client.send)

    asyncio.run(go())


def test_waiting_for_the_disconnect_skips_the_rest_of_a_body() -> None:
    messages: list[Message] = [{"type": "http.request"}, {"type": "http.disconnect"}]

    async def receive() -> Message:
        return messages.pop(0)

    asyncio.run(asyncio.wait_for(wait_for_disconnect(receive), 5))
    assert messages == []
