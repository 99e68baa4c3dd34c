"""The service: loading in the background, giving back, and an end that leaves nothing behind."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from engine.config import ApiConfig, ModelConfig, PoolConfig
from engine.errors import ConfigError, EngineStoppedError, InvalidRequestError, ModelFileError
from engine.loading import BackendOrder, MakeBackend
from engine.service import SWITCH_INTERVAL_S, EngineService, expert_state
from engine.stats import LoadProgress
from tests.builders import make_tiny_llama
from tests.call_count import count_calls
from tests.scripted_backend import ScriptedBackend, ScriptedSpec

LIMIT_S = 30
MAX_STATUS_CALLS = 1000
"""A status is made ten times a second; about 200 calls of functions are usual."""

MakeService = Callable[..., EngineService]


class SlowBackends:
    """Makes scripted backends, but only when told to.

    Attributes:
        gate: a load waits for it, telling progress all the while.
        n_begun, n_closed: backends begun and closed.
    """

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.n_begun = 0
        self.made: list[ScriptedBackend] = []

    def make(self, order: BackendOrder) -> ScriptedBackend:
        self.n_begun += 1
        for n_bytes in range(10_000):
            order.on_progress(
                LoadProgress(stage="Reading weights", done_bytes=n_bytes, total_bytes=10_000)
            )
            if self.gate.wait(0.003):
                break
        spec = ScriptedSpec(n_vocab=352)
        self.made.append(ScriptedBackend(spec, shape=order.shape))
        return self.made[-1]


@pytest.fixture
def backends() -> SlowBackends:
    return SlowBackends()


@pytest.fixture
def make_service(backends: SlowBackends) -> Iterator[MakeService]:
    services: list[EngineService] = []

    def make(
        api: ApiConfig | None = None, make_backend: MakeBackend | None = None
    ) -> EngineService:
        api = api or ApiConfig(port=0)
        services.append(EngineService(api, make_backend=make_backend or backends.make))
        return services[-1]

    interval_s = sys.getswitchinterval()
    yield make
    backends.gate.set()
    for service in services:
        service.stop()
    sys.setswitchinterval(interval_s)


@pytest.fixture
def model(tmp_path: Path) -> ModelConfig:
    return tiny(tmp_path, "tiny.gguf")


def tiny(folder: Path, name: str) -> ModelConfig:
    path = make_tiny_llama(folder / name, n_layers=1, context_tokens=64)
    return ModelConfig(path=path, pool=PoolConfig(n_lanes=1, chunk_cells=8, pool_tokens=64))


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + LIMIT_S
    while not is_so():
        assert time.monotonic() < deadline_s, "waited in vain"
        time.sleep(0.002)


def test_a_load_tells_how_far_it_is(
    make_service: MakeService, backends: SlowBackends, model: ModelConfig
) -> None:
    service = make_service()
    assert service.status().model.state == "none"
    service.load(model)
    assert not service.wait_ready(0.01)
    wait_until(lambda: (p := service.status().model.progress) is not None and p.done_bytes > 3)
    state = service.status().model
    assert state.state == "loading"
    assert state.summary is not None
    assert state.summary.id == "tiny"
    assert state.progress is not None
    assert state.progress.stage == "Reading weights"
    assert service.loaded is None
    backends.gate.set()
    assert service.wait_ready(LIMIT_S)
    state = service.status().model
    assert (state.state, state.progress, state.error) == ("ready", None, "")
    assert service.loaded is not None


def test_a_second_load_at_the_same_time_is_refused(
    make_service: MakeService, model: ModelConfig
) -> None:
    service = make_service()
    service.load(model)
    with pytest.raises(InvalidRequestError, match=r"tiny\.gguf is being loaded") as refused:
        service.load(model)
    assert refused.value.status == 409


def test_unload_gives_a_load_up(
    make_service: MakeService, backends: SlowBackends, model: ModelConfig
) -> None:
    service = make_service()
    service.load(model)
    wait_until(lambda: backends.n_begun == 1)
    service.unload()
    assert service.status().model.state == "none"
    assert not service.wait_ready(0)
    wait_until(lambda: not any(t.name == "strata-load" for t in threading.enumerate()))
    assert backends.made == []
    backends.gate.set()
    service.load(model)
    assert service.wait_ready(LIMIT_S)


def test_the_next_model_closes_the_one_before(
    make_service: MakeService, backends: SlowBackends, model: ModelConfig, tmp_path: Path
) -> None:
    service = make_service()
    backends.gate.set()
    service.load(model)
    assert service.wait_ready(LIMIT_S)
    service.load(tiny(tmp_path, "other.gguf"))
    assert service.wait_ready(LIMIT_S)
    assert [backend.is_closed for backend in backends.made] == [True, False]
    assert service.loaded is not None
    assert service.loaded.summary.id == "other"
    assert sum(thread.name == "strata-engine" for thread in threading.enumerate()) == 1
    service.unload()
    assert [backend.is_closed for backend in backends.made] == [True, True]


def test_a_broken_file_is_a_failed_load_with_a_reason(
    make_service: MakeService, tmp_path: Path
) -> None:
    service = make_service()
    path = tmp_path / "broken.gguf"
    path.write_bytes(b"GGUF\x03\x00\x00\x00")
    service.load(ModelConfig(path=path))
    assert not service.wait_ready(LIMIT_S)
    state = service.status().model
    assert state.state == "failed"
    assert "broken.gguf" in state.error
    assert service.loaded is None


def test_an_architecture_we_do_not_have_is_a_failed_load(
    make_service: MakeService, tmp_path: Path
) -> None:
    service = make_service()
    keys = {"general.architecture": "made-up"}
    path = make_tiny_llama(tmp_path / "odd.gguf", n_layers=1, metadata=keys)
    service.load(ModelConfig(path=path))
    assert not service.wait_ready(LIMIT_S)
    state = service.status().model
    assert "made-up" in state.error
    assert state.summary is not None
    assert not state.summary.is_supported


def test_a_fault_while_loading_is_told_and_not_for_ever(
    make_service: MakeService, backends: SlowBackends, model: ModelConfig
) -> None:
    def fail(order: BackendOrder) -> ScriptedBackend:
        raise ZeroDivisionError("oops")

    service = make_service(make_backend=fail)
    service.load(model)
    assert not service.wait_ready(LIMIT_S)
    assert "ZeroDivisionError: oops" in service.status().model.error
    service.unload()
    assert service.status().model.state == "none"


def test_what_can_be_told_at_once_is_raised_at_once(
    make_service: MakeService, model: ModelConfig, tmp_path: Path
) -> None:
    service = make_service()
    with pytest.raises(ModelFileError, match="no such file"):
        service.load(ModelConfig(path=tmp_path / "none.gguf"))
    pool = PoolConfig(pool_tokens=4096, context_tokens=5000)
    with pytest.raises(ConfigError, match="4096 cells"):
        service.load(ModelConfig(path=model.path, pool=pool))
    assert service.status().model.state == "none"
    with pytest.raises(ConfigError, match="empty"):
        EngineService(ApiConfig(api_key=" "))


def test_a_lowered_context_is_a_warning(
    make_service: MakeService, backends: SlowBackends, model: ModelConfig
) -> None:
    service = make_service()
    backends.gate.set()
    service.load(ModelConfig(path=model.path, pool=PoolConfig(chunk_cells=8, context_tokens=4000)))
    assert service.wait_ready(LIMIT_S)
    state = service.status().model
    assert state.context_tokens == 64
    assert any("4000" in warning for warning in state.warnings)


def test_start_and_stop_leave_no_thread(
    make_service: MakeService, backends: SlowBackends, model: ModelConfig
) -> None:
    before = {thread.name for thread in threading.enumerate()}
    service = make_service()
    assert service.address == ""
    address = service.start()
    assert sys.getswitchinterval() == pytest.approx(SWITCH_INTERVAL_S, rel=0.01)
    backends.gate.set()
    service.load(model)
    assert service.wait_ready(LIMIT_S)
    assert httpx.get(f"{address}/health").json()["model"] == "tiny"
    service.stop()
    service.stop()
    assert {t.name for t in threading.enumerate() if t.name.startswith("strata")} <= before
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{address}/health")
    with pytest.raises(EngineStoppedError):
        service.load(model)


def test_stop_does_not_wait_for_a_load(
    make_service: MakeService, backends: SlowBackends, model: ModelConfig
) -> None:
    service = make_service()
    service.start()
    service.load(model)
    wait_until(lambda: backends.n_begun == 1)
    service.stop()
    assert backends.made == []


def test_status_is_cheap(
    make_service: MakeService, backends: SlowBackends, model: ModelConfig
) -> None:
    service = make_service()
    backends.gate.set()
    service.load(model)
    assert service.wait_ready(LIMIT_S)
    assert count_calls(service.status) < MAX_STATUS_CALLS


def test_experts_say_why_there_are_none(
    make_service: MakeService, backends: SlowBackends, model: ModelConfig
) -> None:
    assert "No model" in expert_state(None).reason
    service = make_service()
    backends.gate.set()
    service.load(model)
    assert service.wait_ready(LIMIT_S)
    assert "no experts" in service.status().experts.reason


@pytest.mark.model
def test_the_demo_model_answers_over_http(smollm2_path: Path) -> None:
    service = EngineService(ApiConfig(port=0))
    try:
        address = service.start()
        pool = PoolConfig(n_lanes=2, context_tokens=2048, pool_tokens=4096)
        service.load(ModelConfig(path=smollm2_path, pool=pool))
        assert service.wait_ready(LIMIT_S), service.status().model.error
        body = {
            "messages": [{"role": "user", "content": "List three fruits."}],
            "temperature": 0,
            "max_tokens": 8,
        }
        reply = httpx.post(f"{address}/v1/chat/completions", json=body, timeout=LIMIT_S).json()
        # The first words of the reference answer made with float32 weights.
        assert reply["choices"][0]["message"]["content"].startswith("Here are three fruits")
        assert reply["usage"]["prompt_tokens"] == 34
        again = httpx.post(f"{address}/v1/chat/completions", json=body, timeout=LIMIT_S).json()
        assert again["choices"] == reply["choices"]
        assert again["usage"]["prompt_tokens_details"]["cached_tokens"] == 33
    finally:
        service.stop()
