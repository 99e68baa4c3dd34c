"""All chats: which one is shown, which ones are being answered, what can be undone."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Callable

from PySide6.QtCore import QObject, Signal

from strata_desktop.client.api_client import ApiClient
from strata_desktop.viewmodels.conversation import Conversation, Undo
from strata_desktop.viewmodels.conversations import ConversationList
from strata_desktop.viewmodels.messages import ChatSettings
from strata_desktop.viewmodels.store import ConversationHead, ConversationStore, TrashedItem


class ChatModel(QObject):
    """The chat page's state.

    Attributes:
        conversations: the list.
        current: the conversation shown; always one, perhaps new and empty.

    Signals:
        current_changed: another conversation is shown.
        undo_offered: an Undo.
        writing_changed: some answer began or ended.
    """

    current_changed = Signal()
    undo_offered = Signal(object)
    writing_changed = Signal()

    def __init__(
        self,
        store: ConversationStore,
        client: ApiClient,
        *,
        model_id: Callable[[], str] = lambda: "",
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._store = store
        self._client = client
        self._model_id = model_id
        self._open: dict[str, Conversation] = {}
        self.conversations = ConversationList(store, self)
        self._fresh = self._make(self._new_head(ChatSettings()))
        self.current = self._fresh

    @property
    def n_writing(self) -> int:
        """Answers being written now, shown or not."""
        return sum(1 for one in self._open.values() if one.is_writing)

    @property
    def new_draft(self) -> str:
        """What is typed in the new chat that is not stored yet."""
        return "" if self._fresh.is_stored else self._fresh.head.draft

    def new_chat(self) -> None:
        """Show a new, empty conversation (with what was typed there before, if anything)."""
        if self._fresh.is_stored:
            sampling = dataclasses.replace(self.current.head.settings, system_prompt="")
            self._fresh = self._make(self._new_head(sampling))
        self._show(self._fresh)

    def select(self, conversation_id: str) -> None:
        """Show a conversation. An answer that is being written elsewhere goes on."""
        if conversation_id == self.current.id:
            return
        conversation = self._open.get(conversation_id)
        if conversation is None:
            head = self._store.conversation(conversation_id)
            if head is None:
                return
            conversation = self._make(head)
        self._show(conversation)

    def rename(self, conversation_id: str, title: str) -> None:
        """Give a conversation another title."""
        if conversation := self._find(conversation_id):
            conversation.rename(title)
            self.conversations.refresh()

    def delete(self, conversation_id: str) -> None:
        """Put a conversation into the trash; can be undone."""
        conversation = self._find(conversation_id)
        if conversation is None or not conversation.is_stored:
            return
        conversation.stop()
        self._store.trash_conversation(conversation_id)
        was_current = conversation is self.current
        if was_current:
            self.new_chat()
        self.conversations.refresh()

        def restore() -> None:
            self._store.restore_conversation(conversation_id)
            self.conversations.refresh()
            if was_current and not self.current.is_stored:
                self.select(conversation_id)

        self.undo_offered.emit(Undo(f"“{conversation.head.title}” deleted", restore))

    def trash(self) -> list[TrashedItem]:
        """Return what can still be taken back."""
        return self._store.trash()

    def restore(self, item: TrashedItem) -> None:
        """Take something out of the trash."""
        if item.message_ids:
            self._store.restore_messages(item.message_ids)
            if opened := self._open.get(item.conversation_id):
                opened.reload()
        else:
            self._store.restore_conversation(item.conversation_id)
        self.conversations.refresh()

    def close(self) -> None:
        """Keep what running answers have so far, and end them."""
        for conversation in self._open.values():
            conversation.interrupt()

    def _find(self, conversation_id: str) -> Conversation | None:
        if opened := self._open.get(conversation_id):
            return opened
        head = self._store.conversation(conversation_id)
        return None if head is None else self._make(head)

    def _new_head(self, settings: ChatSettings) -> ConversationHead:
        return ConversationHead(
            id=uuid.uuid4().hex, title="New chat", updated_s=0.0, settings=settings
        )

    def _make(self, head: ConversationHead) -> Conversation:
        made = Conversation(head, self._store, self._client, model_id=self._model_id, parent=self)
        made.head_changed.connect(self.conversations.refresh)
        made.added.connect(self.conversations.refresh)
        made.undo_offered.connect(self.undo_offered)
        made.writing_changed.connect(self._on_writing)
        self._open[head.id] = made
        return made

    def _show(self, conversation: Conversation) -> None:
        self.current = conversation
        self.conversations.set_news(conversation.id, has_news=False)
        self.current_changed.emit()

    def _on_writing(self) -> None:
        conversation = self.sender()
        if isinstance(conversation, Conversation):
            self.conversations.set_writing(conversation.id, is_writing=conversation.is_writing)
            if not conversation.is_writing and conversation is not self.current:
                self.conversations.set_news(conversation.id, has_news=True)
        self.writing_changed.emit()
