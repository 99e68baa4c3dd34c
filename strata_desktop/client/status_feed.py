"""The engine's status as a stream of snapshots, with reconnection."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QObject, Signal

from strata_desktop.client.api_client import ApiClient
from strata_desktop.client.replies import ApiFailure, CallFailed
from strata_desktop.client.sse import SseParser

if TYPE_CHECKING:
    from engine.stats import StatusSnapshot

RETRY_FIRST_S = 0.5
RETRY_LAST_S = 5.0


class StatusFeed(QObject):
    """Follows /v1/status/events for as long as it runs.

    Attributes:
        latest: the last snapshot, None before the first and while offline.

    Signals:
        status: a StatusSnapshot.
        offline: the engine cannot be reached, and why; comes once until it is back.
    """

    status = Signal(object)
    offline = Signal(str)

    def __init__(self, client: ApiClient, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.latest: StatusSnapshot | None = None
        self._client = client
        self._key: int | None = None
        self._was_offline = False

    def start(self) -> None:
        """Begin to follow; does nothing if it runs already."""
        if self._key is None:
            self._key = self._client.start(self._follow, self._take)

    def restart(self) -> None:
        """Begin to follow afresh, at once."""
        self.stop()
        self._was_offline = False
        self.start()

    def stop(self) -> None:
        """Follow no longer."""
        if self._key is not None:
            self._client.cancel(self._key)
            self._key = None

    def _take(self, value: Any) -> None:
        if isinstance(value, ApiFailure):
            self.latest = None
            if not self._was_offline:
                self._was_offline = True
                self.offline.emit(value.message)
            return
        self._was_offline = False
        self.latest = value
        self.status.emit(value)

    async def _follow(self, post: Callable[[Any], None]) -> None:
        # Imported here, off the window's thread: pydantic takes a while.
        from engine.api.schema import parse_status

        wait_s = RETRY_FIRST_S
        while True:
            try:
                async with self._client.open_stream("GET", "/v1/status/events") as received:
                    parser = SseParser()
                    async for piece in received:
                        for event in parser.feed(piece):
                            post(parse_status(event.payload))
                            wait_s = RETRY_FIRST_S
                post(ApiFailure(message="The engine ended the status stream.", code="disconnected"))
            except CallFailed as error:
                post(error.failure)
            except (json.JSONDecodeError, ValueError, TypeError) as error:
                post(ApiFailure(message=f"The status cannot be read: {error}", code="bad_reply"))
            await asyncio.sleep(wait_s)
            wait_s = min(wait_s * 2, RETRY_LAST_S)
