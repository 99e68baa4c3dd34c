"""State of the models page: which files there are, what loading one would take, where a load is.

It asks the engine to look at files (`/v1/inspect`), to load and to unload; drawing is left to
`views.models_page`.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QObject, Signal

from engine.paths import data_home
from engine.stats import ModelSummary
from strata_desktop.client.api_client import ApiClient
from strata_desktop.client.engine_host import EngineHost, LoadOptions
from strata_desktop.client.replies import ApiFailure
from strata_desktop.client.status_feed import StatusFeed
from strata_desktop.viewmodels.memory_text import bytes_text, percent_text
from strata_desktop.viewmodels.models_fit import LoadEstimate, default_context, estimate_load
from strata_desktop.viewmodels.models_list import ModelEntry, ModelList
from strata_desktop.viewmodels.models_places import ModelPlaces

if TYPE_CHECKING:
    from engine.stats import ModelState, StatusSnapshot

SUFFIX = ".gguf"
ANSWER_S = 5.0
"""A load asked for shows as such until the engine reports it, at most this long."""
NOISE_BYTES = 64 * 1024**2


class ModelsModel(QObject):
    """What the models page shows.

    Attributes:
        list: every model found.
        places: where models are looked for.
        options: how the selected model would be loaded.

    Signals:
        scanned: a look through all places began or ended.
        selection_changed: another model is selected, or what is known of it changed.
        estimate_changed: options or free memory changed, so the sum did.
        state_changed: what the engine does with models changed.
        notice: a sentence about what went wrong or was done.
    """

    scanned = Signal()
    selection_changed = Signal()
    estimate_changed = Signal()
    state_changed = Signal()
    notice = Signal(str)

    def __init__(
        self,
        client: ApiClient,
        host: EngineHost,
        *,
        feed: StatusFeed | None = None,
        home: Path | None = None,
        built_in: Path | None = None,
    ) -> None:
        """Join the page's state to its sources.

        Args:
            client: the API's client.
            host: loads and unloads.
            feed: the status feed; None = one of its own.
            home: the data folder; None = the program's.
            built_in: the model that is part of the program, None = not listed.
        """
        super().__init__()
        self._client = client
        self._host = host
        self._state: ModelState | None = None
        self._weighed: StatusSnapshot | None = None
        self._lost = ""
        self._refusal = ""
        self._asked: Path | None = None
        self._asked_in: ModelState | None = None
        self._asked_at_s: float | None = None
        self._found: dict[Path, tuple[ModelEntry, ...]] = {}
        self._faults: dict[Path, str] = {}
        self._pending: set[Path] = set()
        self._selected: Path | None = None
        self._wanted: Path | None = None
        self.list = ModelList(self)
        self.places = ModelPlaces(home or data_home(), built_in=built_in)
        self.options = host.options
        if feed is None:
            feed = StatusFeed(client, self)
            feed.start()
        feed.status.connect(self.take)
        feed.offline.connect(self.take_loss)
        host.load_failed.connect(self._on_refused)
        client.base_url_changed.connect(self.rescan)
        if feed.latest is not None:
            self.take(feed.latest)
        self.rescan()

    # Finding models

    @property
    def is_scanning(self) -> bool:
        """Whether a look through the places is under way."""
        return bool(self._pending)

    @property
    def list_gap(self) -> str:
        """Why the list is empty, "" when it is not."""
        if self.list.entries:
            return ""
        if self._lost:
            return self._lost
        if self.is_scanning:
            return "Looking for models …"
        if self._faults:
            return "\n".join(self._faults.values())
        return (
            f"No model file (.gguf) in {self.places.own}. "
            "Add a file or a folder, or drop a .gguf file here."
        )

    @property
    def faults(self) -> tuple[str, ...]:
        """What was wrong with places that were added."""
        return tuple(self._faults.values())

    def rescan(self) -> None:
        """Look through all places again."""
        for place in self.places.all:
            self._inspect(place)
        self.scanned.emit()

    def add(self, path: Path) -> None:
        """Add a file or a folder to the list and select what is found there."""
        path = path.expanduser().absolute()
        if path.is_file() and path.suffix.lower() != SUFFIX:
            self.notice.emit(f"{path.name} is not a GGUF file (its name does not end in .gguf).")
            return
        self._wanted = path
        if self.places.place_of(path) is None and not self.places.is_own(path):
            self.places.add(path)
        self._inspect(path if path in self.places.all else self._home_of(path))
        self.scanned.emit()

    def remove_selected(self) -> None:
        """Take the selected model's place off the list; no file is touched."""
        place = self.removable_place
        if place is not None and self.places.remove(place):
            self._found.pop(place, None)
            self._faults.pop(place, None)
            self._merge()
            self.scanned.emit()
            self.notice.emit(f"{place} is off the list. Its files were not touched.")

    @property
    def removable_place(self) -> Path | None:
        """The added place the selected model came from, None for the program's own folder."""
        return None if self._selected is None else self.places.place_of(self._selected)

    def _home_of(self, path: Path) -> Path:
        return self.places.place_of(path) or self.places.own

    def _inspect(self, place: Path) -> None:
        if place in self._pending:
            return
        self._pending.add(place)
        self._client.post_json(
            "/v1/inspect",
            {"path": str(place)},
            lambda reply: self._inspected(place, reply),
            lambda failure: self._not_inspected(place, failure),
        )

    def _inspected(self, place: Path, reply: dict[str, Any]) -> None:
        self._pending.discard(place)
        known = {field.name for field in dataclasses.fields(ModelSummary)}
        entries = [
            ModelEntry(
                path=Path(found["path"]),
                summary=ModelSummary(**{k: v for k, v in found.items() if k in known}),
            )
            for found in reply.get("models", [])
        ]
        entries += [
            ModelEntry(path=Path(fault["path"]), summary=None, error=fault["message"])
            for fault in reply.get("errors", [])
        ]
        self._found[place] = tuple(entries)
        self._faults.pop(place, None)
        self._merge()
        self.scanned.emit()

    def _not_inspected(self, place: Path, failure: ApiFailure) -> None:
        self._pending.discard(place)
        self._found.pop(place, None)
        # The program's own folder is made when the first model is fetched, and a server that
        # runs elsewhere has neither.
        if not self.places.is_own(place) or failure.status == 0:
            self._faults[place] = failure.message
        self._merge()
        self.scanned.emit()

    def _merge(self) -> None:
        by_path = {
            entry.path: entry for place in self.places.all for entry in self._found.get(place, ())
        }
        before = None if self._selected is None else self.selected
        self.list.update_entries(list(by_path.values()))
        if self._wanted is not None:
            for path in by_path:
                if path == self._wanted or path.is_relative_to(self._wanted):
                    self._wanted = None
                    self.select(path)
                    return
        if self._selected is not None and self._selected not in by_path:
            self.select(None)
        elif self._selected is None and by_path:
            self._select_something()
        elif before != self.selected:
            self.selection_changed.emit()

    def _select_something(self) -> None:
        """Select the loaded model, else the first that can be loaded."""
        loaded = self.loaded_path
        paths = [entry.path for entry in self.list.entries if entry.can_load]
        if loaded is not None and self.list.entry(loaded) is not None:
            self.select(loaded)
        elif paths:
            self.select(paths[0])

    # The selected model

    @property
    def selected(self) -> ModelEntry | None:
        """The selected model."""
        return None if self._selected is None else self.list.entry(self._selected)

    def select(self, path: Path | None) -> None:
        """Choose a model, or none; options start from what suits it."""
        if path == self._selected:
            return
        self._selected = path
        entry = self.selected
        self._refusal = ""
        if entry is not None and entry.summary is not None:
            self.options = dataclasses.replace(
                self._host.options,
                context_tokens=self._host.options.context_tokens or default_context(entry.summary),
            )
        self.selection_changed.emit()
        self.estimate_changed.emit()

    def set_options(self, options: LoadOptions) -> None:
        """Change how the selected model would be loaded."""
        if options != self.options:
            self.options = options
            self.estimate_changed.emit()

    @property
    def estimate(self) -> LoadEstimate | None:
        """What loading the selected model would take, None when none is selected."""
        entry = self.selected
        if entry is None or entry.summary is None:
            return None
        return estimate_load(entry.summary, entry.path, self.options, self._weighed)

    # Loading

    @property
    def state(self) -> str:
        """`offline`, `none`, `loading`, `ready` or `failed`."""
        if self._state is None:
            return "offline"
        if self._asked is not None:
            return "loading"
        return self._state.state

    @property
    def loaded_path(self) -> Path | None:
        """The file loaded or being loaded."""
        if self._asked is not None:
            return self._asked
        state = self._state
        if state is None or state.summary is None or state.state not in ("ready", "loading"):
            return None
        return Path(state.summary.path)

    @property
    def can_load(self) -> bool:
        """Whether the selected model could be loaded now."""
        entry, estimate = self.selected, self.estimate
        if entry is None or estimate is None or self.state in ("offline", "loading"):
            return False
        return entry.can_load and estimate.can_load

    @property
    def can_unload(self) -> bool:
        """Whether there is a model to unload, or a load to stop."""
        return self.state in ("ready", "loading")

    @property
    def progress(self) -> float | None:
        """Part of the load that is done, None while unknown."""
        progress = None if self._state is None else self._state.progress
        if progress is None or progress.total_bytes <= 0:
            return None
        return min(1.0, progress.done_bytes / progress.total_bytes)

    @property
    def state_text(self) -> str:
        """What the engine does with models, in words."""
        state = self._state
        if state is None:
            return self._lost or "Waiting for the engine."
        name = state.summary.name if state.summary is not None else "the model"
        if self.state == "loading":
            if state.progress is None or state.state != "loading":
                return f"Loading {self._asked.stem if self._asked else name} …"
            done, total = state.progress.done_bytes, state.progress.total_bytes
            if total <= 0:
                return f"Loading {name} · {state.progress.stage}"
            return (
                f"Loading {name} · {state.progress.stage} · {bytes_text(done)} of "
                f"{bytes_text(total)} · {percent_text(done, total)}"
            )
        if self._refusal:
            return self._refusal
        if state.state == "failed":
            return f"{name[:1].upper()}{name[1:]} did not load: {state.error}"
        if state.state == "ready":
            return f"{name} is loaded."
        return "No model is loaded."

    @property
    def has_failed(self) -> bool:
        """Whether the last load did not come to an end."""
        return self.state != "loading" and (bool(self._refusal) or self.state == "failed")

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a person should know about the loaded model."""
        return () if self._state is None else self._state.warnings

    def load(self) -> None:
        """Load the selected model with the chosen options."""
        entry = self.selected
        if entry is None or not self.can_load:
            return
        self._refusal = ""
        self._asked, self._asked_in, self._asked_at_s = entry.path, self._state, None
        self._tell_state()
        self._host.load(entry.path, options=self.options)

    def unload(self) -> None:
        """Give the model's memory back, or stop the load."""
        if self.can_unload:
            self._asked = None
            self._host.unload(lambda failure: self.notice.emit(f"Not unloaded: {failure.message}"))

    def _on_refused(self, path: str, message: str) -> None:
        self._asked = None
        self._refusal = f"{Path(path).name} was not loaded: {message}"
        self._tell_state()

    # News

    def take(self, status: StatusSnapshot) -> None:
        """Take a snapshot: state of the model, free memory."""
        was_loading = self._state is not None and self._state.state == "loading"
        is_news = status.model != self._state or bool(self._lost) or self._asked is not None
        self._lost = ""
        self._state = status.model
        if self._asked is not None and self._is_answered(status):
            self._asked = None
        if was_loading and status.model.state == "ready":
            self._refusal = ""
        if is_news:
            self._tell_state()
        if self._is_other_memory(status):
            self._weighed = status
            self.estimate_changed.emit()

    def _is_answered(self, status: StatusSnapshot) -> bool:
        """Whether a report tells of the load asked for: the state moved, or it had time to."""
        if self._asked_at_s is None:
            self._asked_at_s = status.time_s
        is_late = status.time_s - self._asked_at_s > ANSWER_S
        return is_late or status.model != self._asked_in

    def _is_other_memory(self, status: StatusSnapshot) -> bool:
        """Whether free memory changed enough to show: a few MiB more or less are noise."""
        old = self._weighed
        if old is None or (old.engine is None) != (status.engine is None):
            return True
        return any(
            abs(before - now) > NOISE_BYTES
            for before, now in (
                (old.memory.ram_available_bytes, status.memory.ram_available_bytes),
                (old.memory.commit_used_bytes, status.memory.commit_used_bytes),
                (old.memory.commit_limit_bytes, status.memory.commit_limit_bytes),
            )
        )

    def take_loss(self, reason: str) -> None:
        """Take the news that the engine does not answer, and why."""
        self._lost = reason
        self._state = None
        self._asked = None
        self._tell_state()
        self.scanned.emit()

    def _tell_state(self) -> None:
        mark = {"ready": "loaded", "loading": "loading"}.get(self.state, "")
        self.list.set_mark(self.loaded_path, mark)
        self.state_changed.emit()
