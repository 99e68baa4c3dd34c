"""Shapes of every body the API takes and gives, and the snapshot behind `/v1/status`.

Requests are strict about types but ignore unknown fields, and `null` means "not given", because
editors send both. What a field may ask for is decided in `engine.api.generation`, how replies are
made in `engine.api.replies`. The window imports the shapes from here and nothing deeper.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter

from engine.stats import (
    ChunkHolding,
    EngineSnapshot,
    ExpertPicks,
    ExpertState,
    HostMemory,
    KvPoolSnapshot,
    LoadProgress,
    ModelState,
    ModelSummary,
    RequestCounts,
    ServerState,
    SessionHolding,
    StatusSnapshot,
    VramSnapshot,
    WorkCounts,
)

__all__ = [
    "ChatChoice",
    "ChatChunk",
    "ChatMessage",
    "ChatReply",
    "ChatRequest",
    "ChunkChoice",
    "ChunkHolding",
    "CompletionReply",
    "CompletionRequest",
    "CountReply",
    "CountRequest",
    "Delta",
    "EngineSnapshot",
    "ErrorBody",
    "ErrorEnvelope",
    "ExpertPicks",
    "ExpertState",
    "ForgetReply",
    "ForgetRequest",
    "GenerationFields",
    "HealthReply",
    "HostMemory",
    "InspectError",
    "InspectReply",
    "InspectRequest",
    "KvPoolSnapshot",
    "LoadProgress",
    "LoadReply",
    "LoadRequest",
    "ModelCard",
    "ModelList",
    "ModelState",
    "ModelSummary",
    "Progress",
    "PromptDetails",
    "ReplyMessage",
    "RequestCounts",
    "ServerState",
    "SessionHolding",
    "StatusSnapshot",
    "StreamOptions",
    "TextChoice",
    "Timings",
    "TokenUsage",
    "VramSnapshot",
    "WorkCounts",
    "format_status",
    "parse_status",
]

_STATUS = TypeAdapter(StatusSnapshot)


def format_status(snapshot: StatusSnapshot) -> bytes:
    """Turn a snapshot into the JSON of `/v1/status`."""
    return _STATUS.dump_json(snapshot)


def parse_status(text: str | bytes) -> StatusSnapshot:
    """Turn the JSON of `/v1/status` back into the snapshot.

    Args:
        text: the JSON; fields of a newer server are ignored.

    Returns:
        The snapshot.

    Raises:
        ValueError: a field is missing or of the wrong type (pydantic's error is one).
    """
    return _STATUS.validate_json(text)


def _whole(value: object) -> object:
    """Take 5.0 for 5: some languages know only one kind of number."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Whole = Annotated[int, BeforeValidator(_whole)]
"""An integer, also written as 5.0."""


class RequestBody(BaseModel):
    """Common habits of request bodies: strict types, unknown fields ignored."""

    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False)


class StreamOptions(RequestBody):
    """What a stream carries besides text.

    Attributes:
        include_usage: end with a chunk of token counts.
        include_progress: send chunks that say how much of the prompt is read.
    """

    include_usage: bool | None = None
    include_progress: bool | None = None


class GenerationFields(RequestBody):
    """Fields that chat and text completions share.

    Attributes:
        model: any name; the loaded model answers.
        stream: send the answer in pieces as server-sent events.
        max_tokens: most tokens of the answer; 0, -1 or null = what the context has room for.
        stop: text at which the answer ends; it is not part of the answer.
        seed: same seed, same answer; -1 or null = a new one each time.
        temperature: 0 = always the likeliest token.
        top_k: keep the k likeliest tokens; 0 or less = all.
        prompt_cache_key: the client's own name of the conversation; helps to find its cache.
    """

    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: Whole | None = None
    stop: str | list[str] | None = None
    seed: Whole | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: Whole | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    n: Whole | None = None
    ignore_eos: bool | None = None
    prompt_cache_key: str | None = None
    logprobs: Any = None
    logit_bias: Any = None
    grammar: Any = None


class ChatMessage(BaseModel):
    """One turn of a conversation; fields that this server does not know are handed on.

    Attributes:
        role: system, developer, user, assistant or tool.
        content: text, or a list of text parts; may be missing beside tool calls.
        tool_calls: calls the assistant made in this turn.
        tool_call_id: which call a tool's turn answers.
    """

    model_config = ConfigDict(strict=True, extra="allow")

    role: str
    content: str | list[Any] | None = None
    name: str | None = None
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None


class ChatRequest(GenerationFields):
    """Body of `POST /v1/chat/completions`.

    Attributes:
        messages: the conversation, oldest turn first.
        max_completion_tokens: wins over `max_tokens`.
        tools: functions the model may call, shown to it if its template takes them.
        tool_choice: "auto" or "none"; a forced call is refused.
        response_format: `{"type": "text"}`; others are refused.
        chat_template_kwargs: variables for the model's chat template.
    """

    messages: list[ChatMessage] = Field(min_length=1)
    max_completion_tokens: Whole | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: Any = None
    functions: Any = None
    function_call: Any = None
    response_format: dict[str, Any] | None = None
    modalities: list[str] | None = None
    top_logprobs: Any = None
    chat_template_kwargs: dict[str, Any] | None = None


