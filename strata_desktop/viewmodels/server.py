"""State of the server page: the address, how to use it, what it did, what it cannot do yet."""

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal

from strata_desktop.client.api_client import ApiClient
from strata_desktop.client.engine_host import EngineHost
from strata_desktop.client.status_feed import StatusFeed
from strata_desktop.viewmodels.memory_text import (
    NOTHING,
    bytes_text,
    count_text,
    duration_text,
)
from strata_desktop.viewmodels.memory_throttle import Throttle

if TYPE_CHECKING:
    from engine.stats import StatusSnapshot

NOT_YET = (
    ("Tool calls", "Tools are shown to the model, but a call it makes comes back as plain text."),
    ("Graphics card", "Everything is computed on the processor; there is no CUDA yet."),
    ("Images and sound", "Messages are text only."),
    ("Embeddings", "There is no /v1/embeddings."),
    ("Anthropic and Ollama routes", "Only the OpenAI ones are served so far."),
    ("JSON schemas and grammars", "A request that asks for a form is refused."),
)
"""What people may look for and not find, and what happens instead."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Snippet:
    """Something to copy.

    Attributes:
        title: what it is for.
        text: what is copied.
        hint: where it goes.
    """

    title: str
    text: str
    hint: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Count:
    """A number that counts up.

    Attributes:
        label: what is counted.
        value: how many, as text.
        explanation: tooltip.
    """

    label: str
    value: str
    explanation: str


class ServerModel(QObject):
    """What the server page shows.

    Attributes:
        not_yet: what is not there yet, and what happens instead.

    Signals:
        changed: state or counts were brought up to date.
    """

    changed = Signal()

    def __init__(
        self,
        client: ApiClient,
        host: EngineHost,
        feed: StatusFeed,
        *,
        throttle: Throttle | None = None,
    ) -> None:
        """Join the page's state to its sources.

        Args:
            client: knows the address before the first report.
            host: knows whose engine it is.
            feed: the status feed.
            throttle: gate of repaints; None = ten a second.
        """
        super().__init__()
        self._client = client
        self._host = host
        self._status: StatusSnapshot | None = None
        self._lost = ""
        self.not_yet = NOT_YET
        self._throttle = throttle or Throttle(self)
        self._throttle.fired.connect(self.changed)
        feed.status.connect(self.take)
        feed.offline.connect(self.take_loss)
        host.started.connect(self._throttle.trigger)
        host.failed.connect(self.take_loss)
        client.base_url_changed.connect(self._throttle.trigger)
        if feed.latest is not None:
            self.take(feed.latest)

    def take(self, status: StatusSnapshot) -> None:
        """Take a snapshot."""
        self._status = status
        self._lost = ""
        self._throttle.trigger()

    def take_loss(self, reason: str) -> None:
        """Take the news that the engine does not answer, and why."""
        self._status = None
        self._lost = reason
        self._throttle.trigger()

    @property
    def address(self) -> str:
        """Base URL of the engine, "" while unknown."""
        return self._client.base_url

    @property
    def editor_url(self) -> str:
        """What editors call the base URL of an OpenAI-compatible server."""
        return f"{self.address}/v1" if self.address else ""

    @property
    def model_id(self) -> str:
        """Id of the loaded model, "" if none."""
        model = None if self._status is None else self._status.model
        if model is None or model.summary is None or model.state != "ready":
            return ""
        return model.summary.id

    @property
    def is_answering(self) -> bool:
        """Whether the engine reports."""
        return self._status is not None

    @property
    def state_text(self) -> str:
        """How the server is, in one sentence."""
        status = self._status
        if status is None:
            if self._lost:
                return self._lost
            return "The engine is starting." if not self.address else "Waiting for its report."
        match status.model.state:
            case "ready":
                model = "ready for requests"
            case "loading":
                model = "loading a model; requests are answered when it is there"
            case "failed":
                model = "running, but the last model did not load"
            case _:
                model = "running, no model loaded; requests are refused until one is"
        return f"{model[0].upper()}{model[1:]}."

    @property
    def note(self) -> str:
        """What a person should know about the address, "" if nothing."""
        return "" if self._status is None else self._status.server.note

    @property
    def is_ready(self) -> bool:
        """Whether requests are answered now."""
        return bool(self.model_id)

    @property
    def facts(self) -> tuple[tuple[str, str], ...]:
        """What the server is, line by line."""
        status = self._status
        if status is None:
            return tuple((label, NOTHING) for label in ("Model", "Version", "Up for", "Process"))
        owner = "started elsewhere" if self._host.is_attached else "this program"
        return (
            ("Model", self.model_id or "none"),
            ("Version", status.server.version),
            ("Up for", duration_text(status.server.uptime_s)),
            ("Process", f"{status.server.pid}, {owner}"),
        )

    @property
    def snippets(self) -> tuple[Snippet, ...]:
        """Ready to copy; empty while the address is unknown."""
        if not self.address:
            return ()
        return (
            Snippet(
                title="Base URL for editors and agents",
                text=self.editor_url,
                hint="Where a program asks for an OpenAI-compatible base URL. "
                "No API key is needed.",
            ),
            Snippet(
                title="Model name",
                text=self.model_id or "any",
                hint="Any name is answered by the model that is loaded.",
            ),
            Snippet(
                title="A first request",
                text=curl_line(self.address, self.model_id or "any"),
                hint="In a terminal.",
            ),
        )

    @property
    def counts(self) -> tuple[Count, ...]:
        """Requests and tokens since a model was loaded."""
        engine = None if self._status is None else self._status.engine
        requests = None if engine is None else engine.requests
        work = None if engine is None else engine.work

        def shown(value: int | None) -> str:
            return NOTHING if value is None else count_text(value)

        return (
            Count(
                label="Running",
                value=shown(requests and requests.running),
                explanation="Requests being read or answered now.",
            ),
            Count(
                label="Waiting",
                value=shown(requests and requests.waiting),
                explanation="Requests waiting for a lane or for memory.",
            ),
            Count(
                label="Finished",
                value=shown(requests and requests.finished),
                explanation="Requests answered to their end.",
            ),
            Count(
                label="Cancelled",
                value=shown(requests and requests.cancelled),
                explanation="Requests whose client went away or stopped them.",
            ),
            Count(
                label="Refused",
                value=shown(requests and requests.refused),
                explanation="Requests the pool had no room for (503, kv_pool_full).",
            ),
            Count(
                label="Cut short",
                value=shown(requests and requests.truncated),
                explanation="Answers that ended because the pool was full.",
            ),
            Count(
                label="Failed",
                value=shown(requests and requests.failed),
                explanation="Requests that ended by a fault of the engine.",
            ),
            Count(
                label="Prompt tokens read",
                value=shown(work and work.n_prompt_tokens),
                explanation="Without those known from before.",
            ),
            Count(
                label="Prompt tokens known",
                value=shown(work and work.n_cached_tokens),
                explanation="Prompt tokens whose K/V was still there and need not be read.",
            ),
            Count(
                label="Tokens written",
                value=shown(work and work.n_completion_tokens),
                explanation="By all requests together.",
            ),
            Count(
                label="Moves without copy",
                value=shown(work and work.n_swaps),
                explanation="Conversations that changed lanes by exchanging chunk tables.",
            ),
            Count(
                label="Gave way",
                value=shown(work and work.n_evictions),
                explanation="Idle conversations that gave their chunks to a new request.",
            ),
            Count(
                label="K/V copied",
                value=NOTHING if work is None else bytes_text(work.copied_bytes),
                explanation="Bytes of K/V moved because a conversation was continued in two ways "
                "or a read gave way.",
            ),
        )


def curl_line(address: str, model_id: str, *, platform: str = sys.platform) -> str:
    """Return a request for a terminal, quoted for the system's own shell.

    Args:
        address: base URL of the server.
        model_id: name to ask for.
        platform: as `sys.platform` tells it.
    """
    body = json.dumps(
        {"model": model_id, "messages": [{"role": "user", "content": "Say hello."}]},
        separators=(",", ":"),
    )
    if platform == "win32":
        escaped = body.replace('"', '\\"')
        quoted = f'"{escaped}"'
        header = '"Content-Type: application/json"'
    else:
        quoted = shlex.quote(body)
        header = "'Content-Type: application/json'"
    return f"curl {address}/v1/chat/completions -H {header} -d {quoted}"
