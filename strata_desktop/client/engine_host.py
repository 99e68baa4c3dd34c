"""The engine behind the window: started in this process, or one that runs already."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QObject, Qt, Signal, Slot

from engine.config import CHUNK_CELLS, ApiConfig
from engine.errors import EngineError
from strata_desktop.client.api_client import ApiClient
from strata_desktop.client.replies import ApiFailure

if TYPE_CHECKING:
    from engine.service import EngineService

logger = logging.getLogger(__name__)

MIN_POOL_TOKENS = 32768
LARGEST_DEFAULT_CONTEXT = 32768


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadOptions:
    """How a model is loaded; None = chosen from the model.

    Attributes:
        context_tokens: longest conversation.
        pool_tokens: cells of the shared K/V pool.
        n_lanes: conversations computed at once.
        n_threads: worker threads.
        alias: id the API shows.
    """

    context_tokens: int | None = None
    pool_tokens: int | None = None
    n_lanes: int = 4
    n_threads: int | None = None
    alias: str | None = None


def load_body(path: Path, options: LoadOptions, trained_context: int) -> dict[str, Any]:
    """Return the body of /v1/load: the pool holds two whole conversations, 32768 cells at least."""
    context = options.context_tokens or min(
        trained_context or LARGEST_DEFAULT_CONTEXT, LARGEST_DEFAULT_CONTEXT
    )
    wanted = options.pool_tokens or max(2 * context, MIN_POOL_TOKENS)
    body: dict[str, Any] = {
        "path": str(path),
        "context_tokens": context,
        "pool_tokens": -(-wanted // CHUNK_CELLS) * CHUNK_CELLS,
        "n_lanes": options.n_lanes,
    }
    if options.n_threads is not None:
        body["n_threads"] = options.n_threads
    if options.alias is not None:
        body["alias"] = options.alias
    return body


class EngineHost(QObject):
    """Starts the engine or attaches to one, loads models, stops cleanly.

    Attributes:
        is_attached: whether the engine belongs to somebody else (and is not stopped here).
        address: base URL once known, else "".
        options: how models are loaded unless a call says otherwise.

    Signals:
        started: the engine answers at this address.
        failed: the engine could not start, and why.
        load_failed: a model was refused before loading began: file path, why.
    """

    started = Signal(str)
    failed = Signal(str)
    load_failed = Signal(str, str)
    _outcome = Signal(str, str)

    def __init__(
        self,
        client: ApiClient,
        *,
        api: ApiConfig | None = None,
        attach_url: str | None = None,
        options: LoadOptions | None = None,
    ) -> None:
        super().__init__()
        self.is_attached = attach_url is not None
        self.address = ""
        self.options = options or LoadOptions()
        self._client = client
        self._api = api or ApiConfig()
        self._attach_url = attach_url
        self._service: EngineService | None = None
        self._starter: threading.Thread | None = None
        self._outcome.connect(self._on_outcome, Qt.ConnectionType.QueuedConnection)

    def start(self) -> None:
        """Start in the background; `started` or `failed` follows. May be tried again."""
        if self._attach_url is not None:
            self._outcome.emit(self._attach_url.rstrip("/"), "")
            return
        if self._starter is None:
            self._starter = threading.Thread(
                target=self._start_service, name="engine-start", daemon=True
            )
            self._starter.start()

    def load(
        self,
        path: Path,
        *,
        options: LoadOptions | None = None,
        on_failure: Callable[[ApiFailure], None] | None = None,
    ) -> None:
        """Load a model; progress shows in the status. Refusals come as `load_failed` too."""
        chosen = options or self.options

        def refused(failure: ApiFailure) -> None:
            if on_failure is not None:
                on_failure(failure)
            self.load_failed.emit(str(path), failure.message)

        def inspected(reply: dict[str, Any]) -> None:
            if not reply.get("models"):
                errors = reply.get("errors") or [{}]
                message = errors[0].get("message") or f"{path.name} holds no model."
                refused(ApiFailure(message=message, code="bad_model"))
                return
            body = load_body(path, chosen, int(reply["models"][0].get("context_tokens") or 0))
            self._client.post_json("/v1/load", body, None, refused)

        self._client.post_json("/v1/inspect", {"path": str(path)}, inspected, refused)

    def unload(self, on_failure: Callable[[ApiFailure], None] | None = None) -> None:
        """Give the model's memory back."""
        self._client.post_json("/v1/unload", {}, None, on_failure)

    def stop(self) -> None:
        """Stop the engine if it is ours; blocks until its threads have ended."""
        if self._starter is not None:
            self._starter.join()
            self._starter = None
        if self._service is not None:
            self._service.stop()
            self._service = None
        self.address = ""

    def _start_service(self) -> None:
        try:
            # Imported here, off the window's thread: the web framework takes a while.
            from engine.service import EngineService

            service = EngineService(self._api)
            address = service.start()
        except (EngineError, OSError, ImportError) as error:
            logger.info("The engine did not start: %s", error)
            self._outcome.emit("", str(error))
            return
        self._service = service
        self._outcome.emit(address, "")

    @Slot(str, str)
    def _on_outcome(self, address: str, error: str) -> None:
        if error:
            if self._starter is not None:
                self._starter.join()
                self._starter = None
            self.failed.emit(error)
            return
        self.address = address
        self._client.set_base_url(address)
        self.started.emit(address)