class CompletionRequest(GenerationFields):
    """Body of `POST /v1/completions`: the prompt is continued as it is, without a template.

    Attributes:
        prompt: text, token ids, or a list of one of these.
        suffix: text after the gap (fill in the middle); refused.
    """

    prompt: str | list[Any]
    suffix: str | None = None
    echo: bool | None = None
    best_of: Whole | None = None


class LoadRequest(RequestBody):
    """Body of `POST /v1/load`.

    Attributes:
        path: a GGUF file, any shard of a split one.
        context_tokens: longest conversation; null = the model's own.
        pool_tokens: cells of the shared pool; null = every lane has a whole context of its own.
        n_lanes: requests that run at once.
        n_threads: worker threads; null = physical cores.
        alias: name shown by the API; null = from the file.
    """

    path: str = Field(min_length=1)
    context_tokens: Whole | None = None
    pool_tokens: Whole | None = None
    n_lanes: Whole | None = None
    n_threads: Whole | None = None
    alias: str | None = None


class InspectRequest(RequestBody):
    """Body of `POST /v1/inspect`: a GGUF file, or a folder that is searched for them."""

    path: str = Field(min_length=1)


class ForgetRequest(RequestBody):
    """Body of `POST /v1/sessions/forget`: session ids, or null for every idle conversation."""

    ids: list[str] | None = None


class CountRequest(RequestBody):
    """Body of `POST /v1/count`: what a chat request with these fields would hold as a prompt."""

    messages: list[ChatMessage] = Field(min_length=1)
    tools: list[dict[str, Any]] | None = None
    tool_choice: Any = None
    chat_template_kwargs: dict[str, Any] | None = None


class ErrorBody(BaseModel):
    """What went wrong: a sentence, its kind, the field at fault, a code for programs."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorEnvelope(BaseModel):
    """Every error reply, and the `data:` event of a failure after the first byte."""

    error: ErrorBody


class PromptDetails(BaseModel):
    """Of the prompt's tokens, how many did not need reading."""

    cached_tokens: int


class TokenUsage(BaseModel):
    """Token counts of one request."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails


class Timings(BaseModel):
    """How long a request took; `prompt_n` counts tokens read, `cache_n` those known already."""

    prompt_n: int
    cache_n: int
    prompt_ms: float
    prompt_per_second: float
    predicted_n: int
    predicted_ms: float
    predicted_per_second: float


class Progress(BaseModel):
    """How much of the prompt is known."""

    n_read: int
    n_prompt: int


class ReplyMessage(BaseModel):
    """The assistant's turn."""

    role: Literal["assistant"] = "assistant"
    content: str | None


class ChatChoice(BaseModel):
    """One answer; there is always exactly one."""

    index: int
    message: ReplyMessage
    logprobs: None
    finish_reason: str


class Reply(BaseModel):
    """Fields of every reply; `truncated` is there (and true) when the K/V pool was full."""

    id: str
    object: str
    created: int
    model: str
    system_fingerprint: str


class ChatReply(Reply):
    """Answer of `POST /v1/chat/completions` without `stream`."""

    choices: list[ChatChoice]
    usage: TokenUsage
    timings: Timings
    truncated: bool = False


class Delta(BaseModel):
    """What a chunk adds to the answer."""

    role: Literal["assistant"] = "assistant"
    content: str = ""


class ChunkChoice(BaseModel):
    """The answer's next piece."""

    index: int
    delta: Delta
    logprobs: None
    finish_reason: str | None


class ChatChunk(Reply):
    """One event of a chat stream."""

    choices: list[ChunkChoice]
    usage: TokenUsage | None = None
    timings: Timings | None = None
    truncated: bool = False
    progress: Progress | None = None


class TextChoice(BaseModel):
    """The continuation, or its next piece."""

    text: str
    index: int
    logprobs: None
    finish_reason: str | None


class CompletionReply(Reply):
    """Answer of `POST /v1/completions`, and each event of its stream."""

    choices: list[TextChoice]
    usage: TokenUsage | None = None
    timings: Timings | None = None
    truncated: bool = False
    progress: Progress | None = None


class ModelCard(BaseModel):
    """One entry of `/v1/models`.

    Attributes:
        created: Unix time of the load.
        context_length: longest conversation served, in tokens.
        max_model_len: the same, under the name some clients look for.
        state: "loaded" or "loading".
    """

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "strata"
    context_length: int
    max_model_len: int
    state: str
    architecture: str
    quantization: str
    capabilities: list[str]


class ModelList(BaseModel):
    """Answer of `GET /v1/models`: the loaded model, if there is one."""

    object: Literal["list"] = "list"
    data: list[ModelCard]


class HealthReply(BaseModel):
    """Answer of `GET /health`; needs no key and never loads anything."""

    status: Literal["ok"] = "ok"
    service: Literal["strata"] = "strata"
    version: str
    model: str | None
    model_state: str
    max_context: int
    has_api_key: bool


class LoadReply(BaseModel):
    """Answer of `POST /v1/load` (progress is in `/v1/status`) and `POST /v1/unload`."""

    state: str
    path: str | None


class InspectError(BaseModel):
    """A file that could not be read, and why."""

    path: str
    message: str


class InspectReply(BaseModel):
    """Answer of `POST /v1/inspect`."""

    models: list[ModelSummary]
    errors: list[InspectError]


class ForgetReply(BaseModel):
    """Answer of `POST /v1/sessions/forget`: the conversations that were dropped."""

    ids: list[str]


class CountReply(BaseModel):
    """Answer of `POST /v1/count`."""

    n_tokens: int
