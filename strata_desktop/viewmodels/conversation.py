"""One conversation as the window shows it: its messages, the answer that is being written.

It keeps the store and what is shown the same at all times: a message is stored before it is sent,
an answer is stored while it is written.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from PySide6.QtCore import QObject, Signal

from strata_desktop.client.api_client import ApiClient
from strata_desktop.client.chat_stream import ChatStream
from strata_desktop.client.replies import ApiFailure, ChatResult
from strata_desktop.viewmodels.memory_throttle import Throttle
from strata_desktop.viewmodels.messages import (
    ChatSettings,
    Message,
    MessageState,
    Role,
    title_from,
)
from strata_desktop.viewmodels.store import ConversationHead, ConversationStore

SHOW_S = 0.07
"""A streamed answer is stored and laid out again at most this often."""
CONTINUE_PROMPT = "Please continue where you stopped."

FINISH_STATES = {
    "stop": MessageState.COMPLETE,
    "length": MessageState.LENGTH,
    "cancelled": MessageState.STOPPED,
}


@dataclass(frozen=True, slots=True)
class Undo:
    """Something that can be taken back.

    Attributes:
        label: what was done, for the toast.
        restore: takes it back.
    """

    label: str
    restore: Callable[[], None]


class Conversation(QObject):
    """Messages of one conversation, and its running answer.

    Attributes:
        head: id, title, settings, draft.
        messages: in order.
        progress: tokens of the prompt read and in all while it is being read, else None.

    Signals:
        reset: look at all messages again.
        added: a message was appended (its id).
        changed: a message has more text or another state (its id).
        progress_changed: `progress` is new.
        writing_changed: an answer began or ended.
        head_changed: title, settings or time.
        undo_offered: an Undo.
    """

    reset = Signal()
    added = Signal(int)
    changed = Signal(int)
    progress_changed = Signal()
    writing_changed = Signal()
    head_changed = Signal()
    undo_offered = Signal(object)

    def __init__(
        self,
        head: ConversationHead,
        store: ConversationStore,
        client: ApiClient,
        *,
        model_id: Callable[[], str],
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self.head = head
        self._store = store
        self._client = client
        self._model_id = model_id
        self.messages = store.messages(head.id)
        self.progress: tuple[int, int] | None = None
        self._stream: ChatStream | None = None
        self._is_stored = store.conversation(head.id) is not None
        self._show = Throttle(self, interval_s=SHOW_S)
        self._show.fired.connect(self._show_answer)

    @property
    def id(self) -> str:
        """Id of the conversation, here and in the engine."""
        return self.head.id

    @property
    def is_writing(self) -> bool:
        """Whether an answer is being written."""
        return self._stream is not None

    @property
    def is_stored(self) -> bool:
        """Whether it is in the store; a new chat is not before its first message."""
        return self._is_stored

    def message(self, message_id: int) -> Message | None:
        """Return a message by id."""
        return next((m for m in self.messages if m.id == message_id), None)

    def send(self, text: str) -> bool:
        """Store a message and have it answered.

        Returns:
            False if there is nothing to send or an answer is still being written.
        """
        text = text.strip()
        if not text or self.is_writing:
            return False
        self._ensure_stored(text)
        self._append([(Role.USER, text, MessageState.COMPLETE)])
        self._answer()
        return True

    def stop(self) -> None:
        """End the running answer and keep what is there."""
        if self._stream is not None:
            self._stream.cancel()

    def interrupt(self) -> None:
        """Keep what is there, marked as broken off by the program's end."""
        if self._stream is not None:
            self._stream.finished.disconnect(self._on_finished)
            self._stream.cancel()
            self._end(MessageState.INTERRUPTED)

    def regenerate(self, message_id: int) -> None:
        """Have the message before an answer answered anew; the old answer can come back."""
        self._answer_anew(message_id, keeps=False)

    def retry(self) -> None:
        """Ask again where the last answer failed (or none came)."""
        if self.is_writing or not self.messages:
            return
        last = self.messages[-1]
        if last.role is Role.USER:
            self._answer()
        else:
            self._answer_anew(last.id, keeps=True)

    def continue_answer(self) -> None:
        """Ask for the rest of an answer that broke off."""
        self.send(CONTINUE_PROMPT)

    def edit(self, message_id: int, text: str) -> None:
        """Replace a message of the person's and all that follows; can be undone."""
        text = text.strip()
        index = self._index(message_id)
        if index is None or not text:
            return
        self.stop()
        replaced = self.messages[index:]
        self._append([(Role.USER, text, MessageState.COMPLETE)], replacing=[m.id for m in replaced])
        self._offer_undo("Message replaced", replaced)
        self._answer()

    def delete(self, message_id: int) -> None:
        """Put one message into the trash; can be undone."""
        index = self._index(message_id)
        if index is None:
            return
        message = self.messages[index]
        if message.is_writing:
            self.stop()
        self._store.trash_messages([message_id])
        self._reload()

        def restore() -> None:
            self._store.restore_messages([message_id])
            self._reload()

        self.undo_offered.emit(Undo("Message deleted", restore))

    def rename(self, title: str) -> None:
        """Give a title."""
        if title := " ".join(title.split()):
            self._change_head(title=title)

    def set_settings(self, settings: ChatSettings) -> None:
        """Change how the next answers are made."""
        if settings != self.head.settings:
            self._change_head(settings=settings)

    def set_draft(self, text: str) -> None:
        """Keep text that is typed but not sent."""
        if text != self.head.draft:
            self.head = dataclasses.replace(self.head, draft=text)
            if self._is_stored:
                self._store.save_conversation(self.head)

    def reload(self) -> None:
        """Read everything again (after something came back from the trash)."""
        self._reload()

    def _change_head(self, **values: Any) -> None:
        self.head = dataclasses.replace(self.head, **values)
        if self._is_stored:
            self._store.save_conversation(self.head)
        self.head_changed.emit()

    def _ensure_stored(self, first_text: str) -> None:
        if self._is_stored:
            return
        self.head = dataclasses.replace(self.head, title=title_from(first_text), draft="")
        self._store.save_conversation(self.head)
        self._is_stored = True
        self.head_changed.emit()

    def _append(
        self, parts: list[tuple[Role, str, MessageState]], *, replacing: list[int] | None = None
    ) -> None:
        made = self._store.add_messages(self.id, parts, replacing=replacing or ())
        if replacing:
            gone = set(replacing)
            self.messages = [m for m in self.messages if m.id not in gone] + made
            self.reset.emit()
            return
        for message in made:
            self.messages.append(message)
            self.added.emit(message.id)

    def _answer(self, *, replacing: list[int] | None = None) -> None:
        """Begin an answer to the messages so far."""
        gone = set(replacing or ())
        asked = [m for m in self.messages if m.text and m.id not in gone]
        self._append([(Role.ASSISTANT, "", MessageState.WRITING)], replacing=replacing)
        stream = self._client.stream_chat(self._body(asked))
        stream.thought.connect(self._on_thought)
        stream.delta.connect(self._on_delta)
        stream.progress.connect(self._on_progress)
        stream.finished.connect(self._on_finished)
        stream.failed.connect(self._on_failed)
        self._stream = stream
        self.writing_changed.emit()

    def _answer_anew(self, message_id: int, *, keeps: bool) -> None:
        index = self._index(message_id)
        if index is None or self.messages[index].role is not Role.ASSISTANT:
            return
        self.stop()
        replaced = self.messages[index:]
        self._answer(replacing=[m.id for m in replaced])
        if not keeps or any(m.text for m in replaced):
            self._offer_undo("Answer replaced", replaced)

    def _offer_undo(self, label: str, replaced: list[Message]) -> None:
        first = replaced[0].id

        def restore() -> None:
            self.stop()
            old = {m.id for m in replaced}
            newer = [m.id for m in self.messages if m.id > first and m.id not in old]
            self._store.restore_messages(sorted(old), instead_of=newer)
            self._reload()

        self.undo_offered.emit(Undo(label, restore))

    def _body(self, asked: list[Message]) -> dict[str, Any]:
        settings = self.head.settings
        turns = [{"role": m.role.value, "content": m.text} for m in asked]
        if settings.system_prompt.strip():
            turns.insert(0, {"role": "system", "content": settings.system_prompt})
        body = {"messages": turns, "prompt_cache_key": self.id, **settings.to_body()}
        if model := self._model_id():
            body["model"] = model
        return body

    def _on_delta(self, text: str) -> None:
        self._grow(text=self.messages[-1].text + text)

    def _on_thought(self, text: str) -> None:
        self._grow(thoughts=self.messages[-1].thoughts + text)

    def _grow(self, **values: str) -> None:
        self.messages[-1] = dataclasses.replace(self.messages[-1], **values)
        if self.progress is not None:
            self.progress = None
            self.progress_changed.emit()
        self._show.trigger()

    def _on_progress(self, n_read: int, n_prompt: int) -> None:
        self.progress = (n_read, n_prompt)
        self.progress_changed.emit()

    def _on_finished(self, result: ChatResult) -> None:
        state = FINISH_STATES.get(result.finish_reason, MessageState.COMPLETE)
        if result.is_truncated:
            state = MessageState.POOL
        counts: dict[str, Any] = {}
        if result.n_completion_tokens:
            counts = {
                "n_tokens": result.n_completion_tokens,
                "tokens_per_s": result.tokens_per_s,
                "n_prompt_tokens": result.n_prompt_tokens,
            }
        self._end(state, **counts)

    def _on_failed(self, failure: ApiFailure) -> None:
        is_partial = bool(self.messages[-1].text) and failure.code == "disconnected"
        self._end(
            MessageState.INTERRUPTED if is_partial else MessageState.FAILED,
            error_code=failure.code,
            error_text=failure.message,
        )

    def _end(self, state: MessageState, **values: Any) -> None:
        self._stream = None
        self.progress = None
        last = dataclasses.replace(self.messages[-1], state=state, **values)
        self.messages[-1] = last
        self._store.save_message(last)
        self.progress_changed.emit()
        self.changed.emit(last.id)
        self.writing_changed.emit()

    def _show_answer(self) -> None:
        if self.is_writing:
            # Stored first: whatever was seen is there again, however the program ends.
            self._store.save_message(self.messages[-1])
            self.changed.emit(self.messages[-1].id)

    def _index(self, message_id: int) -> int | None:
        return next((i for i, m in enumerate(self.messages) if m.id == message_id), None)

    def _reload(self) -> None:
        if self.is_writing:
            self._store.save_message(self.messages[-1])
        self.messages = self._store.messages(self.id)
        self.reset.emit()
