"""Conversations as clients send them, made into what chat templates expect.

It checks and tidies messages, and offers gentler forms of a conversation for templates that
refuse the first. Rendering is left to `engine.tokenizer.template`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from engine.errors import InvalidRequestError
from engine.tokenizer.tokenizer import clean

Message = dict[str, Any]
"""A tidy message: `role`, `content` (always a str), and what else the role may have."""

_ROLES = ("system", "developer", "user", "assistant", "tool")
_TEXT_PARTS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
_OTHER_INPUTS = {
    "image_url": "image",
    "image": "image",
    "input_image": "image",
    "input_audio": "audio",
    "audio": "audio",
    "video_url": "video",
    "video": "video",
    "file": "file",
    "input_file": "file",
}


def normalize(
    messages: Sequence[Mapping[str, Any]], *, keeps_developer: bool = False
) -> list[Message]:
    """Return a conversation in the form templates expect; doing it twice changes nothing.

    Content becomes one text, tool arguments become objects where they are JSON objects (else the
    raw text stays), missing tool-call ids are made up and paired by order, and assistant turns
    without text or calls are left out.

    Args:
        messages: as in the body of a chat request.
        keeps_developer: whether the role `developer` stays; else it becomes `system`.

    Raises:
        InvalidRequestError: a message is malformed, or holds an input the model has not.
    """
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Sequence):
        raise InvalidRequestError("messages must be a list of messages.", param="messages")
    calls = _CallIds()
    tidy: list[Message] = []
    for index, message in enumerate(messages):
        where = f"messages[{index}]"
        if not isinstance(message, Mapping):
            raise InvalidRequestError(
                f"{where} must be an object with role and content.", param=where
            )
        one = _normalize_one(message, where, calls)
        if one["role"] == "developer" and not keeps_developer:
            one["role"] = "system"
        if one["role"] == "assistant" and _is_blank(one):
            continue
        tidy.append(one)
    if not tidy:
        raise InvalidRequestError(
            "messages has nothing to answer: give at least one message with text.",
            param="messages",
        )
    return tidy


def _is_blank(message: Message) -> bool:
    has_thoughts = str(message.get("reasoning_content") or "").strip()
    return not message["content"].strip() and not message.get("tool_calls") and not has_thoughts


class _CallIds:
    """Ids of tool calls, so that answers without an id find theirs by order."""

    def __init__(self) -> None:
        self._n_made = 0
        self._open: list[tuple[str, str]] = []

    def open(self, call_id: object, name: str) -> str:
        """Note a call and return its id, a new one if it has none."""
        if not isinstance(call_id, str) or not call_id:
            self._n_made += 1
            call_id = f"call_{self._n_made}"
        self._open.append((call_id, name))
        return call_id

    def answer(self, call_id: object) -> tuple[str, str]:
        """Return id and function name of the call that is answered; "" where unknown."""
        for index, (open_id, name) in enumerate(self._open):
            if open_id == call_id or not isinstance(call_id, str) or not call_id:
                del self._open[index]
                return open_id, name
        return (call_id if isinstance(call_id, str) else ""), ""


def _normalize_one(message: Mapping[str, Any], where: str, calls: _CallIds) -> Message:
    role = message.get("role")
    role = "tool" if role == "function" else role
    if role not in _ROLES:
        raise InvalidRequestError(
            f"{where}.role must be one of {', '.join(_ROLES)}, got {role!r}.",
            param=f"{where}.role",
        )
    tidy: Message = {"role": role, "content": _text(message.get("content"), f"{where}.content")}
    name = message.get("name")
    if isinstance(name, str) and name:
        tidy["name"] = clean(name)
    if role == "assistant":
        thoughts = message.get("reasoning_content") or message.get("reasoning")
        if isinstance(thoughts, str) and thoughts:
            tidy["reasoning_content"] = clean(thoughts)
        tool_calls = _tool_calls(message, where, calls)
        if tool_calls:
            tidy["tool_calls"] = tool_calls
    elif role == "tool":
        call_id, function = calls.answer(message.get("tool_call_id"))
        tidy["tool_call_id"] = clean(call_id)
        if function:
            tidy.setdefault("name", function)
    return tidy


def _text(content: object, where: str) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return clean(content)
    if isinstance(content, Mapping):
        content = [content]
    if not isinstance(content, Sequence) or isinstance(content, bytes):
        raise InvalidRequestError(
            f"{where} must be a text or a list of text parts, got {type(content).__name__}.",
            param=where,
        )
    return "".join(_part_text(part, f"{where}[{n}]") for n, part in enumerate(content))


def _part_text(part: object, where: str) -> str:
    if isinstance(part, str):
        return clean(part)
    kind = part.get("type", "text") if isinstance(part, Mapping) else None
    if isinstance(kind, str) and isinstance(part, Mapping):
        if kind in _OTHER_INPUTS:
            raise InvalidRequestError(
                f"The model has no {_OTHER_INPUTS[kind]} input; send text only.", param=where
            )
        text = part.get(_TEXT_PARTS.get(kind, ""))
        if kind in _TEXT_PARTS and (text is None or isinstance(text, str)):
            return clean(text or "")
    raise InvalidRequestError(
        f'{where} must be a text part such as {{"type": "text", "text": "..."}}.', param=where
    )


def _tool_calls(message: Mapping[str, Any], where: str, calls: _CallIds) -> list[Message]:
    listed = message.get("tool_calls")
    if listed is None and isinstance(message.get("function_call"), Mapping):
        listed = [{"function": message["function_call"]}]
    if listed is None:
        return []
    if not isinstance(listed, Sequence) or isinstance(listed, str | bytes):
        raise InvalidRequestError(
            f"{where}.tool_calls must be a list.", param=f"{where}.tool_calls"
        )
    tidy: list[Message] = []
    for n, call in enumerate(listed):
        at = f"{where}.tool_calls[{n}]"
        function = call.get("function") if isinstance(call, Mapping) else None
        name = function.get("name") if isinstance(function, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(name, str):
            raise InvalidRequestError(
                f"{at} must have a function with a name.", param=f"{at}.function"
            )
        tidy.append(
            {
                "id": clean(calls.open(call.get("id"), clean(name))),
                "type": "function",
                "function": {"name": clean(name), "arguments": _arguments(function)},
            }
        )
    return tidy


def _arguments(function: Mapping[str, Any]) -> dict[str, Any] | str:
    """Return tool arguments as an object; text that is no JSON object stays as it is."""
    arguments = function.get("arguments")
    if arguments is None or arguments == "":
        return {}
    try:
        parsed = json.loads(arguments) if isinstance(arguments, str) else arguments
        if isinstance(parsed, Mapping):
            return dict(_clean_all(parsed))
        text = arguments if isinstance(arguments, str) else json.dumps(parsed, ensure_ascii=False)
    except (ValueError, RecursionError):  # broken, or nested thousands deep
        text = str(arguments)
    return clean(text) if text.strip() else {}


def _clean_all(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, Mapping):
        return {_clean_all(key): _clean_all(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_clean_all(item) for item in value]
    return value


def forms(conversation: list[Message]) -> Iterator[list[Message]]:
    """Yield the conversation, then gentler forms for templates that refuse it.

    The second merges neighbouring turns of one role with a blank line; the third also moves late
    system messages into the user turn that follows; the last moves every system message there.
    Each form comes only if it differs from the one before.

    Args:
        conversation: tidy messages.
    """
    seen = conversation
    yield seen
    steps: tuple[Callable[[list[Message]], list[Message]], ...] = (
        _merge_neighbours,
        lambda turns: _fold_system(turns, keeps_first=True),
        lambda turns: _fold_system(turns, keeps_first=False),
    )
    for step in steps:
        form = step(seen)
        if form != seen:
            seen = form
            yield seen


def _merge_neighbours(turns: list[Message]) -> list[Message]:
    merged: list[Message] = []
    for turn in turns:
        last = merged[-1] if merged else None
        if (
            last is not None
            and last["role"] == turn["role"]
            and turn["role"] in ("system", "user", "assistant")
            and not last.get("tool_calls")
        ):
            texts = [text for text in (last["content"], turn["content"]) if text]
            merged[-1] = {**last, **turn, "content": "\n\n".join(texts)}
        else:
            merged.append(turn)
    return merged


def _fold_system(turns: list[Message], *, keeps_first: bool) -> list[Message]:
    folded: list[Message] = []
    waiting: list[str] = []
    for index, turn in enumerate(turns):
        if turn["role"] in ("system", "developer") and not (keeps_first and index == 0):
            waiting.append(turn["content"])
        elif turn["role"] == "user" and waiting:
            folded.append({**turn, "content": "\n\n".join([*waiting, turn["content"]])})
            waiting = []
        else:
            folded.append(turn)
    if waiting:
        folded.append({"role": "user", "content": "\n\n".join(waiting)})
    return _merge_neighbours(folded)
