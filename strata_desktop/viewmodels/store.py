"""Conversations on disk, in one SQLite file. It knows no engine and no window.

Write-ahead logging lets every commit survive the death of the process at any moment. Nothing is
destroyed at once: deleting marks, and what has been marked for 30 days goes when the file is next
opened.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from strata_desktop.viewmodels.messages import ChatSettings, Message, MessageState, Role

TRASH_DAYS = 30

MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE conversations (
        id TEXT PRIMARY KEY,
        title TEXT NOT NULL,
        settings TEXT NOT NULL DEFAULT '',
        draft TEXT NOT NULL DEFAULT '',
        created_s REAL NOT NULL,
        updated_s REAL NOT NULL,
        deleted_s REAL
    );
    CREATE TABLE messages (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        conversation_id TEXT NOT NULL REFERENCES conversations(id) ON DELETE CASCADE,
        role TEXT NOT NULL,
        text TEXT NOT NULL,
        state TEXT NOT NULL,
        error_code TEXT NOT NULL DEFAULT '',
        error_text TEXT NOT NULL DEFAULT '',
        n_tokens INTEGER NOT NULL DEFAULT 0,
        tokens_per_s REAL NOT NULL DEFAULT 0,
        n_prompt_tokens INTEGER NOT NULL DEFAULT 0,
        created_s REAL NOT NULL,
        deleted_s REAL
    );
    CREATE INDEX messages_by_conversation ON messages (conversation_id, id);
    CREATE INDEX conversations_by_time ON conversations (updated_s);
    """,
    "ALTER TABLE messages ADD COLUMN thoughts TEXT NOT NULL DEFAULT '';",
)
"""Script n takes the file from version n to n + 1 (`PRAGMA user_version`). Never edit, append."""

_MESSAGE_COLUMNS = (
    "id, conversation_id, role, text, state, error_code, error_text, n_tokens, tokens_per_s, "
    "n_prompt_tokens, thoughts, created_s"
)


