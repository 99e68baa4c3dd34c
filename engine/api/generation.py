"""From a request body to what the engine is asked: refusals first, then prompt, limits, sampling.

Everything wrong with a body is found here, before the first byte of a reply. Fields that do
nothing yet are refused only if ignoring them would change what the client gets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.api.schema import (
    ChatMessage,
    ChatRequest,
    CompletionRequest,
    CountRequest,
    GenerationFields,
)
from engine.api.served import LoadedModel
from engine.errors import ContextLengthError, InvalidRequestError
from engine.sampling import SamplingParams
from engine.scheduler.request import GenerateRequest

DEFAULT_SAMPLING = SamplingParams(temperature=0.8, top_p=0.95, top_k=40)
"""Used for the fields a body leaves out: lively, but without the unlikely tail."""

MAX_STOP_STRINGS = 64

MAX_CACHE_KEY_CHARS = 1024
"""A conversation's own name goes into every snapshot of the status."""

PROBE_CHARS = 16
"""Characters for each token of the context that are looked at first in a longer prompt. Text has
three to five a token, so nearly every hopeless prompt is refused by this part of it."""

PROBE_GROWTH = 8
"""How much longer the part is that is looked at next."""

PROBE_SLACK_TOKENS = 64
"""A cut may split a word; the whole has at most so many tokens less than its beginning."""

IMAGE_PARTS = frozenset({"image_url", "image", "input_image"})


def chat_request(body: ChatRequest, model: LoadedModel, *, request_id: str) -> GenerateRequest:
    """Make the engine's request of a chat.

    Args:
        body: checked against its schema.
        model: whose template and context count.
        request_id: id of the reply.

    Returns:
        The request, its prompt rendered by the model's template.

    Raises:
        InvalidRequestError: the body asks for something that is not there.
        ContextLengthError: the prompt leaves no room for an answer.
    """
    refuse_missing(body)
    refuse_missing_of_chat(body)
    ids = chat_prompt(body, model, is_limited=True)
    asked, param = body.max_tokens, "max_tokens"
    if body.max_completion_tokens is not None:
        asked, param = body.max_completion_tokens, "max_completion_tokens"
    return _request(body, model, ids, request_id, max_tokens=wanted_tokens(asked, param=param))


def completion_request(
    body: CompletionRequest, model: LoadedModel, *, request_id: str
) -> GenerateRequest:
    """Make the engine's request of a plain completion; no template is applied.

    Args:
        body: checked against its schema.
        model: whose tokenizer and context count.
        request_id: id of the reply.

    Raises:
        InvalidRequestError: the body asks for something that is not there.
        ContextLengthError: the prompt leaves no room for an answer.
    """
    refuse_missing(body)
    _refuse(
        body.suffix not in (None, ""),
        "suffix",
        "Filling in the middle (suffix) is not there yet; send the text before the gap as prompt.",
    )
    _refuse(body.echo is True, "echo", "echo is not there; the client has the prompt already.")
    _refuse(body.best_of not in (None, 1), "best_of", "Only best_of = 1 is there.")
    ids = text_prompt(body.prompt, model)
    max_tokens = wanted_tokens(body.max_tokens, param="max_tokens")
    return _request(body, model, ids, request_id, max_tokens=max_tokens)


def chat_prompt(
    body: ChatRequest | CountRequest, model: LoadedModel, *, is_limited: bool = False
) -> npt.NDArray[np.int32]:
    """Render a conversation with the model's template.

    Args:
        body: checked against its schema.
        model: whose template and tokenizer count.
        is_limited: refuse a prompt far beyond the context before all of it is read.

    Returns:
        i32[n_prompt], the ids.

    Raises:
        InvalidRequestError: a turn holds something the model or its template cannot take.
        ContextLengthError: the prompt is far too long.
    """
    refuse_remote_images(body.messages)
    tools = None if body.tool_choice == "none" else body.tools or None
    rendered = model.prompts.template.render(
        [message.model_dump(exclude_unset=True) for message in body.messages],
        tools=tools,
        variables=body.chat_template_kwargs,
    )
    if is_limited:
        refuse_far_too_long(rendered.text, model, param="messages")
    return np.asarray(model.prompts.ids_of(rendered), np.int32)


