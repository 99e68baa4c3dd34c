"""From a request to prompt ids: chat messages through the template, or plain text.

It joins a tokenizer and a chat template and holds no rules of its own but for BOS.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.tokenizer.template import ChatTemplate, RenderedPrompt
from engine.tokenizer.tokenizer import Tokenizer


class PromptBuilder:
    """Makes prompt ids for one model.

    Attributes:
        tokenizer: of the model.
        template: of the model.
    """

    def __init__(self, tokenizer: Tokenizer, template: ChatTemplate) -> None:
        self.tokenizer = tokenizer
        self.template = template

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a person should know about this model's tokenizer and template."""
        return self.tokenizer.warnings + self.template.warnings

    def chat_ids(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        variables: Mapping[str, Any] | None = None,
    ) -> list[int]:
        """Return the ids of a conversation; the arguments are those of `ChatTemplate.render`.

        Raises:
            InvalidRequestError: as `ChatTemplate.render`.
        """
        return self.ids_of(
            self.template.render(
                messages,
                tools=tools,
                add_generation_prompt=add_generation_prompt,
                variables=variables,
            )
        )

    def ids_of(self, prompt: RenderedPrompt) -> list[int]:
        """Return the ids of a rendered prompt, with one BOS in front if the model wants it."""
        return self.tokenizer.encode_segments(prompt.segments, add_bos=self.tokenizer.adds_bos)

    def message_ends(self, prompt_ids: npt.NDArray[np.int32]) -> tuple[int, ...]:
        """Return the positions of a prompt where a message ends, ascending.

        A message ends behind each token that ends an answer; nobody can type one into a message.
        Templates that end their messages with plain text have none.

        Args:
            prompt_ids: i32[n_prompt].
        """
        is_end = np.isin(prompt_ids, list(self.tokenizer.end_ids))
        return tuple(int(at) + 1 for at in np.flatnonzero(is_end))

    def text_ids(self, text: str, *, parse_special: bool = True) -> list[int]:
        """Return the ids of a prompt that is used as it is, with BOS if the model wants it.

        Args:
            text: the whole prompt.
            parse_special: whether markers in it become control tokens; the caller of a plain
                completion writes the whole prompt, so they do.
        """
        return self.tokenizer.encode(
            text, parse_special=parse_special, add_bos=self.tokenizer.adds_bos
        )
