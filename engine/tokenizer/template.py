"""The chat template of a model: from messages to the prompt text, with its markers told apart.

Templates are code from strangers: `engine.tokenizer.sandbox` runs them, and one that is broken or
tries to escape is replaced by a plain one. Turning the prompt into ids is left to
`engine.tokenizer.prompt`.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from jinja2 import Template
from jinja2.exceptions import SecurityError, TemplateError

from engine.errors import InvalidRequestError
from engine.gguf.metadata import Metadata
from engine.tokenizer.limits import Allowance
from engine.tokenizer.markers import Segment
from engine.tokenizer.messages import Message, forms, normalize
from engine.tokenizer.quoting import Quoting, map_texts
from engine.tokenizer.sandbox import Sandbox
from engine.tokenizer.tokenizer import Tokenizer

log = logging.getLogger(__name__)

CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message.role + '\\n' + message.content }}"
    "{% for call in message.tool_calls or [] %}"
    "{{ '\\n<tool_call>\\n' + call.function | tojson + '\\n</tool_call>' }}"
    "{% endfor %}"
    "{{ '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
"""Stands in where the vocabulary has `<|im_start|>`."""

PLAIN = (
    "{% for message in messages %}"
    "{{ message.role | capitalize + ': ' + message.content }}"
    "{% for call in message.tool_calls or [] %}{{ '\\n' + call.function | tojson }}{% endfor %}"
    "{{ '\\n\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}"
)
"""Stands in everywhere else."""

_FAULTS = (
    TemplateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""What a template that meets something unexpected raises."""

_RESERVED = ("messages", "tools", "add_generation_prompt", "bos_token", "eos_token")

_PROBE = "strata_probe"


@dataclass(frozen=True, slots=True)
class RenderedPrompt:
    """A prompt as text.

    Attributes:
        text: the prompt, as the model would read it.
        segments: the same in pieces; a marker that somebody wrote in a message lies partly in a
            piece that is not markup, so it stays text.
    """

    text: str
    segments: tuple[Segment, ...]


