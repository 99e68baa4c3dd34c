"""Running a chat template that came with a file from a stranger: what it may do, and how much.

Jinja's own sandbox keeps it from reaching Python; this adds limits on loops, time and text, and
the names that templates written for Transformers expect. What goes into a template and what
happens when it fails is left to `engine.tokenizer.template`.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import Template, nodes, pass_context
from jinja2.exceptions import SecurityError, TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.filters import FILTERS
from jinja2.parser import Parser
from jinja2.runtime import Context, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

MAX_SOURCE_CHARS = 1_000_000
"""Longest template that is compiled; the longest known ones have about 20,000."""
MAX_PADDING = 10_000
"""Widest field, indent or batch a template may ask for."""
MAX_INT_BITS = 4096
_BANNED_FILTERS = ("pprint", "striptags", "urlize", "wordwrap", "xmlattr")
_BANNED_METHODS = frozenset({"translate", "maketrans", "format_map", "to_bytes", "expandtabs"})
_WIDE_FIELD = re.compile(r"\d{5}|%[-+ #0]*\*|%[^%a-zA-Z]*\.\*|\{[^{}]*:[^{}]*\{")


class TemplateRefusal(TemplateError):
    """The template itself says that it cannot show this conversation (`raise_exception`)."""


class TemplateLimitError(SecurityError):
    """The template wants more time, text or loops than any honest one needs."""


@dataclass(kw_only=True, slots=True)
class Allowance:
    """What one rendering may still use.

    Attributes:
        n_steps: loop rounds, calls and characters written, together.
        max_chars: longest text or list it may make.
        deadline_s: `time.monotonic()` at which it has to be done.
        now: the time `strftime_now` tells, the same during one rendering.
    """

    n_steps: int
    max_chars: int
    deadline_s: float
    now: datetime

    @classmethod
    def for_input(cls, n_chars: int, *, now: datetime, seconds: float = 10.0) -> Allowance:
        """Return the allowance for a conversation of so many characters."""
        return cls(
            n_steps=5_000_000 + 40 * n_chars,
            max_chars=500_000 + 8 * n_chars,
            deadline_s=time.monotonic() + seconds,
            now=now,
        )

    def spend(self, n_steps: int) -> None:
        """Use some of it.

        Raises:
            TemplateLimitError: nothing is left.
        """
        self.n_steps -= n_steps
        if self.n_steps < 0:
            raise TemplateLimitError("it loops or writes without end")
        if time.monotonic() > self.deadline_s:
            raise TemplateLimitError("it takes too long")

    def check_length(self, n_items: int) -> None:
        """Refuse a text or list that would be too long.

        Raises:
            TemplateLimitError: it would.
        """
        if n_items > self.max_chars:
            raise TemplateLimitError(f"it makes a text or list longer than {self.max_chars}")

    def check_value(self, value: object) -> None:
        """Refuse a value that would be too long when written out.

        Nested lists that hold one another many times are small in memory and endless in writing.

        Raises:
            TemplateLimitError: it would.
        """
        n_chars = 0
        pending = [value]
        while pending:
            item = pending.pop()
            if isinstance(item, str | bytes):
                n_chars += len(item)
            elif isinstance(item, Mapping):
                pending.extend(item.keys())
                pending.extend(item.values())
            elif isinstance(item, list | tuple):
                pending.extend(item)
            n_chars += 1
            if n_chars + len(pending) > self.max_chars:
                self.check_length(n_chars + len(pending))


class _Generation(Extension):
    """`{% generation %}` marks the answer for training; here it changes nothing."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Meter(NodeTransformer):
    """Adds to a template's tree what spends its allowance."""

    def visit_For(self, node: nodes.For) -> nodes.Node:
        self.generic_visit(node)
        node.body.insert(0, _spending(node.body, node.lineno))
        return node

    def visit_Macro(self, node: nodes.Macro) -> nodes.Node:
        self.generic_visit(node)
        node.body.insert(0, _spending(node.body, node.lineno))
        return node

    def visit_CallBlock(self, node: nodes.CallBlock) -> nodes.Node:
        self.generic_visit(node)
        node.body.insert(0, _spending(node.body, node.lineno))
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return _filtered(nodes.List(node.nodes, lineno=node.lineno), "_concat")

    def visit_List(self, node: nodes.List) -> nodes.Node:
        self.generic_visit(node)
        return _filtered(node, "_checked") if node.items else node

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:
        self.generic_visit(node)
        return _filtered(node, "_checked") if node.ctx == "load" and node.items else node

    def visit_Dict(self, node: nodes.Dict) -> nodes.Node:
        self.generic_visit(node)
        return _filtered(node, "_checked") if node.items else node


