"""Our own routes: load, unload, inspect, forget, count; who may use them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from engine.api.control import model_files, typed_path
from engine.config import ApiConfig
from tests.builders import make_tiny_llama
from tests.engine.api.api_rig import HI, LIMIT_S, ApiRig, error_of

MakeRig = Callable[..., ApiRig]


def test_load_and_unload(make_rig: MakeRig) -> None:
    rig = make_rig(is_loaded=False)
    body = {
        "path": str(rig.path),
        "context_tokens": 128,
        "pool_tokens": 5000,
        "n_lanes": 3,
        "alias": "mine",
    }
    reply = rig.post("/v1/load", body)
    assert reply.status_code == 202
    assert reply.json() == {"state": "loading", "path": str(rig.path)}
    assert rig.service.wait_ready(LIMIT_S)
    status = rig.service.status()
    assert status.model.n_lanes == 3
    assert status.model.context_tokens == 128
    assert rig.snapshot().kv_pool.cells == 8192
    assert rig.get("/v1/models/mine").status_code == 200
    assert rig.chat().status_code == 200
    for _ in range(2):
        assert rig.send("POST", "/v1/unload").json() == {"state": "none", "path": None}
    assert rig.chat().status_code == 503


def test_a_second_model_takes_the_place_of_the_first(rig: ApiRig, tmp_path: Path) -> None:
    other = make_tiny_llama(tmp_path / "other.gguf", n_layers=1)
    assert rig.post("/v1/load", {"path": str(other)}).status_code == 202
    assert rig.service.wait_ready(LIMIT_S)
    [card] = rig.get("/v1/models").json()["data"]
    assert card["id"] == "other"


@pytest.mark.parametrize(
    ("fields", "param", "says"),
    [
        ({"path": "/nowhere/m.gguf"}, "path", "no such file"),
        ({}, "path", "missing"),
        ({"path": 5}, "path", "string"),
        ({"n_lanes": 0}, None, "--batch"),
        ({"context_tokens": 1}, None, "--max-context"),
        ({"pool_tokens": 4096, "context_tokens": 5000}, None, "4096 cells"),
        ({"n_threads": 0}, None, "--threads"),
        ({"n_lanes": "2"}, "n_lanes", "integer"),
    ],
)
def test_loads_that_cannot_be_are_400(
    make_rig: MakeRig, fields: dict[str, object], param: str | None, says: str
) -> None:
    rig = make_rig(is_loaded=False)
    path = {} if not fields else {"path": str(rig.path)}
    refused = rig.post("/v1/load", {**path, **fields})
    assert refused.status_code == 400
    error = error_of(refused)
    assert error["param"] == param
    assert says in error["message"]
    assert rig.service.status().model.state == "none"


def test_a_folder_is_no_model(make_rig: MakeRig, tmp_path: Path) -> None:
    refused = make_rig(is_loaded=False).post("/v1/load", {"path": str(tmp_path)})
    assert refused.status_code == 400
    assert "choose a .gguf file" in error_of(refused)["message"]


def test_inspect_a_file_and_a_folder(make_rig: MakeRig, tmp_path: Path) -> None:
    rig = make_rig(is_loaded=False)
    [summary] = rig.post("/v1/inspect", {"path": str(rig.path)}).json()["models"]
    assert summary["id"] == rig.path.stem
    assert summary["is_supported"]
    assert summary["architecture"] == "llama"
    folder = tmp_path / "модели"
    (folder / "deep").mkdir(parents=True)
    make_tiny_llama(folder / "deep" / "b.gguf", n_layers=1)
    make_tiny_llama(folder / "a.gguf", n_layers=1, metadata={"general.architecture": "made-up"})
    (folder / "broken.gguf").write_bytes(b"GGUF")
    (folder / "notes.txt").write_text("x")
    reply = rig.post("/v1/inspect", {"path": str(folder)}).json()
    assert [(m["id"], m["is_supported"]) for m in reply["models"]] == [("a", False), ("b", True)]
    [error] = reply["errors"]
    assert error["path"] == str(folder / "broken.gguf")
    assert error["message"]
    missing = rig.post("/v1/inspect", {"path": str(folder / "none")})
    assert missing.status_code == 400
    assert error_of(missing)["param"] == "path"


def test_of_a_split_model_only_the_first_part_is_listed(tmp_path: Path) -> None:
    names = ["m-00001-of-00002.gguf", "m-00002-of-00002.gguf", "n.gguf"]
    for name in names:
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "folder.gguf").mkdir()
    assert [file.name for file in model_files(tmp_path)] == [names[0], names[2]]


def test_forget_drops_idle_conversations(rig: ApiRig) -> None:
    rig.text(prompt=[5] * 30)
    rig.text(prompt=[6] * 30)
    assert len(rig.snapshot().kv_pool.sessions) == 2
    assert rig.post("/v1/sessions/forget", {"ids": ["s2", "s99"]}).json() == {"ids": ["s2"]}
    assert [s.id for s in rig.snapshot().kv_pool.sessions] == ["s1"]
    assert rig.post("/v1/sessions/forget", {"ids": None}).json() == {"ids": ["s1"]}
    assert rig.snapshot().kv_pool.free == 512


def test_count_is_the_prompt_of_a_chat(rig: ApiRig) -> None:
    turns = [{"role": "system", "content": "S"}, *HI]
    n_tokens = rig.post("/v1/count", {"messages": turns}).json()["n_tokens"]
    assert n_tokens == rig.chat(messages=turns).json()["usage"]["prompt_tokens"]
    assert rig.post("/v1/count", {"messages": []}).status_code == 400


@pytest.mark.parametrize("path", ["", "~nobody-of-that-name/x", "a\0b", "x" * 5000, "\n"])
def test_paths_nobody_has_are_400(make_rig: MakeRig, path: str) -> None:
    rig = make_rig(is_loaded=False)
    for route in ("/v1/load", "/v1/inspect"):
        reply = rig.post(route, {"path": path})
        assert reply.status_code == 400
        assert error_of(reply)["param"] == "path"


def test_home_is_understood(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    assert typed_path("~/m.gguf") == tmp_path / "m.gguf"


OWN = ["/v1/load", "/v1/unload", "/v1/inspect", "/v1/sessions/forget"]


@pytest.mark.parametrize("path", OWN)
@pytest.mark.parametrize("client", ["192.168.1.9", "::ffff:192.168.1.9"])
def test_other_machines_need_the_key_to_change_things(
    make_rig: MakeRig, path: str, client: str
) -> None:
    def post(rig: ApiRig, headers: dict[str, str]) -> httpx.Response:
        async def go() -> httpx.Response:
            transport = httpx.ASGITransport(app=rig.app, client=(client, 5))
            async with httpx.AsyncClient(transport=transport, base_url="http://1.2.3.4") as http:
                return await http.post(path, json={"path": "/nowhere"}, headers=headers)

        return asyncio.run(go())

    network = ApiConfig(host="0.0.0.0")
    refused = post(make_rig(api=network, is_loaded=False), {})
    assert refused.status_code == 403
    assert error_of(refused)["code"] == "local_only"
    keyed = ApiConfig(host="0.0.0.0", api_key="k")
    allowed = post(make_rig(api=keyed, is_loaded=False), {"x-api-key": "k"})
    assert allowed.status_code != 403