class ChatTemplate:
    """Renders conversations for one model.

    Attributes:
        source: the template in use.
        warnings: what a person should know, such as a replaced template.
    """

    def __init__(
        self,
        source: str | None,
        *,
        control_texts: Collection[str] = (),
        bos_text: str = "",
        eos_text: str = "",
        clock: Callable[[], datetime] = datetime.now,
    ) -> None:
        """Compile and try a template.

        Args:
            source: the file's template; None if it has none.
            control_texts: markers of the vocabulary's control tokens.
            bos_text: marker of BOS, "" if there is none.
            eos_text: marker of EOS, "" if there is none.
            clock: tells `strftime_now` the time.
        """
        self._sandbox = Sandbox()
        self._control_texts = frozenset(control_texts)
        self._names = {"bos_token": bos_text, "eos_token": eos_text}
        self._clock = clock
        self.source = source or ""
        fault = "The file has no chat template" if not source else self._try(source)
        self.warnings: tuple[str, ...] = ()
        if fault:
            is_chatml = "<|im_start|>" in self._control_texts
            self.source = CHATML if is_chatml else PLAIN
            self.warnings = (
                f"{fault}; a plain {'ChatML' if is_chatml else '“User: … Assistant:”'} form is "
                "used instead, so answers may be worse than the model can do.",
            )
            log.warning("%s", self.warnings[0])
        self._template = self._sandbox.compile_source(self.source)
        self._keeps_developer = "developer" in self.source
        self._wants_text_arguments = "tool_calls" in self.source and self._probe_arguments()

    @classmethod
    def from_metadata(
        cls,
        meta: Metadata,
        tokenizer: Tokenizer | None = None,
        *,
        clock: Callable[[], datetime] = datetime.now,
    ) -> ChatTemplate:
        """Read the template of a file.

        Args:
            meta: the file's keys.
            tokenizer: of the same file; built from it when left out.
            clock: tells `strftime_now` the time.
        """
        tokenizer = tokenizer or Tokenizer.from_metadata(meta)
        return cls(
            meta.get_str("tokenizer.chat_template", None),
            control_texts=tokenizer.markers.control_texts,
            bos_text=tokenizer.bos_text,
            eos_text=tokenizer.eos_text,
            clock=clock,
        )

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        variables: Mapping[str, Any] | None = None,
    ) -> RenderedPrompt:
        """Return the prompt for a conversation.

        Args:
            messages: as in a chat request; they are tidied first (`normalize`).
            tools: tool definitions as in a chat request.
            add_generation_prompt: whether the prompt ends where the answer begins.
            variables: further names for the template, such as `enable_thinking`.

        Raises:
            InvalidRequestError: a message is malformed, or the template cannot show this
                conversation in any form.
        """
        extra = {k: v for k, v in (variables or {}).items() if k not in _RESERVED}
        extra["add_generation_prompt"] = add_generation_prompt
        tidy = normalize(messages, keeps_developer=self._keeps_developer)
        for index, tool in enumerate(tools or ()):
            if not isinstance(tool, Mapping):
                raise InvalidRequestError(
                    f"tools[{index}] must be an object with type and function.",
                    param=f"tools[{index}]",
                )
        given = _Given(messages=tidy, tools=list(tools) if tools else None, extra=extra)
        now = self._clock()
        given, text = self._first_that_renders(given, now)
        quoting = Quoting(self._control_texts, [given.messages, given.tools, given.extra])
        if not quoting.is_needed:
            return RenderedPrompt(text, (Segment(text, is_markup=True),))
        return self._told_apart(given, text, quoting, now)

    def _first_that_renders(self, given: _Given, now: datetime) -> tuple[_Given, str]:
        first_fault: Exception | None = None
        for messages in forms(given.messages):
            form = given.with_messages(_with_arguments(messages, self._argument_form))
            for attempt in (form, form.with_messages(_with_arguments(messages, _wrapped))):
                try:
                    return attempt, self._run(self._template, attempt, now)
                except SecurityError as fault:
                    raise InvalidRequestError(
                        f"The model's chat template was stopped: {fault}.", param="messages"
                    ) from fault
                except _FAULTS as fault:
                    first_fault = first_fault or fault
                if attempt.messages == _with_arguments(messages, _wrapped):
                    break
        raise InvalidRequestError(
            f"The model's chat template cannot show this conversation: {first_fault}",
            param="messages",
        ) from first_fault

    def _told_apart(
        self, given: _Given, text: str, quoting: Quoting, now: datetime
    ) -> RenderedPrompt:
        """Return the prompt with all markers of message text quoted.

        The strongest quoting that leaves the template's doing unchanged is taken; the weakest
        one is safe too, unless a template builds a marker from parts of a message.
        """
        strong, weak = quoting.quote_all, quoting.quote_markers
        for of_answers, of_others in ((strong, strong), (weak, strong), (weak, weak)):
            try:
                quoted = given.quoted(of_answers, of_others)
                rendered = self._run(self._template, quoted, now)
            except _FAULTS as fault:
                log.debug("the template failed on quoted messages: %s", fault)
                continue
            if quoting.unquote(rendered) == text or of_others is weak:
                return RenderedPrompt(quoting.unquote(rendered), quoting.segments(rendered))
        raise InvalidRequestError(
            "A message holds one of the model's control markers in a place where the chat "
            "template depends on it. Take the marker out of the message.",
            param="messages",
        )

    def _run(
        self, template: Template, given: _Given, now: datetime, *, seconds: float = 10.0
    ) -> str:
        names = {
            **given.extra,
            **self._names,
            "messages": given.messages,
            "tools": given.tools,
        }
        n_chars = len(json.dumps(names, ensure_ascii=False, default=str))
        return self._sandbox.render(
            template, names, Allowance.for_input(n_chars, now=now, seconds=seconds)
        )

    def _try(self, source: str) -> str:
        """Return why the template cannot be used, "" if it can."""
        user: Message = {"role": "user", "content": "Hello"}
        answer: Message = {"role": "assistant", "content": "Hi."}
        system: Message = {"role": "system", "content": "Be brief."}
        fault: Exception | None = None
        works = False
        for messages in ([user], [system, user], [user, answer, user]):
            given = _Given(messages=messages, tools=None, extra={"add_generation_prompt": True})
            try:
                template = self._sandbox.compile_source(source)
                works = bool(self._run(template, given, self._clock(), seconds=3.0)) or works
            except SecurityError as error:
                return f"The chat template in the file was blocked ({error})"
            except _FAULTS as error:
                fault = fault or error
        if works:
            return ""
        return f"The chat template in the file is broken ({fault or 'it writes nothing'})"

    def _probe_arguments(self) -> bool:
        """Return whether the template wants tool arguments as JSON text, not as an object."""
        call = {"id": "call_1", "type": "function", "function": {"name": _PROBE}}

        def shown(arguments: object) -> str | None:
            function = {"name": _PROBE, "arguments": arguments}
            messages: list[Message] = [
                {"role": "user", "content": "Hello"},
                {
                    "role": "assistant",
                    "content": "",
                    "tool_calls": [{**call, "function": function}],
                },
            ]
            given = _Given(messages=messages, tools=None, extra={"add_generation_prompt": False})
            try:
                return self._run(self._template, given, self._clock(), seconds=3.0)
            except _FAULTS:
                return None

        as_object = shown({_PROBE: "x"})
        as_text = shown(json.dumps({_PROBE: "x"}))
        if as_text is None:
            return False
        return as_object is None or f"'{_PROBE}'" in as_object

    def _argument_form(self, arguments: object) -> object:
        if self._wants_text_arguments and not isinstance(arguments, str):
            return json.dumps(arguments, ensure_ascii=False)
        return arguments


@dataclass(frozen=True, kw_only=True, slots=True)
class _Given:
    """What a template is given.

    Attributes:
        messages: the conversation in one of its forms.
        tools: tool definitions, None if there are none.
        extra: further names.
    """

    messages: list[Message]
    tools: list[Mapping[str, Any]] | None
    extra: Mapping[str, Any]

    def with_messages(self, messages: list[Message]) -> _Given:
        return _Given(messages=messages, tools=self.tools, extra=self.extra)

    def quoted(self, of_answers: Callable[[str], str], of_others: Callable[[str], str]) -> _Given:
        """Return the same with all text quoted, answers in their own way; roles stay."""
        return _Given(
            messages=[
                {
                    **map_texts(
                        message, of_answers if message["role"] == "assistant" else of_others
                    ),
                    "role": message["role"],
                }
                for message in self.messages
            ],
            tools=map_texts(self.tools, of_others),
            extra=map_texts(self.extra, of_others),
        )


def _with_arguments(messages: list[Message], change: Callable[[object], object]) -> list[Message]:
    """Return the messages with the arguments of all tool calls changed."""
    return [
        message
        if not message.get("tool_calls")
        else {
            **message,
            "tool_calls": [
                {
                    **call,
                    "function": {
                        **call["function"],
                        "arguments": change(call["function"]["arguments"]),
                    },
                }
                for call in message["tool_calls"]
            ],
        }
        for message in messages
    ]


def _wrapped(arguments: object) -> object:
    """Return arguments that are no JSON object inside one, for templates that insist on one."""
    return {"arguments": arguments} if isinstance(arguments, str) else arguments
