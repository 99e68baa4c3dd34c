"""HTTP calls to the engine. They run on one network thread; results come back as Qt calls.

Nothing here blocks the thread the window lives on: an operation is handed over with what to do on
success and on failure, and both are called on the thread of the `ApiClient`.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import Future
from contextlib import asynccontextmanager
from typing import Any

import httpx
from PySide6.QtCore import QObject, Qt, Signal, Slot

from strata_desktop.client.chat_stream import ChatStream, read_chat
from strata_desktop.client.replies import (
    ApiFailure,
    CallFailed,
    connection_failure,
    reply_failure,
)

logger = logging.getLogger(__name__)

CONNECT_S = 5.0
REPLY_S = 120.0
SILENCE_S = 90.0
"""A stream sends a comment line at least every 10 s; this much silence means it is dead."""

OnSuccess = Callable[[Any], None]
OnFailure = Callable[[ApiFailure], None]
Post = Callable[[Any], None]


class ApiClient(QObject):
    """Speaks to one engine.

    Calls made before the address is known wait for it.

    Attributes:
        base_url: "http://127.0.0.1:8080", "" while unknown.

    Signals:
        base_url_changed: the engine's address became known or changed (the address).
    """

    base_url_changed = Signal(str)
    _arrived = Signal(int, object)

    def __init__(self, base_url: str = "", parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.base_url = ""
        self._keys = itertools.count(1)
        self._receivers: dict[int, Callable[[Any], None]] = {}
        self._futures: dict[int, Future[None]] = {}
        self._is_closed = False
        self._arrived.connect(self._deliver, Qt.ConnectionType.QueuedConnection)
        self._loop = asyncio.new_event_loop()
        self._http: httpx.AsyncClient | None = None
        self._has_address = asyncio.Event()
        self._thread = threading.Thread(target=self._run_loop, name="network", daemon=True)
        self._thread.start()
        if base_url:
            self.set_base_url(base_url)

    def set_base_url(self, base_url: str) -> None:
        """Say where the engine is; calls that wait for the address start."""
        self.base_url = base_url.rstrip("/")
        if self._is_closed:
            return
        self._loop.call_soon_threadsafe(self._has_address.set)
        self.base_url_changed.emit(self.base_url)

    def get_json(
        self, path: str, on_success: OnSuccess, on_failure: OnFailure | None = None
    ) -> None:
        """GET `path`; hand the parsed reply to `on_success`, or the reason to `on_failure`."""
        self._call("GET", path, None, (on_success, on_failure))

    def post_json(
        self,
        path: str,
        body: dict[str, Any],
        on_success: OnSuccess | None = None,
        on_failure: OnFailure | None = None,
    ) -> None:
        """POST a JSON body; hand the parsed reply over as `get_json` does."""
        self._call("POST", path, body, (on_success, on_failure))

    def stream_chat(self, body: dict[str, Any]) -> ChatStream:
        """Start a streamed answer of /v1/chat/completions."""
        stream = ChatStream()
        asked = {
            **body,
            "stream": True,
            "stream_options": {"include_usage": True, "include_progress": True},
        }
        key = self.start(lambda post: read_chat(self.open_stream, asked, post), stream.take)
        stream.bind(lambda: self.cancel(key))
        return stream

    def start(self, operation: Callable[[Post], Coroutine[Any, Any, None]], receive: Post) -> int:
        """Run a coroutine on the network thread.

        Args:
            operation: gets a `post` function; what it posts reaches `receive`, in order, on this
                object's thread.
            receive: called with each posted value.

        Returns:
            A key for `cancel`.
        """
        key = next(self._keys)
        if self._is_closed:
            return key
        self._receivers[key] = receive

        def post(value: Any) -> None:
            self._arrived.emit(key, value)

        def report(future: Future[None]) -> None:
            if not future.cancelled() and (error := future.exception()) is not None:
                logger.error("A call to the engine failed unexpectedly.", exc_info=error)
                post(ApiFailure(message=f"Unexpected: {error!r}", code="internal"))

        future = asyncio.run_coroutine_threadsafe(operation(post), self._loop)
        self._futures[key] = future
        future.add_done_callback(report)
        return key

    def cancel(self, key: int) -> None:
        """Break an operation off; its connection closes, nothing more of it is delivered."""
        self._receivers.pop(key, None)
        future = self._futures.pop(key, None)
        if future is not None:
            future.cancel()

    def close(self, timeout_s: float = 2.0) -> None:
        """Break everything off and end the network thread. Further calls are ignored."""
        if self._is_closed:
            return
        self._is_closed = True
        self._receivers.clear()
        self._futures.clear()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout_s)

    @asynccontextmanager
    async def open_stream(
        self, method: str, path: str, body: dict[str, Any] | None = None
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open an event stream (network thread only).

        Raises:
            CallFailed: no connection, an error reply, or the connection broke off.
        """
        client = await self._client()
        try:
            async with client.stream(
                method,
                self.base_url + path,
                json=body,
                timeout=httpx.Timeout(SILENCE_S, connect=CONNECT_S),
            ) as response:
                if response.status_code >= 400:
                    raise CallFailed(
                        reply_failure(
                            response.status_code,
                            await response.aread(),
                            response.headers.get("retry-after"),
                        )
                    )
                yield response.aiter_bytes()
        except httpx.HTTPError as error:
            raise CallFailed(connection_failure(error, self.base_url)) from error

    def _call(
        self,
        method: str,
        path: str,
        body: dict[str, Any] | None,
        receivers: tuple[OnSuccess | None, OnFailure | None],
    ) -> None:
        on_success, on_failure = receivers

        def receive(outcome: Any) -> None:
            self._futures.pop(key, None)
            self._receivers.pop(key, None)
            if isinstance(outcome, ApiFailure):
                if on_failure is None:
                    logger.info("%s %s: %s", method, path, outcome.message)
                else:
                    on_failure(outcome)
            elif on_success is not None:
                on_success(outcome)

        key = self.start(lambda post: self._request(method, path, body, post), receive)

    async def _request(
        self, method: str, path: str, body: dict[str, Any] | None, post: Post
    ) -> None:
        try:
            client = await self._client()
            response = await client.request(method, self.base_url + path, json=body)
            if response.status_code >= 400:
                post(
                    reply_failure(
                        response.status_code, response.content, response.headers.get("retry-after")
                    )
                )
                return
            post(json.loads(response.content) if response.content else None)
        except httpx.HTTPError as error:
            post(connection_failure(error, self.base_url))
        except ValueError:
            post(ApiFailure(message=f"The reply to {path} is not JSON.", code="bad_reply"))

    async def _client(self) -> httpx.AsyncClient:
        await self._has_address.wait()
        if self._http is None:
            # No proxies from the environment: the engine is on this machine or one named by hand.
            self._http = httpx.AsyncClient(
                timeout=httpx.Timeout(REPLY_S, connect=CONNECT_S),
                limits=httpx.Limits(max_connections=None),
                trust_env=False,
                # Reading the certificates takes longer than a whole call on this machine.
                verify=self.base_url.startswith("https:"),
            )
        return self._http

    @Slot(int, object)
    def _deliver(self, key: int, value: Any) -> None:
        receive = self._receivers.get(key)
        if receive is not None:
            receive(value)

    def _run_loop(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(self._wind_up())
        finally:
            self._loop.close()

    async def _wind_up(self) -> None:
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._http is not None:
            await self._http.aclose()
        await self._loop.shutdown_asyncgens()
