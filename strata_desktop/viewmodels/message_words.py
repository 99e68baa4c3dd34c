"""The words beside a message: counts under an answer, what went wrong, what can be done."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from strata_desktop.viewmodels.messages import Message, MessageState, Role


class MessageAction(enum.Enum):
    """What can be done with a message; the value is the button's text."""

    RETRY = "Try again"
    REGENERATE = "Answer again"
    CONTINUE = "Continue"
    DELETE = "Delete"
    OPEN_MODELS = "Choose a model"
    OPEN_MEMORY = "Show memory"
    NEW_CHAT = "Start a new chat"


@dataclass(frozen=True, slots=True)
class Notice:
    """What stands below a message that did not end normally."""

    text: str
    actions: tuple[MessageAction, ...]
    is_error: bool


_FAILURES: dict[str, tuple[str, tuple[MessageAction, ...]]] = {
    "kv_pool_full": (
        "The memory shared by all conversations is full, and the ones that are running hold it. "
        "Wait until one of them has finished, or stop one, then try again.",
        (MessageAction.RETRY, MessageAction.OPEN_MEMORY),
    ),
    "context_length_exceeded": (
        "This conversation has become longer than the model's context, so there is no room for an "
        "answer. Delete earlier messages, or start a new chat.",
        (MessageAction.RETRY, MessageAction.NEW_CHAT),
    ),
    "model_not_loaded": (
        "No model is loaded, so nothing can answer. Your message is kept.",
        (MessageAction.RETRY, MessageAction.OPEN_MODELS),
    ),
    "offline": (
        "The engine does not answer. Your message is kept; try again when it is back.",
        (MessageAction.RETRY,),
    ),
    "disconnected": (
        "The connection to the engine broke off before the answer was complete.",
        (MessageAction.RETRY,),
    ),
}

_ENDINGS: dict[MessageState, tuple[str, tuple[MessageAction, ...]]] = {
    MessageState.INTERRUPTED: (
        "This answer was interrupted. What had arrived is kept.",
        (MessageAction.CONTINUE, MessageAction.REGENERATE),
    ),
    MessageState.LENGTH: (
        "The answer reached its length limit.",
        (MessageAction.CONTINUE,),
    ),
    MessageState.POOL: (
        "The answer ended early: the memory shared by all conversations is full.",
        (MessageAction.CONTINUE, MessageAction.OPEN_MEMORY),
    ),
}


def notice_for(message: Message) -> Notice | None:
    """Return what to say below a message, None if it ended normally or is still written."""
    if message.role is Role.USER:
        return None
    if message.state is MessageState.FAILED:
        text, actions = _FAILURES.get(
            message.error_code, (message.error_text, (MessageAction.RETRY,))
        )
        return Notice(text or "The answer failed for an unknown reason.", actions, is_error=True)
    if message.state in _ENDINGS:
        text, actions = _ENDINGS[message.state]
        if not message.text and message.state is MessageState.LENGTH and message.thoughts:
            text = "The length limit was used up by thinking, before the first word of the answer."
        elif not message.text:
            text = "This answer was interrupted before its first word."
            actions = (MessageAction.REGENERATE,)
        return Notice(text, actions, is_error=False)
    if message.state is MessageState.STOPPED and not message.text:
        return Notice("Stopped before the first word.", (MessageAction.REGENERATE,), is_error=False)
    if message.state is MessageState.COMPLETE and not message.text.strip():
        return Notice(
            "The model gave an empty answer.", (MessageAction.REGENERATE,), is_error=False
        )
    return None


def thoughts_label(message: Message) -> str:
    """Return the words on the fold of what the model thought."""
    is_thinking = message.is_writing and not message.text
    return "Thinking…" if is_thinking else "Thoughts"


def counts_text(message: Message) -> str:
    """Return e.g. "312 tokens · 18.4 tokens/s", "" if nothing is known."""
    parts = []
    if message.n_tokens:
        parts.append(f"{message.n_tokens:,} token{'' if message.n_tokens == 1 else 's'}")
    if message.tokens_per_s > 0:
        parts.append(f"{message.tokens_per_s:,.1f} tokens/s")
    if message.state is MessageState.STOPPED and message.text:
        parts.append("stopped")
    return " · ".join(parts)
