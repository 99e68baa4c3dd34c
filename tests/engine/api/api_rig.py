"""The real service over a tiny GGUF file and a scripted backend, spoken to in process."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import numpy.typing as npt

from engine.api.app import create_app
from engine.config import ApiConfig, ModelConfig, PoolConfig, SchedulerConfig
from engine.loading import BackendOrder
from engine.service import EngineService
from engine.stats import EngineSnapshot
from engine.step import StepPlan
from tests.builders import make_tiny_llama
from tests.scripted_backend import ScriptedBackend, ScriptedSpec

HI = [{"role": "user", "content": "hi"}]
END_ID = 2
"""`<|im_end|>` of the tiny tokenizer."""

LIMIT_S = 30


def says(ids: list[int]) -> Callable[[npt.NDArray[np.int32]], int]:
    """Make a model say these ids after any prompt, then end.

    It looks for the longest beginning of the script at the end of what the lane has read back.
    """
    script = [*ids, END_ID]

    def next_id(read: npt.NDArray[np.int32]) -> int:
        for n_said in range(len(script) - 1, 0, -1):
            if read[-n_said:].tolist() == script[:n_said]:
                return script[n_said]
        return script[0]

    return next_id


class ApiRig:
    """A service with one model, its API called in process.

    Attributes:
        service: the real one.
        gate: steps wait for it; set unless `is_gated`.
    """

    def __init__(
        self,
        path: Path,
        *,
        text: str | None = None,
        token_texts: list[str] | None = None,
        fails_at_step: int | None = None,
        is_gated: bool = False,
        is_loaded: bool = True,
        api: ApiConfig | None = None,
        context_tokens: int = 256,
        pool_cells: int | None = 512,
        n_lanes: int = 2,
        metadata: dict[str, Any] | None = None,
        max_body_bytes: int = 1 << 20,
        delay_s: float = 0.0,
    ) -> None:
        make_tiny_llama(path, n_layers=1, metadata=metadata, context_tokens=context_tokens)
        self.path = path
        self.gate = threading.Event()
        if not is_gated:
            self.gate.set()
        self.n_steps = 0
        self._fails_at_step = fails_at_step
        self._text = text
        self._token_texts = token_texts
        self._delay_s = delay_s
        self.backend: ScriptedBackend | None = None
        self.api = api or ApiConfig()
        self.service = EngineService(self.api, make_backend=self._make_backend)
        self.app = create_app(self.service, self.api, max_body_bytes=max_body_bytes)
        self.config = ModelConfig(
            path=path,
            alias="tiny",
            pool=PoolConfig(
                n_lanes=n_lanes,
                context_tokens=context_tokens,
                pool_tokens=pool_cells,
                chunk_cells=8,
                n_parked=4,
            ),
            scheduler=SchedulerConfig(span_tokens=16, is_checking=True),
        )
        if is_loaded:
            self.service.load(self.config)
            assert self.service.wait_ready(LIMIT_S), self.service.status().model.error

    def close(self) -> None:
        self.gate.set()
        self.service.stop()

    def _make_backend(self, order: BackendOrder) -> ScriptedBackend:
        from engine.tokenizer.tokenizer import Tokenizer

        tokenizer = Tokenizer.from_metadata(order.file.metadata)
        ids: list[int] | None = None
        if self._token_texts is not None:
            ids = [tokenizer.vocabulary.texts.index(text) for text in self._token_texts]
        elif self._text is not None:
            ids = tokenizer.encode(self._text)
        self.backend = ScriptedBackend(
            ScriptedSpec(n_vocab=tokenizer.n_vocab),
            shape=order.shape,
            next_id=None if ids is None else says(ids),
            before_step=self._before_step,
            delay_s=self._delay_s,
        )
        return self.backend

    def _before_step(self, plan: StepPlan) -> None:
        self.gate.wait(LIMIT_S)
        self.n_steps += 1
        if self.n_steps == self._fails_at_step:
            raise RuntimeError("the scripted device failed")

    def snapshot(self) -> EngineSnapshot:
        engine = self.service.status().engine
        assert engine is not None
        return engine

    def wait_until(self, is_so: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + LIMIT_S
        while not is_so():
            assert time.monotonic() < deadline_s, "waited in vain"
            time.sleep(0.002)

    # Requests

    def send(
        self, method: str, path: str, *, host: str = "127.0.0.1:8080", **options: Any
    ) -> httpx.Response:
        """Send one request in process and wait for all of the reply."""

        async def go() -> httpx.Response:
            transport = httpx.ASGITransport(app=self.app, client=("127.0.0.1", 5))
            async with httpx.AsyncClient(transport=transport, base_url=f"http://{host}") as client:
                return await client.request(method, path, timeout=LIMIT_S, **options)

        return asyncio.run(go())

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self.send("GET", path, **options)

    def post(self, path: str, body: Any, **options: Any) -> httpx.Response:
        return self.send("POST", path, json=body, **options)

    def chat(self, **fields: Any) -> httpx.Response:
        """Chat with greedy sampling and the message "hi" unless told otherwise."""
        body = {"model": "m", "messages": HI, "temperature": 0, "max_tokens": 8} | fields
        return self.post("/v1/chat/completions", body)

    def text(self, **fields: Any) -> httpx.Response:
        body = {"model": "m", "prompt": "the cat", "temperature": 0, "max_tokens": 8} | fields
        return self.post("/v1/completions", body)

    def last_prompt_ids(self) -> list[int]:
        """The ids of the conversation that was read last, without the answer."""
        assert self.backend is not None
        spans = [span for plan in self.backend.plans for span in plan.spans]
        last_read = next(i for i in range(len(spans) - 1, -1, -1) if len(spans[i].ids) > 1)
        lane, n_ids = spans[last_read].lane, spans[last_read].stop
        return self.backend.read(lane, n_ids).tolist()

    def prompt_text(self, reply: httpx.Response) -> str:
        """What the model read for a reply: the prompt as the backend's cells hold it."""
        assert reply.status_code == 200, reply.text
        loaded = self.service.loaded
        assert loaded is not None
        assert self.backend is not None
        n_prompt = reply.json()["usage"]["prompt_tokens"]
        last = self.backend.plans[-1].spans[-1]
        ids = self.backend.read(last.lane, n_prompt).tolist()
        return loaded.tokenizer.decode(ids, keep_special=True)


def events_of(reply: httpx.Response) -> list[Any]:
    """The `data:` events of a stream; the last one may be the text "[DONE]"."""
    assert reply.status_code == 200, reply.text
    assert reply.headers["content-type"].startswith("text/event-stream")
    assert reply.text.endswith("\n\n")
    events: list[Any] = []
    for block in reply.text[:-2].split("\n\n"):
        if block.startswith(":"):
            continue
        assert block.startswith("data: "), block
        assert "\n" not in block
        payload = block.removeprefix("data: ")
        events.append(payload if payload == "[DONE]" else json.loads(payload))
    return events


def text_of(events: list[Any]) -> str:
    """All content of a chat stream."""
    return "".join(
        choice["delta"].get("content", "")
        for event in events
        if event != "[DONE]"
        for choice in event.get("choices", ())
    )


def error_of(reply: httpx.Response) -> dict[str, Any]:
    """The error of a refusal, with its envelope checked."""
    body = reply.json()
    assert set(body) == {"error"}, body
    error: dict[str, Any] = body["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert isinstance(error["message"], str)
    assert error["message"]
    assert isinstance(error["type"], str)
    return error
