"""Running a chat template that came with a file from a stranger: what it may do, and how much.

Jinja's own sandbox keeps it from reaching Python; this adds limits on loops, time and text, and
the names that templates written for Transformers expect. What goes into a template and what
happens when it fails is left to `engine.tokenizer.template`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, NoReturn

from jinja2 import Template, nodes, pass_context
from jinja2.exceptions import SecurityError, TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from engine.tokenizer.filters import BANNED_FILTERS, allowance_of, template_filters, write_out
from engine.tokenizer.limits import (
    MAX_SOURCE_CHARS,
    Allowance,
    TemplateLimitError,
    check_bits,
    check_fields,
    check_product,
    checked_args,
)


class TemplateRefusal(TemplateError):
    """The template itself says that it cannot show this conversation (`raise_exception`)."""


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
        if node.test is not None:  # rounds that `if` leaves out cost too
            step = _filtered(nodes.Const(1, lineno=node.lineno), "_spend")
            node.test = nodes.And(step, node.test, lineno=node.lineno)
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
            finalize=write_out,
            extensions=[loopcontrols, _Generation],
        )
        self._allowance: ContextVar[Allowance] = ContextVar("allowance")
        for name in BANNED_FILTERS:
            del self.filters[name]
        self.filters.update(template_filters())
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

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """Return a `str.format` that is safe and refuses enormous fields; None for others."""
        inner = super().wrap_str_format(value)
        if inner is None:
            return None

        def formatted(*args: Any, **kwargs: Any) -> str:
            check_fields(str(value.__self__))
            self.allowance.check_value([*args, *kwargs.values()])
            return inner(*args, **kwargs)

        return formatted

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Compute a binary operation whose result could be huge."""
        allowance = self.allowance
        allowance.spend(1)
        if operator == "+":
            if hasattr(left, "__len__") and hasattr(right, "__len__"):
                allowance.check_length(len(left) + len(right))
        elif operator == "*":
            check_product(allowance, left, right)
        elif operator == "**":
            if isinstance(left, int) and isinstance(right, int) and abs(right) > 1:
                check_bits(left.bit_length() * abs(right))
        elif isinstance(left, str | bytes):
            check_fields(str(left))
            allowance.check_value(right)
        return super().call_binop(context, operator, left, right)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        """Call something, if it is safe and its result cannot be huge."""
        allowance = __self.allowance
        allowance.spend(1)
        owner = getattr(__obj, "__self__", None)
        if isinstance(owner, str | bytes | int | float):
            args = checked_args(allowance, owner, __obj.__name__, args)
            for value in (*args, *kwargs.values()):
                allowance.check_value(value)
        result = super().call(__context, __obj, *args, **kwargs)
        if isinstance(result, str | bytes | list | tuple):
            allowance.check_length(len(result))
        elif __obj is dict:
            allowance.check_value(result)
        return result


def _raise_exception(message: object) -> NoReturn:
    raise TemplateRefusal(str(message))


@pass_context
def _strftime_now(context: Context, pattern: str) -> str:
    return allowance_of(context).now.strftime(pattern)
