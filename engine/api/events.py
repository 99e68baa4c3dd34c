"""One request seen from asyncio: events of the engine thread, awaited with a time limit.

What is done with them is in `engine.api.openai`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable
from typing import TypeVar

from starlette.requests import ClientDisconnect, Request

from engine.api.served import LoadedModel
from engine.api.sse import wait_for_disconnect
from engine.scheduler.request import GenerateRequest
from engine.step import EventKind, TokenEvent

T = TypeVar("T")


class RequestEvents:
    """The events of one submitted request; closing it before the end cancels the request.

    Attributes:
        is_finished: whether the last event was taken.
    """

    def __init__(self, model: LoadedModel, request: GenerateRequest) -> None:
        """Submit the request; call from a coroutine.

        Raises:
            RequestError: the engine refuses it at once (too many wait).
            EngineStoppedError: the model is being unloaded.
        """
        self.is_finished = False
        self._engine = model.loop
        self._request_id = request.request_id
        self._queue: asyncio.Queue[TokenEvent] = asyncio.Queue()
        asyncio_loop = asyncio.get_running_loop()

        def hand_over(event: TokenEvent) -> None:
            # The server may have stopped in between; then nobody is left to tell.
            with contextlib.suppress(RuntimeError):
                asyncio_loop.call_soon_threadsafe(self._queue.put_nowait, event)

        model.loop.submit(request).subscribe(hand_over)

    async def next(self, *, limit_s: float | None) -> TokenEvent | None:
        """Wait for the next event.

        Args:
            limit_s: seconds to wait at most; None = as long as it takes.

        Returns:
            The event, or None when there was none in time.
        """
        try:
            async with asyncio.timeout(limit_s):
                event = await self._queue.get()
        except TimeoutError:
            return None
        self.is_finished = event.kind is EventKind.FINISH
        return event

    def close(self) -> None:
        """Cancel the request unless it has ended."""
        if not self.is_finished:
            self.is_finished = True
            self._engine.cancel(self._request_id)


async def unless_gone(request: Request, work: Awaitable[T]) -> T:
    """Await something, but only as long as the client is there.

    Args:
        request: its body already read.
        work: what to wait for; cancelled when the client goes.

    Raises:
        ClientDisconnect: the client closed the connection first.
    """
    working = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(wait_for_disconnect(request.receive))
    try:
        await asyncio.wait({working, gone}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise ClientDisconnect
    finally:
        for task in (working, gone):
            task.cancel()
        await asyncio.gather(working, gone, return_exceptions=True)
