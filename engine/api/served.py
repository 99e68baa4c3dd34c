"""What the API needs of the rest: the loaded model, and the service that loads it.

`engine.service` makes both; here are only their shapes, since the API may not know the service.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Protocol, cast

from fastapi import Depends, Request

from engine.errors import ModelNotReadyError
from engine.stats import ModelSummary, StatusSnapshot

if TYPE_CHECKING:
    from collections.abc import Collection

    from engine.config import ModelConfig
    from engine.loop import EngineLoop
    from engine.tokenizer.prompt import PromptBuilder
    from engine.tokenizer.template import ChatTemplate
    from engine.tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class LoadedModel:
    """A model that answers.

    Attributes:
        summary: of its file; `id` is the name the API shows.
        context_tokens: longest conversation served.
        loaded_at_s: Unix time of the load.
        tokenizer: text to ids and back.
        template: its chat template.
        prompts: makes the ids of a prompt.
        loop: takes requests.
    """

    summary: ModelSummary
    context_tokens: int
    loaded_at_s: float
    tokenizer: Tokenizer
    template: ChatTemplate
    prompts: PromptBuilder
    loop: EngineLoop


class Engine(Protocol):
    """What the API asks of the service; every call is safe from any thread."""

    @property
    def loaded(self) -> LoadedModel | None:
        """The model that answers, None while there is none."""

    @property
    def is_stopping(self) -> bool:
        """Whether open streams should end."""

    @property
    def architectures(self) -> Collection[str]:
        """Names of the architectures that can be run."""

    def status(self) -> StatusSnapshot:
        """Everything the dashboard shows, as of now."""

    def load(self, config: ModelConfig) -> None:
        """Begin to load a model in the background.

        Raises:
            ModelFileError: there is no such file.
            InvalidRequestError: 409, another load is running.
        """

    def unload(self) -> None:
        """Give the model's memory back; blocks until its thread has ended."""


def engine_of(request: Request) -> Engine:
    """Return the engine that `create_app` was given."""
    return cast(Engine, request.app.state.engine)


EngineDep = Annotated[Engine, Depends(engine_of)]


def require_model(engine: Engine) -> LoadedModel:
    """Return the loaded model.

    Raises:
        ModelNotReadyError: there is none; the text says what the state is.
    """
    model = engine.loaded
    if model is not None:
        return model
    state = engine.status().model
    if state.state == "loading":
        progress = state.progress
        share = ""
        if progress is not None and progress.total_bytes:
            share = f", {100 * progress.done_bytes // progress.total_bytes} % done"
        raise ModelNotReadyError(f"The model is still loading{share}. Try again in a moment.")
    if state.state == "failed":
        raise ModelNotReadyError(f"No model is loaded; the last load failed: {state.error}")
    raise ModelNotReadyError(
        "No model is loaded. Load one in the window, with `strata serve`, or by POST /v1/load."
    )
