"""Filters of the chat template sandbox: jinja's own where results could be huge, and `tojson`.

The rest of the sandbox is in `engine.tokenizer.sandbox`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from jinja2 import pass_context
from jinja2.filters import FILTERS
from jinja2.runtime import Context, Undefined

from engine.tokenizer.limits import (
    MAX_PADDING,
    Allowance,
    TemplateLimitError,
    check_fields,
    check_replacement,
    n_joined,
)

BANNED_FILTERS = ("pprint", "striptags", "urlize", "wordwrap", "xmlattr")
"""Filters no known template uses, whose cost grows faster than their input."""


def template_filters() -> dict[str, Callable[..., Any]]:
    """Return the filters by the names templates use; those with `_` are put in by the sandbox."""
    return {
        "_spend": _spend,
        "_concat": _concat,
        "_checked": _checked,
        "tojson": _to_json,
        "batch": _narrow("batch"),
        "center": _narrow("center"),
        "indent": _indent,
        "round": _narrow("round"),
        "slice": _narrow("slice"),
        "format": _format,
        "join": _join,
        "replace": _replace,
        "string": _string,
        "sum": _sum,
    }


def allowance_of(context: Context) -> Allowance:
    """Return the allowance of the rendering that runs."""
    allowance = getattr(context.environment, "allowance", None)
    assert isinstance(allowance, Allowance)
    return allowance


@pass_context
def write_out(context: Context, value: object) -> object:
    """Spend the length of what is written out."""
    if isinstance(value, str):
        allowance_of(context).spend(1 + len(value))
    elif not isinstance(value, Undefined):
        allowance_of(context).check_value(value)
        text = str(value)
        allowance_of(context).spend(1 + len(text))
        return text
    return value


@pass_context
def _spend(context: Context, n_steps: int) -> bool:
    allowance_of(context).spend(abs(n_steps))
    return True


@pass_context
def _checked(context: Context, value: object) -> object:
    allowance_of(context).check_value(value)
    return value


@pass_context
def _string(context: Context, value: object) -> str:
    allowance_of(context).check_value(value)
    return str(value)


@pass_context
def _concat(context: Context, values: Sequence[object]) -> str:
    allowance = allowance_of(context)
    allowance.spend(1)
    allowance.check_value(values)
    return "".join([str(value) for value in values])


@pass_context
def _format(context: Context, value: object, *args: object, **kwargs: object) -> str:
    pattern = str(value)
    check_fields(pattern)
    allowance_of(context).check_value([*args, *kwargs.values()])
    return pattern % (kwargs or args)


@pass_context
def _join(
    context: Context, value: Iterable[Any], d: str = "", attribute: str | int | None = None
) -> str:
    allowance = allowance_of(context)
    items: list[Any] = list(value)
    if attribute is not None:
        items = list(
            context.environment.call_filter(
                "map", items, kwargs={"attribute": attribute}, context=context
            )
        )
    allowance.check_value(items)
    pieces = [str(item) for item in items]
    allowance.check_length(n_joined(str(d), pieces))
    return str(d).join(pieces)


@pass_context
def _replace(
    context: Context, value: object, old: object, new: object, count: int | None = None
) -> str:
    text, old_text, new_text = str(value), str(old), str(new)
    check_replacement(allowance_of(context), text, old_text, new_text)
    return text.replace(old_text, new_text, -1 if count is None else count)


@pass_context
def _sum(
    context: Context, value: Iterable[Any], attribute: str | int | None = None, start: Any = 0
) -> Any:
    if not isinstance(start, int | float):
        raise TemplateLimitError("it adds up things that are no numbers")
    items: Iterable[Any] = value
    if attribute is not None:
        items = context.environment.call_filter(
            "map", value, kwargs={"attribute": attribute}, context=context
        )
    return sum(items, start)


def _narrow(name: str) -> Callable[..., Any]:
    """Return a filter of jinja's that refuses enormous widths and counts."""
    inner: Callable[..., Any] = FILTERS[name]

    def narrow(*args: Any, **kwargs: Any) -> Any:
        for value in (*args[1:], *kwargs.values()):
            if isinstance(value, int) and abs(value) > MAX_PADDING:
                raise TemplateLimitError(f"it asks {name} for {value}")
            if isinstance(value, str) and len(value) > MAX_PADDING:
                raise TemplateLimitError(f"it asks {name} for a padding of {len(value)} letters")
        return inner(*args, **kwargs)

    return narrow


@pass_context
def _indent(
    context: Context, value: object, width: int | str = 4, *args: Any, **kwargs: Any
) -> Any:
    text = str(value)
    n_added = width if isinstance(width, int) else len(width)
    allowance_of(context).check_length(len(text) + (text.count("\n") + 1) * n_added)
    return FILTERS["indent"](text, width, *args, **kwargs)


@pass_context
def _to_json(
    context: Context,
    value: object,
    ensure_ascii: bool = False,  # noqa: FBT001, FBT002 - a template's argument
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,  # noqa: FBT001, FBT002
) -> str:
    """Write JSON as Transformers does: other letters as they are, nothing escaped for HTML."""
    if isinstance(indent, int) and indent > 16 or isinstance(indent, str) and len(indent) > 16:
        raise TemplateLimitError("it indents JSON by more than 16")
    allowance_of(context).check_value(value)
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )
