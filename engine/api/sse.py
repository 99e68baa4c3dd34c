"""Server-sent events: the one place that frames them, and a response that notices a closed door.

It knows nothing of what is inside an event; that is JSON made in `engine.api.replies` and
`engine.api.status`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

DONE = b"data: [DONE]\n\n"
"""Last event of an OpenAI stream."""

HEADERS = {
    "Cache-Control": "no-cache, no-transform",
    # nginx and its kin hold back events unless told not to.
    "X-Accel-Buffering": "no",
}


def data_event(json_text: str | bytes) -> bytes:
    """Frame JSON as one event; JSON holds no raw line break, so one `data: ` line is enough."""
    payload = json_text.encode() if isinstance(json_text, str) else json_text
    return b"data: " + payload + b"\n\n"


def comment(text: str) -> bytes:
    """Frame a comment, which every client skips; it shows that the connection lives."""
    return b": " + text.replace("\r", " ").replace("\n", " ").encode() + b"\n\n"


async def wait_for_disconnect(receive: Receive) -> None:
    """Return once the client has closed the connection.

    Args:
        receive: the ASGI receive channel, its request body already read.
    """
    while True:
        message: Message = await receive()
        if message["type"] == "http.disconnect":
            return


class EventStreamResponse(Response):
    """Sends frames as they come and stops making them when the client goes.

    Attributes:
        frames: the framed events; closed when the response ends, however it ends.
    """

    media_type = "text/event-stream"

    def __init__(
        self, frames: AsyncIterator[bytes], *, on_end: Callable[[], None] | None = None
    ) -> None:
        """Keep the frames.

        Args:
            frames: the framed events.
            on_end: called once when the response ends, even if no frame was ever asked for.
        """
        super().__init__(headers=HEADERS)
        # The length is not known; Response sets one for its empty body.
        del self.headers["content-length"]
        self.frames = frames
        self._on_end = on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the head, then frames until they end or the client closes the connection."""
        pump = asyncio.create_task(self._pump(send))
        gone = asyncio.create_task(wait_for_disconnect(receive))
        try:
            await asyncio.wait({pump, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (pump, gone):
                task.cancel()
            results = await asyncio.gather(pump, gone, return_exceptions=True)
            if self._on_end is not None:
                self._on_end()
        fault = results[0]
        if isinstance(fault, Exception):
            raise fault

    async def _pump(self, send: Send) -> None:
        # A send to a closed socket raises OSError on some servers: the same as a disconnect.
        with contextlib.suppress(OSError):
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            async for frame in self.frames:
                await send({"type": "http.response.body", "body": frame, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
