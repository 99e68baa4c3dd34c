"""What a conversation is made of, as frozen values: messages, their states, sampling settings."""

from __future__ import annotations

import dataclasses
import enum
import json
from dataclasses import dataclass
from typing import Any


class Role(enum.Enum):
    """Who speaks."""

    USER = "user"
    ASSISTANT = "assistant"


class MessageState(enum.Enum):
    """How far a message got."""

    COMPLETE = "complete"
    WRITING = "writing"
    """Being streamed; found so at start-up it becomes INTERRUPTED."""
    STOPPED = "stopped"
    """By the person."""
    INTERRUPTED = "interrupted"
    """The program ended, or the connection broke, in the middle."""
    LENGTH = "length"
    """The token limit or the context was used up."""
    POOL = "pool"
    """The shared pool had no room for the rest."""
    FAILED = "failed"
    """Refused or failed; `error_text` says why."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Message:
    """One message.

    Attributes:
        id: in the store.
        conversation_id: where it belongs.
        role: who speaks.
        text: Markdown.
        thoughts: what the model thought before it answered, "" if nothing.
        state: how far it got.
        error_code: machine-readable, "" if none.
        error_text: a sentence for the person, "" if none.
        n_tokens: tokens of the answer, 0 if unknown.
        tokens_per_s: speed of writing, 0 if unknown.
        n_prompt_tokens: tokens of the prompt, 0 if unknown.
        created_s: Unix time.
    """

    id: int
    conversation_id: str
    role: Role
    text: str
    state: MessageState = MessageState.COMPLETE
    error_code: str = ""
    error_text: str = ""
    n_tokens: int = 0
    tokens_per_s: float = 0.0
    n_prompt_tokens: int = 0
    thoughts: str = ""
    created_s: float = 0.0

    @property
    def is_writing(self) -> bool:
        """Whether it is being streamed."""
        return self.state is MessageState.WRITING


@dataclass(frozen=True, kw_only=True, slots=True)
class ChatSettings:
    """How a conversation is answered.

    Attributes:
        system_prompt: instruction before the first message, "" for none.
        temperature: 0 = always the likeliest token.
        top_p: keep the likeliest tokens up to this probability; 1 = all.
        top_k: keep this many tokens; 0 = all.
        min_p: drop tokens less likely than this share of the likeliest; 0 = none.
        repetition_penalty: 1 = none.
        max_tokens: longest answer; None = what the context leaves.
        seed: None = another answer every time.
    """

    system_prompt: str = ""
    temperature: float = 0.7
    top_p: float = 0.95
    top_k: int = 40
    min_p: float = 0.05
    repetition_penalty: float = 1.0
    max_tokens: int | None = None
    seed: int | None = None

    def to_json(self) -> str:
        """Return the text kept in the store."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> ChatSettings:
        """Read `to_json`'s text; fields this version does not know are left out."""
        known = {field.name for field in dataclasses.fields(cls)}
        values = json.loads(text) if text else {}
        return cls(**{name: value for name, value in values.items() if name in known})

    def to_body(self) -> dict[str, Any]:
        """Return the sampling fields of a chat request."""
        body: dict[str, Any] = {
            "temperature": self.temperature,
            "top_p": self.top_p,
            "top_k": self.top_k,
            "min_p": self.min_p,
            "repetition_penalty": self.repetition_penalty,
        }
        if self.max_tokens is not None:
            body["max_tokens"] = self.max_tokens
        if self.seed is not None:
            body["seed"] = self.seed
        return body


TITLE_CHARS = 60


def title_from(text: str) -> str:
    """Return a conversation's title from its first message: its first line, cut at a word."""
    line = next((line.strip(" #>*`\t") for line in text.splitlines() if line.strip(" #>*`\t")), "")
    line = " ".join(line.split())
    if len(line) <= TITLE_CHARS:
        return line or "New chat"
    cut = line[:TITLE_CHARS].rsplit(" ", 1)[0] if " " in line[:TITLE_CHARS] else line[:TITLE_CHARS]
    return cut + "…"
