"""Every failure the engine reports by class; texts say what, where, wanted, had, what to do.

EngineError
├── ConfigError                 a flag or setting that cannot be used
├── ModelFileError              a model file that cannot be read or run
│   ├── GGUFFormatError         the bytes are not a well-formed GGUF file
│   └── UnsupportedModelError   well-formed, but this version cannot run it
├── RequestError                a request that is refused (carries an HTTP status and code)
│   ├── InvalidRequestError     400: the body is wrong
│   ├── ContextLengthError      400 context_length_exceeded: no token fits behind the prompt
│   ├── KvPoolFullError         503 kv_pool_full: no chunk can be freed for it
│   ├── QueueFullError          503 queue_full: too many requests wait for a lane
│   └── ModelNotReadyError      503 model_not_loaded: nothing is loaded, or it is still loading
├── MemoryBudgetError           the plan does not fit the machine; names the limit that binds
├── DeviceError                 the device failed in the middle of work; the engine stops
└── EngineStoppedError          the engine is shutting down

It leaves HTTP envelopes to `engine.api.errors`.
"""

from __future__ import annotations

from pathlib import Path


class EngineError(Exception):
    """Base of everything the engine raises on purpose."""


class ConfigError(EngineError):
    """A flag or setting has a value that cannot be used."""


class ModelFileError(EngineError):
    """A model file cannot be read or run.

    Attributes:
        path: the file, or None when the bytes came from elsewhere.
        offset_bytes: where in the file the fault was seen, or None.
    """

    def __init__(
        self, message: str, *, path: Path | str | None = None, offset_bytes: int | None = None
    ) -> None:
        self.path = None if path is None else Path(path)
        self.offset_bytes = offset_bytes
        where = "" if path is None else f"{Path(path).name}: "
        at = "" if offset_bytes is None else f" (at byte {offset_bytes})"
        super().__init__(f"{where}{message}{at}")


class GGUFFormatError(ModelFileError, ValueError):
    """The bytes are not a well-formed GGUF file."""


class UnsupportedModelError(ModelFileError):
    """The file is well-formed, but this version cannot run it."""


class RequestError(EngineError):
    """A request is refused; nothing of it was computed.

    Attributes:
        status: HTTP status to answer with.
        code: machine-readable code of the error envelope, or None.
        param: the field at fault, or None.
        retry_after_s: seconds after which a retry makes sense, or None.
    """

    status = 400
    code: str | None = None
    retry_after_s: int | None = None

    def __init__(self, message: str, *, param: str | None = None) -> None:
        self.param = param
        super().__init__(message)


class InvalidRequestError(RequestError):
    """The body is malformed or asks for something that does not exist."""

    def __init__(
        self, message: str, *, param: str | None = None, code: str | None = None, status: int = 400
    ) -> None:
        super().__init__(message, param=param)
        self.code = code
        self.status = status


class ContextLengthError(RequestError):
    """The prompt leaves no room for a single token.

    Args:
        n_prompt_tokens: of the prompt.
        context_tokens: longest conversation served.
        is_at_least: only so many were counted; the prompt has more.
    """

    code = "context_length_exceeded"

    def __init__(
        self, *, n_prompt_tokens: int, context_tokens: int, is_at_least: bool = False
    ) -> None:
        self.n_prompt_tokens = n_prompt_tokens
        self.context_tokens = context_tokens
        some = "more than " if is_at_least else ""
        super().__init__(
            f"The prompt has {some}{n_prompt_tokens} tokens, but the context length of this server "
            f"is {context_tokens} tokens and at least one must be left for the answer. "
            "Shorten the conversation, or load the model with a larger context.",
            param="messages",
        )


class KvPoolFullError(RequestError):
    """The shared K/V pool cannot hold the prompt, even if every idle conversation gave way."""

    status = 503
    code = "kv_pool_full"
    retry_after_s = 10

    def __init__(self, *, cells_wanted: int, cells_free: int, cells_total: int) -> None:
        self.cells_wanted = cells_wanted
        self.cells_free = cells_free
        self.cells_total = cells_total
        super().__init__(
            f"The K/V pool is full: this prompt needs {cells_wanted} cells, {cells_free} of "
            f"{cells_total} are free and running conversations hold the rest. "
            "Try again when one has finished, or start with a larger --kv-pool-tokens."
        )


class QueueFullError(RequestError):
    """As many requests wait for a lane as may wait."""

    status = 503
    code = "queue_full"
    retry_after_s = 10

    def __init__(self, *, n_waiting: int) -> None:
        self.n_waiting = n_waiting
        super().__init__(
            f"{n_waiting} requests are waiting already, and no more may wait. "
            "Try again when some have finished, or start with more lanes (--batch)."
        )


class ModelNotReadyError(RequestError):
    """No model is loaded, or it is still loading."""

    status = 503
    code = "model_not_loaded"
    retry_after_s = 5


class MemoryBudgetError(EngineError):
    """The plan does not fit the machine.

    Attributes:
        limit: which limit binds: "ram", "commit", "vram" or "pinned".
    """

    def __init__(self, message: str, *, limit: str) -> None:
        self.limit = limit
        super().__init__(message)


class DeviceError(EngineError):
    """The device failed in the middle of work; the engine cannot go on."""


class EngineStoppedError(EngineError):
    """The engine is shutting down and takes no more work."""
