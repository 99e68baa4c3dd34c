"""EngineService: the whole engine as one object; the window and `strata serve` start it.

It owns the threads and the state of a load; which parts a model is made of is in `engine.loading`,
what each part does in its own room.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Collection

from engine import __version__
from engine.api.app import create_app
from engine.api.served import LoadedModel
from engine.api.server import ApiServer
from engine.config import ApiConfig, ModelConfig
from engine.errors import (
    ConfigError,
    EngineError,
    EngineStoppedError,
    InvalidRequestError,
)
from engine.host_memory import VramProbe, read_host_memory
from engine.loading import (
    MakeBackend,
    OpenedModel,
    check_is_file,
    check_pool_holds_context,
    make_cpu_backend,
    open_loaded,
)
from engine.models.registry import ARCHITECTURES
from engine.stats import (
    ExpertPicks,
    ExpertState,
    LoadProgress,
    ModelState,
    ModelSummary,
    ServerState,
    StatusSnapshot,
)

logger = logging.getLogger(__name__)

SWITCH_INTERVAL_S = 0.001
"""The engine shares the interpreter with the window: hand over often."""

GIVE_UP_LIMIT_S = 1.0
"""How long to wait for a load that was given up; it ends by itself a little later."""


class EngineService:
    """Starts and stops the API and loads models; every method may be called from any thread."""

    def __init__(self, api: ApiConfig, *, make_backend: MakeBackend = make_cpu_backend) -> None:
        """Make a service; nothing runs yet. Models may be loaded without the API started.

        Args:
            api: where the API listens.
            make_backend: makes what computes the steps of a model.

        Raises:
            ConfigError: the API key is empty.
        """
        if api.api_key is not None and not api.api_key.strip():
            raise ConfigError("The API key is empty. Leave --api-key out to serve without one.")
        self._api = api
        self._make_backend = make_backend
        self._started_s = time.monotonic()
        self._vram = VramProbe()
        self._server: ApiServer | None = None
        # Guards the state of the load, below.
        self._lock = threading.Condition()
        self._is_stopping = False
        self._opened: OpenedModel | None = None
        self._loading: _Loading | None = None
        self._summary: ModelSummary | None = None
        self._progress: LoadProgress | None = None
        self._error = ""

    # The API

    def start(self) -> str:
        """Start the API.

        Returns:
            Its base URL; another port than asked for if that one is in use.

        Raises:
            ConfigError: no port can be bound.
            EngineStoppedError: the HTTP server did not come up.
        """
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        server = ApiServer(create_app(self, self._api), self._api)
        server.start()
        self._server = server
        return server.address

    def stop(self) -> None:
        """End running requests with an error, give the model back, stop the API."""
        with self._lock:
            self._is_stopping = True
        self.unload()
        server, self._server = self._server, None
        if server is not None:
            server.stop()
        self._vram.close()

    @property
    def address(self) -> str:
        """Base URL of the API, "" while it is not started."""
        server = self._server
        return "" if server is None else server.address

    @property
    def is_stopping(self) -> bool:
        """Whether `stop` was called."""
        return self._is_stopping

    # Models

    @property
    def architectures(self) -> Collection[str]:
        """Names of the architectures that can be run."""
        return ARCHITECTURES.keys()

    @property
    def loaded(self) -> LoadedModel | None:
        """The model that answers; None while none is loaded or after its device failed."""
        opened = self._opened
        if opened is None or opened.loaded.loop.error is not None:
            return None
        return opened.loaded

    def load(self, config: ModelConfig) -> None:
        """Begin to load a model in the background; one that is loaded is given back first.

        Args:
            config: which model, and how.

        Raises:
            ModelFileError: there is no such file.
            ConfigError: the pool cannot hold the context asked for.
            InvalidRequestError: 409, another load is running.
            EngineStoppedError: the service is stopping.
        """
        check_is_file(config.path)
        check_pool_holds_context(config.pool)
        with self._lock:
            if self._is_stopping:
                raise EngineStoppedError("The service is stopping and loads no more models.")
            if self._loading is not None:
                raise InvalidRequestError(
                    f"{self._loading.config.path.name} is being loaded. Wait for it, or unload it.",
                    code="model_loading",
                    status=409,
                )
            loading = _Loading(config)
            self._loading = loading
            self._summary, self._error = None, ""
            self._progress = LoadProgress(stage="Starting", done_bytes=0, total_bytes=0)
            loading.thread = threading.Thread(
                target=self._load, args=(loading,), name="strata-load", daemon=True
            )
            loading.thread.start()

    def unload(self) -> None:
        """Give the model back, or give up its load; running requests end with an error."""
        with self._lock:
            loading, self._loading = self._loading, None
            self._summary, self._progress, self._error = None, None, ""
            self._lock.notify_all()
        if loading is not None:
            loading.is_given_up.set()
            if loading.thread is not None and loading.thread is not threading.current_thread():
                loading.thread.join(GIVE_UP_LIMIT_S)
        self._close_opened()

    def wait_ready(self, timeout_s: float | None = None) -> bool:
        """Wait for a load to end.

        Args:
            timeout_s: longest wait; None = as long as it takes.

        Returns:
            Whether a model is loaded; if not, the status says whether it still loads or why the
            load failed.
        """
        with self._lock:
            self._lock.wait_for(lambda: self._loading is None, timeout_s)
        return self.loaded is not None

    # The status

    def status(self) -> StatusSnapshot:
        """Everything the dashboard shows, as of now."""
        with self._lock:
            opened = self._opened
            model = self._model_state(opened)
        server = self._server
        return StatusSnapshot(
            time_s=time.time(),
            server=ServerState(
                version=__version__,
                pid=os.getpid(),
                address="" if server is None else server.address,
                uptime_s=time.monotonic() - self._started_s,
                note="" if server is None else server.note,
            ),
            model=model,
            engine=None if opened is None else opened.loaded.loop.snapshot(),
            memory=read_host_memory(),
            vram=self._vram.read(),
            experts=expert_state(
                model.summary, None if opened is None else opened.loaded.loop.expert_picks()
            ),
        )

    def _model_state(self, opened: OpenedModel | None) -> ModelState:
        error = self._error
        if opened is not None and opened.loaded.loop.error is not None:
            error = str(opened.loaded.loop.error)
        if self._loading is not None:
            state = "loading"
        elif error:
            state = "failed"
        else:
            state = "none" if opened is None else "ready"
        return ModelState(
            state=state,
            summary=self._summary if opened is None else opened.loaded.summary,
            progress=self._progress if state == "loading" else None,
            error=error if state == "failed" else "",
            context_tokens=0 if opened is None else opened.shape.context_tokens,
            n_lanes=0 if opened is None else opened.shape.n_lanes,
            backend="" if opened is None else opened.backend.name,
            n_threads=0 if opened is None else opened.backend.n_threads,
            warnings=() if opened is None else opened.warnings,
        )

    # The thread of a load

    def _load(self, loading: _Loading) -> None:
        """Load, and tell how it ended; a load given up closes what it opened."""
        name = loading.config.path.name
        opened: OpenedModel | None = None
        error = ""
        started_s = time.monotonic()
        try:
            self._close_opened()
            opened = open_loaded(
                loading.config,
                self._make_backend,
                on_summary=lambda summary: self._note(loading, summary=summary),
                on_progress=lambda progress: self._note(loading, progress=progress),
            )
        except (EngineError, OSError, MemoryError) as fault:
            error = str(fault) or type(fault).__name__
        except Exception as fault:
            # Else the status would say "loading" for ever.
            logger.exception("Loading %s failed unexpectedly", name)
            error = f"Loading failed unexpectedly ({type(fault).__name__}: {fault})."
        with self._lock:
            is_wanted = self._loading is loading
            if is_wanted:
                self._opened, self._error = opened, error
                self._loading, self._progress = None, None
                self._lock.notify_all()
        if not is_wanted:
            if opened is not None:
                opened.undo.close()
            logger.info("The load of %s was given up", name)
        elif error:
            logger.error("Loading %s failed: %s", name, error)
        else:
            logger.info("Loaded %s in %.1f s", name, time.monotonic() - started_s)

    def _note(
        self,
        loading: _Loading,
        *,
        summary: ModelSummary | None = None,
        progress: LoadProgress | None = None,
    ) -> None:
        """Make progress visible, or end a load that nobody wants any more."""
        if loading.is_given_up.is_set():
            raise EngineStoppedError("The load was given up.")
        with self._lock:
            if self._loading is loading:
                self._summary = summary or self._summary
                self._progress = progress or self._progress

    def _close_opened(self) -> None:
        with self._lock:
            opened, self._opened = self._opened, None
        if opened is not None:
            opened.undo.close()
            logger.info("Gave %s back", opened.loaded.summary.id)


class _Loading:
    """A load that runs.

    Attributes:
        config: what is loaded.
        is_given_up: set when nobody wants it any more.
        thread: its thread.
    """

    def __init__(self, config: ModelConfig) -> None:
        self.config = config
        self.is_given_up = threading.Event()
        self.thread: threading.Thread | None = None


def expert_state(summary: ModelSummary | None, picks: ExpertPicks | None = None) -> ExpertState:
    """Say why the expert cache is empty, and which experts are used."""
    if summary is None:
        reason = "No model is loaded."
    elif summary.n_experts == 0:
        reason = "This model has no experts: every token uses all of its weights."
    else:
        reason = (
            "All experts are computed on the CPU from RAM; this version keeps none in VRAM. The "
            "counts show which ones the router picks: the profile that the expert cache will use."
        )
    return ExpertState(is_present=False, reason=reason, picks=picks)
