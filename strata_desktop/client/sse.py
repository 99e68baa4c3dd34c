"""Server-sent events: from bytes to events. It knows no HTTP and no JSON."""

from __future__ import annotations

import re
from dataclasses import dataclass

_LINE_END = re.compile(rb"\r\n|\n|\r")


@dataclass(frozen=True, slots=True)
class SseEvent:
    """One event of a stream.

    Attributes:
        name: the `event:` field, "message" if there was none.
        payload: the `data:` lines, joined by newlines.
    """

    name: str
    payload: str


class SseParser:
    """Cuts a byte stream into events.

    Lines end only where the format says (LF, CR LF, CR), never at other Unicode separators, which
    may lie inside JSON. Comment lines (keep-alives) are dropped.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._name = ""
        self._lines: list[str] = []

    def feed(self, received: bytes) -> list[SseEvent]:
        """Return the events that `received` completes."""
        buffer = self._rest + received
        # A CR at the very end may be the first half of CR LF: wait for the next bytes.
        held = buffer.endswith(b"\r")
        lines = _LINE_END.split(buffer[:-1] if held else buffer)
        self._rest = lines.pop() + (b"\r" if held else b"")
        events = []
        for line in lines:
            event = self._take(line.decode("utf-8", errors="replace"))
            if event is not None:
                events.append(event)
        return events

    def _take(self, line: str) -> SseEvent | None:
        if not line:
            if not self._lines:
                self._name = ""
                return None
            event = SseEvent(self._name or "message", "\n".join(self._lines))
            self._name, self._lines = "", []
            return event
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            self._lines.append(value)
        elif field == "event":
            self._name = value
        return None