def refuse_far_too_long(text: str, model: LoadedModel, *, param: str) -> None:
    """Refuse a text far beyond the context by its beginning.

    To make ids of a log of 10 MB takes ten seconds and half a gigabyte, only to say no.

    Raises:
        ContextLengthError: its beginning alone leaves no room.
    """
    n_chars = PROBE_CHARS * model.context_tokens
    while len(text) > 2 * n_chars:
        n_tokens = len(model.prompts.text_ids(text[:n_chars])) - PROBE_SLACK_TOKENS
        if n_tokens >= model.context_tokens:
            raise too_long(n_tokens, model, param=param, is_at_least=True)
        # Blanks and rules of dashes have a hundred characters a token.
        n_chars *= PROBE_GROWTH


def too_long(
    n_prompt_tokens: int, model: LoadedModel, *, param: str, is_at_least: bool = False
) -> ContextLengthError:
    """Say that a prompt leaves no room for an answer."""
    error = ContextLengthError(
        n_prompt_tokens=n_prompt_tokens,
        context_tokens=model.context_tokens,
        is_at_least=is_at_least,
    )
    error.param = param
    return error


def text_prompt(prompt: str | list[Any], model: LoadedModel) -> npt.NDArray[np.int32]:
    """Make ids of a completion's prompt: text, ids, or a list of one of these.

    Returns:
        i32[n_prompt], the ids.

    Raises:
        InvalidRequestError: several prompts, or ids the model does not have.
        ContextLengthError: the text is far too long.
    """
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
        prompt = prompt[0]
    if isinstance(prompt, str):
        refuse_far_too_long(prompt, model, param="prompt")
        return np.asarray(model.prompts.text_ids(prompt), np.int32)
    if any(isinstance(item, str | list) for item in prompt):
        raise InvalidRequestError(
            f"One prompt a request is there, got {len(prompt)}. Send a request for each.",
            param="prompt",
        )
    n_vocab = model.tokenizer.n_vocab
    for index, item in enumerate(prompt):
        if isinstance(item, bool) or not isinstance(item, int) or not 0 <= item < n_vocab:
            raise InvalidRequestError(
                f"`prompt[{index}]` must be a token id from 0 to {n_vocab - 1}, got {item!r}.",
                param=f"prompt[{index}]",
            )
    return np.asarray(prompt, np.int32)


def wanted_tokens(asked: int | None, *, param: str) -> int | None:
    """Read a limit of tokens: null, 0 and -1 all mean "what the context has room for".

    Raises:
        InvalidRequestError: the limit is below -1.
    """
    if asked is None or asked in (0, -1):
        return None
    if asked < 0:
        raise InvalidRequestError(
            f"`{param}` must be 1 or more, or -1 for no limit, got {asked}.", param=param
        )
    return asked


def stop_strings(stop: str | Sequence[str] | None) -> tuple[str, ...]:
    """Drop empty stop strings and doubles; an empty one would end every answer at once.

    Raises:
        InvalidRequestError: there are too many.
    """
    given = (stop,) if isinstance(stop, str) else tuple(stop or ())
    kept = tuple(dict.fromkeys(text for text in given if text))
    if len(kept) > MAX_STOP_STRINGS:
        raise InvalidRequestError(
            f"At most {MAX_STOP_STRINGS} stop strings are there, got {len(kept)}.", param="stop"
        )
    return kept


def sampling_of(body: GenerationFields) -> SamplingParams:
    """Read how tokens are picked; fields left out have the server's defaults.

    Raises:
        InvalidRequestError: a value is out of its range.
    """
    standard = DEFAULT_SAMPLING
    return SamplingParams(
        temperature=_or(body.temperature, standard.temperature),
        top_k=max(_or(body.top_k, standard.top_k), 0),
        top_p=_or(body.top_p, standard.top_p),
        min_p=_or(body.min_p, standard.min_p),
        repetition_penalty=_or(body.repetition_penalty, standard.repetition_penalty),
        presence_penalty=_or(body.presence_penalty, standard.presence_penalty),
        frequency_penalty=_or(body.frequency_penalty, standard.frequency_penalty),
        seed=None if body.seed == -1 else body.seed,
    )