def _spending(body: Sequence[nodes.Node], lineno: int) -> nodes.Node:
    n_chars = sum(len(text.data) for node in body for text in [*node.find_all(nodes.TemplateData)])
    return nodes.ExprStmt(
        _filtered(nodes.Const(1 + n_chars, lineno=lineno), "_spend"), lineno=lineno
    )


def _filtered(node: nodes.Expr, name: str) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)


class Sandbox(ImmutableSandboxedEnvironment):
    """Compiles and renders templates of unknown origin.

    Names and white space are as Transformers has them: blocks are trimmed, loop controls exist,
    `tojson` keeps non-ASCII letters, and `raise_exception`, `strftime_now` and
    `{% generation %}` are there.
    """

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            optimized=False,  # nothing of a template runs while it is compiled
            cache_size=0,
            finalize=_write,
            extensions=[loopcontrols, _Generation],
        )
        self._allowance: ContextVar[Allowance] = ContextVar("allowance")
        for name in _BANNED_FILTERS:
            del self.filters[name]
        self.filters.update(
            {
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
        )
        del self.globals["lipsum"]
        self.globals["raise_exception"] = _raise_exception
        self.globals["strftime_now"] = _strftime_now

    def compile_source(self, source: str) -> Template:
        """Return a template ready to render; nothing of it is run.

        Raises:
            TemplateLimitError: it is absurdly long.
            TemplateError: it is no valid template.
        """
        if len(source) > MAX_SOURCE_CHARS:
            raise TemplateLimitError(f"it has more than {MAX_SOURCE_CHARS} characters")
        return self.from_string(source)

    def render(self, template: Template, variables: Mapping[str, Any], allowance: Allowance) -> str:
        """Return what a template makes of the variables.

        Args:
            template: from `compile_source`.
            variables: names it sees.
            allowance: what it may use; it is spent.

        Raises:
            TemplateRefusal: the template says so.
            SecurityError: it tried to reach out of the sandbox, or used up its allowance.
            TemplateError: it failed on these variables. Faults of plain Python operations in it
                (TypeError, KeyError and so on) come through as they are.
        """
        token = self._allowance.set(allowance)
        try:
            parts: list[str] = []
            n_chars = 0
            for part in template.generate(variables):
                n_chars += len(part)
                allowance.check_length(n_chars)
                parts.append(part)
            return "".join(parts)
        finally:
            self._allowance.reset(token)

    @property
    def allowance(self) -> Allowance:
        """Of the rendering that runs in this thread."""
        return self._allowance.get()

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        metered = _Meter().visit(tree)
        assert isinstance(metered, nodes.Template)
        return metered

    def unsafe_undefined(self, obj: Any, attribute: str) -> NoReturn:
        """Refuse at once what a template may not see, instead of showing it as empty."""
        raise SecurityError(
            f"it reaches for {attribute!r} of a {type(obj).__name__}, which no template may"
        )

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Compute a binary operation whose result could be huge."""
        allowance = self.allowance
        allowance.spend(1)
        if operator == "+":
            if hasattr(left, "__len__") and hasattr(right, "__len__"):
                allowance.check_length(len(left) + len(right))
        elif operator == "*":
            _check_product(allowance, left, right)
        elif operator == "**":
            if isinstance(left, int) and isinstance(right, int) and abs(right) > 1:
                _check_bits(left.bit_length() * abs(right))
        elif isinstance(left, str | bytes):
            _check_fields(str(left))
            allowance.check_value(right)
        return super().call_binop(context, operator, left, right)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        """Call something, if it is safe and its result cannot be huge."""
        allowance = __self.allowance
        allowance.spend(1)
        owner = getattr(__obj, "__self__", None)
        if isinstance(owner, str | bytes | int | float):
            args = _checked_args(allowance, owner, __obj.__name__, args)
            for value in (*args, *kwargs.values()):
                allowance.check_value(value)
        result = super().call(__context, __obj, *args, **kwargs)
        if isinstance(result, str | bytes | list | tuple):
            allowance.check_length(len(result))
        elif __obj is dict:
            allowance.check_value(result)
        return result


def _allowance_of(context: Context) -> Allowance:
    sandbox = context.environment
    assert isinstance(sandbox, Sandbox)
    return sandbox.allowance


def _check_bits(n_bits: int) -> None:
    if n_bits > MAX_INT_BITS:
        raise TemplateLimitError("it computes a number of thousands of digits")


def _check_product(allowance: Allowance, left: object, right: object) -> None:
    for many, times in ((left, right), (right, left)):
        if isinstance(times, int) and isinstance(many, str | bytes | list | tuple):
            allowance.check_length(len(many) * times)
    if isinstance(left, int) and isinstance(right, int):
        _check_bits(left.bit_length() + right.bit_length())


def _check_fields(pattern: str) -> None:
    if _WIDE_FIELD.search(pattern):
        raise TemplateLimitError("it formats a field of enormous or computed width")


def _checked_args(
    allowance: Allowance, owner: object, name: str, args: tuple[Any, ...]
) -> tuple[Any, ...]:
    """Return the arguments for a method of a text or number, if its result cannot be huge."""
    if name in _BANNED_METHODS:
        raise TemplateLimitError(f"it calls {name}(), which no template may")
    if name in ("ljust", "rjust", "center", "zfill"):
        for value in args:
            if isinstance(value, int) and value > MAX_PADDING:
                raise TemplateLimitError(f"it pads a text to {value} characters")
    if name == "format":
        _check_fields(str(owner))
    if isinstance(owner, str):
        if name == "replace" and len(args) >= 2:
            _check_replacement(allowance, owner, args[0], args[1])
        if name == "join" and args:
            pieces = list(args[0])
            allowance.check_length(_n_joined(owner, pieces))
            return (pieces, *args[1:])
    return args


def _check_replacement(allowance: Allowance, text: str, old: object, new: object) -> None:
    if isinstance(old, str) and isinstance(new, str):
        allowance.check_length(len(text) + text.count(old) * max(0, len(new) - len(old)))


def _n_joined(separator: str, pieces: Sequence[object]) -> int:
    n_chars = sum(len(piece) for piece in pieces if isinstance(piece, str | bytes))
    return n_chars + len(separator) * len(pieces)


@pass_context
def _write(context: Context, value: object) -> object:
    """Spend the length of what is written out."""
    if isinstance(value, str):
        _allowance_of(context).spend(1 + len(value))
    elif not isinstance(value, Undefined):
        _allowance_of(context).check_value(value)
        text = str(value)
        _allowance_of(context).spend(1 + len(text))
        return text
    return value


@pass_context
def _spend(context: Context, n_steps: int) -> None:
    _allowance_of(context).spend(abs(n_steps))


@pass_context
def _checked(context: Context, value: object) -> object:
    _allowance_of(context).check_value(value)
    return value


@pass_context
def _string(context: Context, value: object) -> str:
    _allowance_of(context).check_value(value)
    return str(value)


@pass_context
def _concat(context: Context, values: Sequence[object]) -> str:
    allowance = _allowance_of(context)
    allowance.spend(1)
    allowance.check_value(values)
    return "".join([str(value) for value in values])


@pass_context
def _format(context: Context, value: object, *args: object, **kwargs: object) -> str:
    pattern = str(value)
    _check_fields(pattern)
    _allowance_of(context).check_value([*args, *kwargs.values()])
    return pattern % (kwargs or args)


@pass_context
def _join(
    context: Context, value: Iterable[Any], d: str = "", attribute: str | int | None = None
) -> str:
    allowance = _allowance_of(context)
    items: list[Any] = list(value)
    if attribute is not None:
        items = list(
            context.environment.call_filter(
                "map", items, kwargs={"attribute": attribute}, context=context
            )
        )
    allowance.check_value(items)
    pieces = [str(item) for item in items]
    allowance.check_length(_n_joined(str(d), pieces))
    return str(d).join(pieces)


@pass_context
def _replace(
    context: Context, value: object, old: object, new: object, count: int | None = None
) -> str:
    text, old_text, new_text = str(value), str(old), str(new)
    _check_replacement(_allowance_of(context), text, old_text, new_text)
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
    _allowance_of(context).check_length(len(text) + (text.count("\n") + 1) * n_added)
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
    _allowance_of(context).check_value(value)
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _raise_exception(message: object) -> NoReturn:
    raise TemplateRefusal(str(message))


@pass_context
def _strftime_now(context: Context, pattern: str) -> str:
    return _allowance_of(context).now.strftime(pattern)
