"""Our own routes: load, unload, inspect, forget, count.

They change what runs or look at files, so only this machine may use them, or who has the key.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from itertools import islice
from pathlib import Path

from fastapi import Request
from starlette.responses import JSONResponse

from engine.api.generation import chat_prompt
from engine.api.host_check import is_loopback
from engine.api.schema import (
    CountReply,
    CountRequest,
    ForgetReply,
    ForgetRequest,
    InspectError,
    InspectReply,
    InspectRequest,
    LoadReply,
    LoadRequest,
    ModelSummary,
)
from engine.api.served import Engine, EngineDep, require_model
from engine.config import BackendConfig, ModelConfig, PoolConfig
from engine.errors import InvalidRequestError, ModelFileError
from engine.gguf.shards import parse_shard_name
from engine.gguf.summary import summarize_file
from engine.paths import find_model

MAX_FILES = 2000
"""Files looked at in a folder, so that a whole disk is not read by mistake."""


async def require_local_or_key(request: Request) -> None:
    """Let only this machine in, unless there is a key (which was checked before).

    Raises:
        InvalidRequestError: 403, the request comes from another machine.
    """
    client = request.client
    if request.app.state.config.api_key is not None or client is None:
        return
    if not is_loopback(client.host.removeprefix("::ffff:")):
        raise InvalidRequestError(
            f"{request.url.path} is for this machine only. Set an API key (api_key) to use it "
            "from another one.",
            code="local_only",
            status=HTTPStatus.FORBIDDEN,
        )


def typed_path(text: str) -> Path:
    """Read a path as people type it, or the name of a model that has one; `~` is their home."""
    path = find_model(text)
    try:
        return path.expanduser()
    except RuntimeError:
        return path


async def load(body: LoadRequest, engine: EngineDep) -> JSONResponse:
    """Begin to load a model; progress is in the status."""
    standard = PoolConfig()
    config = ModelConfig(
        path=typed_path(body.path),
        alias=body.alias or None,
        pool=PoolConfig(
            n_lanes=standard.n_lanes if body.n_lanes is None else body.n_lanes,
            context_tokens=body.context_tokens,
            pool_tokens=body.pool_tokens,
        ),
        backend=BackendConfig(n_threads=body.n_threads),
    )
    await asyncio.to_thread(engine.load, config)
    reply = LoadReply(state="loading", path=str(config.path))
    return JSONResponse(reply.model_dump(), status_code=HTTPStatus.ACCEPTED)


async def unload(engine: EngineDep) -> LoadReply:
    """End what runs and give the model's memory back."""
    await asyncio.to_thread(engine.unload)
    return LoadReply(state=engine.status().model.state, path=None)


async def inspect(body: InspectRequest, engine: EngineDep) -> InspectReply:
    """Describe a model file, or every model in a folder."""
    return await asyncio.to_thread(inspect_path, typed_path(body.path), engine)


def inspect_path(path: Path, engine: Engine) -> InspectReply:
    """Describe a model file, or every model in a folder and the folders in it.

    Args:
        path: a GGUF file or a folder.
        engine: knows which architectures can be run.

    Returns:
        Summaries, and what was wrong with files that could not be read.

    Raises:
        ModelFileError: there is nothing at the path.
    """
    try:
        path.stat()
    except (OSError, ValueError) as fault:
        reason = fault.strerror if isinstance(fault, OSError) else str(fault)
        raise ModelFileError(
            f"there is no such file or folder, or it cannot be reached: {reason} ({path})",
            path=path,
        ) from fault
    files = model_files(path) if path.is_dir() else [path]
    models: list[ModelSummary] = []
    errors: list[InspectError] = []
    for file in files:
        try:
            models.append(summarize_file(file, engine.architectures))
        except (ModelFileError, OSError) as error:
            errors.append(InspectError(path=str(file), message=str(error)))
    return InspectReply(models=models, errors=errors)


def model_files(folder: Path) -> list[Path]:
    """Return the GGUF files under a folder; of a split model only the first part."""
    files: list[Path] = []
    for file in sorted(islice(folder.rglob("*.gguf"), MAX_FILES)):
        name = parse_shard_name(file)
        if file.is_file() and (name is None or name.number == 1):
            files.append(file)
    return files


async def forget(body: ForgetRequest, engine: EngineDep) -> ForgetReply:
    """Drop idle conversations, so that their cells are free; running ones stay."""
    dropped = await asyncio.wrap_future(require_model(engine).loop.forget(body.ids))
    return ForgetReply(ids=list(dropped))


async def count(body: CountRequest, engine: EngineDep) -> CountReply:
    """Count the tokens a chat request would have as its prompt."""
    ids = await asyncio.to_thread(chat_prompt, body, require_model(engine))
    return CountReply(n_tokens=len(ids))