def refuse_missing(body: GenerationFields) -> None:
    """Refuse what no endpoint has yet.

    Raises:
        InvalidRequestError: names the field.
    """
    _refuse(
        body.n not in (None, 1),
        "n",
        f"One answer a request is there (n = 1), got {body.n}. Send the request again for more.",
    )
    _refuse(body.logprobs not in (None, False), "logprobs", "Log probabilities are not there yet.")
    _refuse(bool(body.logit_bias), "logit_bias", "logit_bias is not there yet.")
    _refuse(bool(body.grammar), "grammar", "Grammars are not there yet.")


def refuse_missing_of_chat(body: ChatRequest) -> None:
    """Refuse what chats do not have yet.

    Raises:
        InvalidRequestError: names the field.
    """
    _refuse(
        body.top_logprobs not in (None, 0),
        "top_logprobs",
        "Log probabilities are not there yet.",
    )
    _refuse(
        bool(body.functions) or body.function_call not in (None, "none", "auto"),
        "functions",
        "functions and function_call are the old form; send tools instead.",
    )
    _refuse(
        body.tool_choice not in (None, "auto", "none"),
        "tool_choice",
        "A forced tool call is not there yet; tool_choice takes auto or none.",
    )
    kind = (body.response_format or {}).get("type", "text")
    _refuse(
        kind != "text",
        "response_format",
        f"response_format {kind!r} is not there yet, and the answer would not be held to it. "
        "Leave it out and ask for the format in the prompt.",
    )
    _refuse(
        any(kind != "text" for kind in body.modalities or ()),
        "modalities",
        "Answers are text only.",
    )


def refuse_remote_images(messages: Sequence[ChatMessage]) -> None:
    """Refuse images by address with a reason of their own: nothing is ever fetched.

    Other parts that the model cannot read are refused where messages are made tidy.

    Raises:
        InvalidRequestError: names the part.
    """
    for n_message, message in enumerate(messages):
        for n_part, part in enumerate(message.content if isinstance(message.content, list) else ()):
            if not isinstance(part, Mapping) or part.get("type") not in IMAGE_PARTS:
                continue
            image = part.get("image_url", part.get("image"))
            address = image.get("url") if isinstance(image, Mapping) else image
            if isinstance(address, str) and not address.startswith("data:"):
                raise InvalidRequestError(
                    "Remote and file images are off: this server opens no address it finds in a "
                    "request. The model has no image input either; send text only.",
                    param=f"messages[{n_message}].content[{n_part}]",
                )


def _request(
    body: GenerationFields,
    model: LoadedModel,
    ids: npt.NDArray[np.int32],
    request_id: str,
    *,
    max_tokens: int | None,
) -> GenerateRequest:
    param = "messages" if isinstance(body, ChatRequest) else "prompt"
    cache_key = body.prompt_cache_key or ""
    if len(cache_key) > MAX_CACHE_KEY_CHARS:
        raise InvalidRequestError(
            f"`prompt_cache_key` may have {MAX_CACHE_KEY_CHARS} characters, got {len(cache_key)}.",
            param="prompt_cache_key",
        )
    if len(ids) == 0:
        raise InvalidRequestError("The prompt is empty; send at least one token.", param=param)
    room = model.context_tokens - len(ids)
    if room < 1:
        raise too_long(len(ids), model, param=param)
    return GenerateRequest(
        request_id=request_id,
        prompt_ids=ids,
        sampling=sampling_of(body),
        # Agents always ask for their cap: what does not fit is cut from the answer, not refused.
        max_tokens=room if max_tokens is None else min(max_tokens, room),
        stop=stop_strings(body.stop),
        session_key=cache_key,
        ignores_end=bool(body.ignore_eos),
        marks=model.prompts.message_ends(ids),
    )


def _or(given: Any, standard: Any) -> Any:
    return standard if given is None else given


def _refuse(is_asked: bool, param: str, message: str) -> None:  # noqa: FBT001 - reads like an if
    if is_asked:
        raise InvalidRequestError(message, param=param, code="unsupported_parameter")
