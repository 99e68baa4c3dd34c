"""What the engine is doing, in the few words the chat page needs."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal

from strata_desktop.client.engine_host import EngineHost
from strata_desktop.client.status_feed import StatusFeed
from strata_desktop.viewmodels.starters import Starter, find_starters

if TYPE_CHECKING:
    from engine.stats import StatusSnapshot


class EnginePhase(enum.Enum):
    """Where the engine stands."""

    STARTING = "starting"
    OFFLINE = "offline"
    NO_MODEL = "no model"
    LOADING = "loading"
    READY = "ready"
    FAILED = "failed"
    """The last load failed."""


class EngineState(QObject):
    """The engine's phase and the model's name.

    Attributes:
        phase: where it stands.
        model_name: for people, "" if none.
        model_id: for the API, "" if none.
        detail: what is being loaded, or why something failed.
        load_share: 0 to 1 while loading, None if unknown.
        context_tokens: longest conversation, 0 if none.
        models_dir: where models are looked for first.

    Signals:
        changed: any of these is new.
    """

    changed = Signal()

    def __init__(
        self,
        feed: StatusFeed,
        host: EngineHost,
        *,
        models_dir: Path,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self.models_dir = models_dir
        self.phase = EnginePhase.STARTING
        self.model_name = ""
        self.model_id = ""
        self.detail = ""
        self.load_share: float | None = None
        self.context_tokens = 0
        self._host = host
        self._is_asked = False
        feed.status.connect(self._on_status)
        feed.offline.connect(self._on_offline)
        host.failed.connect(self._on_host_failed)
        host.load_failed.connect(self._on_load_failed)

    @property
    def starters(self) -> tuple[Starter, ...]:
        """The models to begin with, whether they are there or not."""
        return find_starters(self.models_dir)

    def load(self, path: Path) -> None:
        """Load a model file."""
        self._is_asked = True
        self._set(EnginePhase.LOADING, name=path.stem, detail="Opening the file")
        self._host.load(path)

    def restart(self) -> None:
        """Try to start the engine again."""
        self._set(EnginePhase.STARTING)
        self._host.start()

    def _on_status(self, snapshot: StatusSnapshot) -> None:
        model = snapshot.model
        # Its id is the name of the file the person picked; names inside files are often odd.
        name = model.summary.id if model.summary else ""
        phase = {
            "loading": EnginePhase.LOADING,
            "ready": EnginePhase.READY,
            "failed": EnginePhase.FAILED,
        }.get(model.state, EnginePhase.NO_MODEL)
        detail, share = model.error, None
        if model.progress is not None:
            detail = model.progress.stage
            if model.progress.total_bytes:
                share = model.progress.done_bytes / model.progress.total_bytes
        if phase is EnginePhase.NO_MODEL and (self._is_asked or self.phase is EnginePhase.FAILED):
            # A load that was just asked for, or refused at once, is not in the status: keep it.
            return
        if phase is EnginePhase.LOADING:
            self._is_asked = False
        self._set(
            phase,
            name=name,
            model_id=model.summary.id if model.summary and phase is EnginePhase.READY else "",
            detail=detail,
            share=share,
            context_tokens=model.context_tokens,
        )

    def _on_offline(self, message: str) -> None:
        self._set(EnginePhase.OFFLINE, detail=message)

    def _on_host_failed(self, message: str) -> None:
        self._set(EnginePhase.OFFLINE, detail=message)

    def _on_load_failed(self, path: str, message: str) -> None:
        self._is_asked = False
        self._set(EnginePhase.FAILED, name=Path(path).stem, detail=message)

    def _set(
        self,
        phase: EnginePhase,
        *,
        name: str = "",
        model_id: str = "",
        detail: str = "",
        share: float | None = None,
        context_tokens: int = 0,
    ) -> None:
        new = (phase, name, model_id, detail, share, context_tokens)
        old = (
            self.phase,
            self.model_name,
            self.model_id,
            self.detail,
            self.load_share,
            self.context_tokens,
        )
        if new == old:
            return
        self.phase, self.model_name, self.model_id = phase, name, model_id
        self.detail, self.load_share, self.context_tokens = detail, share, context_tokens
        self.changed.emit()