class StoreError(Exception):
    """The file of conversations cannot be used; says why and what to do."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ConversationHead:
    """A conversation without its messages.

    Attributes:
        id: also the engine's `prompt_cache_key`.
        title: from the first message, or given by the person.
        updated_s: Unix time of the last message.
        settings: how it is answered.
        draft: text typed but not sent.
    """

    id: str
    title: str
    updated_s: float
    settings: ChatSettings
    draft: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrashedItem:
    """Something deleted that can come back.

    Attributes:
        conversation_id: the conversation deleted, or that of the messages deleted.
        message_ids: empty for a whole conversation.
        title: of the conversation.
        excerpt: beginning of the text.
        deleted_s: Unix time.
    """

    conversation_id: str
    message_ids: tuple[int, ...]
    title: str
    excerpt: str
    deleted_s: float


class ConversationStore:
    """The file of conversations. Used from one thread.

    Attributes:
        path: the file.
        notice: what happened at opening that the person should know, "" if nothing.
    """

    def __init__(self, path: Path, *, now: Callable[[], float] = time.time) -> None:
        """Open or make the file.

        Raises:
            StoreError: the file is of a newer version, or cannot be opened.
        """
        self.path = path
        self.notice = ""
        self._now = now
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._db = self._open()
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError):
                raise StoreError(f"Your chats in {path} cannot be opened: {error}.") from error
            self._set_damaged_aside(error)
            self._db = self._open()

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def conversations(self, search: str = "") -> list[ConversationHead]:
        """Return the conversations, newest first.

        Args:
            search: only those whose title or messages contain this, in any case.
        """
        where, values = "deleted_s IS NULL", []
        if needle := search.strip().casefold():
            where += (
                " AND (instr(fold(title), ?) OR EXISTS (SELECT 1 FROM messages m WHERE"
                " m.conversation_id = c.id AND m.deleted_s IS NULL AND instr(fold(m.text), ?)))"
            )
            values = [needle, needle]
        rows = self._db.execute(
            "SELECT id, title, updated_s, settings, draft FROM conversations c "
            f"WHERE {where} ORDER BY updated_s DESC, rowid DESC",
            values,
        )
        return [_head(row) for row in rows]

    def conversation(self, conversation_id: str) -> ConversationHead | None:
        """Return one conversation, None if it does not exist or is in the trash."""
        row = self._db.execute(
            "SELECT id, title, updated_s, settings, draft FROM conversations "
            "WHERE id = ? AND deleted_s IS NULL",
            (conversation_id,),
        ).fetchone()
        return None if row is None else _head(row)

    def messages(self, conversation_id: str) -> list[Message]:
        """Return the messages of a conversation in order."""
        rows = self._db.execute(
            f"SELECT {_MESSAGE_COLUMNS} FROM messages "
            "WHERE conversation_id = ? AND deleted_s IS NULL ORDER BY id",
            (conversation_id,),
        )
        return [_message(row) for row in rows]

    def save_conversation(self, head: ConversationHead) -> None:
        """Make or change a conversation (title, settings, draft); its time stays."""
        with self._transaction() as db:
            db.execute(
                "INSERT INTO conversations (id, title, settings, draft, created_s, updated_s) "
                "VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET "
                "title = excluded.title, settings = excluded.settings, draft = excluded.draft",
                (
                    head.id,
                    head.title,
                    head.settings.to_json(),
                    head.draft,
                    self._now(),
                    self._now(),
                ),
            )

    def add_messages(
        self,
        conversation_id: str,
        parts: Iterable[tuple[Role, str, MessageState]],
        *,
        replacing: Iterable[int] = (),
    ) -> list[Message]:
        """Append messages, all or none, and mark the conversation as just used.

        Args:
            conversation_id: where to.
            parts: role, text and state of each.
            replacing: ids of messages that go into the trash in the same step.
        """
        now = self._now()
        with self._transaction() as db:
            db.executemany(
                "UPDATE messages SET deleted_s = ? WHERE id = ?", [(now, m) for m in replacing]
            )
            ids = [
                db.execute(
                    "INSERT INTO messages (conversation_id, role, text, state, created_s) "
                    "VALUES (?, ?, ?, ?, ?)",
                    (conversation_id, role.value, text, state.value, now),
                ).lastrowid
                for role, text, state in parts
            ]
            db.execute(
                "UPDATE conversations SET updated_s = ? WHERE id = ?", (now, conversation_id)
            )
        marks = ",".join("?" * len(ids))
        rows = self._db.execute(
            f"SELECT {_MESSAGE_COLUMNS} FROM messages WHERE id IN ({marks}) ORDER BY id", ids
        )
        return [_message(row) for row in rows]

    def save_message(self, message: Message) -> None:
        """Write a message's text, thoughts, state, error and counts."""
        with self._transaction() as db:
            db.execute(
                "UPDATE messages SET text = ?, state = ?, error_code = ?, error_text = ?, "
                "n_tokens = ?, tokens_per_s = ?, n_prompt_tokens = ?, thoughts = ? WHERE id = ?",
                (
                    message.text,
                    message.state.value,
                    message.error_code,
                    message.error_text,
                    message.n_tokens,
                    message.tokens_per_s,
                    message.n_prompt_tokens,
                    message.thoughts,
                    message.id,
                ),
            )

    def trash_conversation(self, conversation_id: str) -> None:
        """Put a conversation into the trash."""
        with self._transaction() as db:
            db.execute(
                "UPDATE conversations SET deleted_s = ? WHERE id = ?",
                (self._now(), conversation_id),
            )

    def restore_conversation(self, conversation_id: str) -> None:
        """Take a conversation out of the trash."""
        with self._transaction() as db:
            db.execute("UPDATE conversations SET deleted_s = NULL WHERE id = ?", (conversation_id,))

    def trash_messages(self, message_ids: Iterable[int]) -> None:
        """Put messages into the trash together."""
        now = self._now()
        with self._transaction() as db:
            db.executemany(
                "UPDATE messages SET deleted_s = ? WHERE id = ?", [(now, m) for m in message_ids]
            )

    def restore_messages(
        self, message_ids: Iterable[int], *, instead_of: Iterable[int] = ()
    ) -> None:
        """Take messages out of the trash, and put others there in the same step."""
        now = self._now()
        with self._transaction() as db:
            db.executemany(
                "UPDATE messages SET deleted_s = ? WHERE id = ?", [(now, m) for m in instead_of]
            )
            db.executemany(
                "UPDATE messages SET deleted_s = NULL WHERE id = ?", [(m,) for m in message_ids]
            )

    def trash(self) -> list[TrashedItem]:
        """Return what is in the trash, latest first; messages deleted together are one item."""
        items = [
            TrashedItem(
                conversation_id=row[0], message_ids=(), title=row[1], excerpt="", deleted_s=row[2]
            )
            for row in self._db.execute(
                "SELECT id, title, deleted_s FROM conversations WHERE deleted_s IS NOT NULL"
            )
        ]
        together: dict[tuple[str, float], list[tuple[int, str, str]]] = {}
        for message_id, conversation_id, title, text, deleted_s in self._db.execute(
            "SELECT m.id, c.id, c.title, m.text, m.deleted_s FROM messages m "
            "JOIN conversations c ON c.id = m.conversation_id "
            "WHERE m.deleted_s IS NOT NULL AND c.deleted_s IS NULL ORDER BY m.id"
        ):
            together.setdefault((conversation_id, deleted_s), []).append((message_id, title, text))
        items += [
            TrashedItem(
                conversation_id=conversation_id,
                message_ids=tuple(message_id for message_id, _, _ in group),
                title=group[0][1],
                excerpt=" ".join(group[0][2].split())[:120],
                deleted_s=deleted_s,
            )
            for (conversation_id, deleted_s), group in together.items()
        ]
        return sorted(items, key=lambda item: item.deleted_s, reverse=True)

    def _open(self) -> sqlite3.Connection:
        db = sqlite3.connect(self.path, isolation_level=None, timeout=2.0)
        try:
            db.create_function("fold", 1, str.casefold, deterministic=True)
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = NORMAL")
            db.execute("PRAGMA foreign_keys = ON")
            self._migrate(db)
            self._tidy(db)
        except BaseException:
            db.close()
            raise
        return db

    def _migrate(self, db: sqlite3.Connection) -> None:
        version = int(db.execute("PRAGMA user_version").fetchone()[0])
        if version > len(MIGRATIONS):
            raise StoreError(
                f"Your chats in {self.path} were written by a newer version of Strata (format "
                f"{version}, this version reads up to {len(MIGRATIONS)}). Install that version "
                "again, or start with another data folder."
            )
        for number in range(version, len(MIGRATIONS)):
            db.executescript(
                f"BEGIN IMMEDIATE; {MIGRATIONS[number]} PRAGMA user_version = {number + 1}; COMMIT;"
            )

    def _tidy(self, db: sqlite3.Connection) -> None:
        """Mark what a dead process left unfinished; drop what was in the trash long enough."""
        oldest = self._now() - TRASH_DAYS * 86400
        db.execute("BEGIN IMMEDIATE")
        db.execute(
            "UPDATE messages SET state = ? WHERE state = ?",
            (MessageState.INTERRUPTED.value, MessageState.WRITING.value),
        )
        db.execute("DELETE FROM messages WHERE deleted_s < ?", (oldest,))
        db.execute("DELETE FROM conversations WHERE deleted_s < ?", (oldest,))
        db.execute("COMMIT")

    def _set_damaged_aside(self, error: sqlite3.DatabaseError) -> None:
        stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(self._now()))
        aside = self.path.with_name(f"{self.path.name}.damaged-{stamp}")
        self.path.rename(aside)
        for suffix in ("-wal", "-shm"):
            self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)
        self.notice = (
            f"The file of your chats could not be read ({error}). It was kept as {aside.name}, "
            "and a new one was begun."
        )

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield self._db
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")


def _head(row: tuple[str, str, float, str, str]) -> ConversationHead:
    return ConversationHead(
        id=row[0],
        title=row[1],
        updated_s=row[2],
        settings=ChatSettings.from_json(row[3]),
        draft=row[4],
    )


def _message(row: tuple[object, ...]) -> Message:
    names = [name.strip() for name in _MESSAGE_COLUMNS.split(",")]
    values = dict(zip(names, row, strict=True))
    values["role"] = Role(values["role"])
    values["state"] = MessageState(values["state"])
    return Message(**values)  # type: ignore[arg-type]
