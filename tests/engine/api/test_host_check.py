"""Host, origin and key rules, asked of the real application."""

from __future__ import annotations

import socket
from collections.abc import Callable

import pytest

from engine.api.host_check import HostCheck, host_name, is_loopback, machine_names
from engine.config import ApiConfig
from tests.engine.api.api_rig import HI, ApiRig, error_of

MakeRig = Callable[..., ApiRig]

LOOPBACK = [
    "127.0.0.1:8080",
    "localhost:8080",
    "[::1]:8080",
    "LOCALHOST",
    "127.8.8.8",
    "a.localhost",
]
ADDRESSES = ["192.168.1.30:8080", "[fe80::1]:8080", "10.0.0.7"]
FOREIGN = ["evil.example:8080", "localhost.evil.example", "127.0.0.1.nip.io", "1.2.3.4.5"]


def status_of(rig: ApiRig, host: str, **headers: str) -> int:
    return rig.get("/v1/models", headers={"host": host, **headers}).status_code


@pytest.mark.parametrize("host", LOOPBACK)
@pytest.mark.parametrize("bind", ["127.0.0.1", "0.0.0.0"])
def test_k101_loopback_always_passes(make_rig: MakeRig, bind: str, host: str) -> None:
    rig = make_rig(api=ApiConfig(host=bind), is_loaded=False)
    assert status_of(rig, host) == 200


def test_k101_addresses_and_own_names_pass_on_the_network(make_rig: MakeRig) -> None:
    rig = make_rig(api=ApiConfig(host="0.0.0.0"), is_loaded=False)
    own = socket.gethostname().split(".")[0]
    for host in (*ADDRESSES, f"{own}:8080", f"{own}.local:8080", own.upper()):
        assert status_of(rig, host) == 200
    local = make_rig(is_loaded=False)
    for host in ADDRESSES:
        assert status_of(local, host) == 403


@pytest.mark.parametrize("host", FOREIGN)
@pytest.mark.parametrize("bind", ["127.0.0.1", "0.0.0.0"])
def test_k101_foreign_names_are_403_naming_the_setting(
    make_rig: MakeRig, bind: str, host: str
) -> None:
    rig = make_rig(api=ApiConfig(host=bind), is_loaded=False)
    for path in ("/v1/models", "/health", "/nowhere"):
        refused = rig.get(path, headers={"host": host})
        assert refused.status_code == 403
        error = error_of(refused)
        assert "allowed_hosts" in error["message"]
        assert host.split(":")[0] in error["message"]
        assert error["code"] == "host_not_allowed"


def test_k101_a_key_opens_any_host(make_rig: MakeRig) -> None:
    rig = make_rig(api=ApiConfig(api_key="k"), is_loaded=False)
    assert status_of(rig, "evil.example", authorization="Bearer k") == 200
    assert status_of(rig, "evil.example") == 401


def test_named_hosts_pass(make_rig: MakeRig) -> None:
    rig = make_rig(api=ApiConfig(allowed_hosts=("My.Example",)), is_loaded=False)
    assert status_of(rig, "my.example:8080") == 200
    assert status_of(rig, "other.example") == 403


@pytest.mark.parametrize("host", ["", "a b", "x:y", "[::1", "[zz]", "host:99999999", "a/b"])
def test_malformed_hosts_are_400(make_rig: MakeRig, host: str) -> None:
    rig = make_rig(is_loaded=False)
    refused = rig.get("/v1/models", headers={"host": host})
    assert refused.status_code == 400
    assert error_of(refused)["code"] == "invalid_host"


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("localhost:1", "localhost"),
        ("Example.COM.", "example.com"),
        ("[::1]:80", "::1"),
        ("[::1]", "::1"),
        ("1.2.3.4", "1.2.3.4"),
        ("[::1]x", None),
        ("::1", None),
        (":80", None),
        ("user@host", None),
    ],
)
def test_host_names(host: str, name: str | None) -> None:
    assert host_name(host) == name


def test_own_names() -> None:
    assert machine_names("MyPC") == {"mypc", "mypc.local"}
    assert machine_names("box.lan") == {"box.lan", "box", "box.lan.local", "box.local"}
    assert machine_names("") == frozenset()
    assert is_loopback("::1")
    assert is_loopback("::ffff:127.0.0.1")
    assert not is_loopback("::ffff:10.0.0.1")
    assert not is_loopback("0.0.0.0")


def test_a_server_bound_to_an_ipv6_loopback_is_local() -> None:
    async def app(*_: object) -> None:
        raise AssertionError

    assert HostCheck(app, config=ApiConfig(host="::1"), own_names=["pc"]).names == frozenset()
    assert HostCheck(app, config=ApiConfig(host="::"), own_names=["pc"]).names == {"pc"}


@pytest.mark.parametrize(
    "origin",
    ["https://evil.example", "null", "file://", "http://localhost.evil.example", "garbage", ""],
)
def test_foreign_origins_are_403_whatever_they_ask(make_rig: MakeRig, origin: str) -> None:
    rig = make_rig(is_loaded=False)
    for method, path in (("GET", "/health"), ("POST", "/v1/unload"), ("OPTIONS", "/v1/load")):
        refused = rig.send(method, path, headers={"origin": origin})
        assert refused.status_code == 403
        assert "allowed_origins" in error_of(refused)["message"]
        assert "access-control-allow-origin" not in refused.headers


@pytest.mark.parametrize(
    "origin",
    ["http://localhost:3000", "http://127.0.0.1", "https://[::1]:5", "http://app.localhost"],
)
def test_loopback_origins_get_cors_headers(make_rig: MakeRig, origin: str) -> None:
    rig = make_rig(is_loaded=False)
    for path in ("/health", "/nowhere"):
        reply = rig.get(path, headers={"origin": origin})
        assert reply.headers["access-control-allow-origin"] == origin
        assert "Origin" in reply.headers["vary"]


def test_preflight_needs_no_key(make_rig: MakeRig) -> None:
    rig = make_rig(api=ApiConfig(api_key="k", allowed_origins=("https://chat.example",)))
    reply = rig.send(
        "OPTIONS",
        "/v1/chat/completions",
        headers={
            "origin": "https://chat.example",
            "access-control-request-method": "POST",
            "access-control-request-headers": "authorization, x-stainless-os",
            "access-control-request-private-network": "true",
        },
    )
    assert reply.status_code == 204
    assert reply.headers["access-control-allow-origin"] == "https://chat.example"
    assert "POST" in reply.headers["access-control-allow-methods"]
    assert "x-stainless-os" in reply.headers["access-control-allow-headers"]
    assert reply.headers["access-control-allow-private-network"] == "true"
    assert rig.get("/v1/models", headers={"origin": "https://chat.example"}).status_code == 401


def test_a_page_of_this_server_may_call_it(make_rig: MakeRig) -> None:
    rig = make_rig(api=ApiConfig(host="0.0.0.0"), is_loaded=False)
    host = "192.168.1.30:8080"
    assert status_of(rig, host, origin=f"http://{host}") == 200
    assert status_of(rig, host, origin="http://192.168.1.31:8080") == 403


def test_keys(make_rig: MakeRig) -> None:
    rig = make_rig(api=ApiConfig(api_key="sécret"))
    for headers in (
        {},
        {"authorization": "Bearer wrong"},
        {"authorization": "Basic s\u00e9cret"},
        {"authorization": "Bearer "},
        {"x-api-key": "secret"},
        {"x-api-key": ""},
    ):
        raw = {key: value.encode() for key, value in headers.items()}
        refused = rig.post("/v1/chat/completions", {"messages": HI}, headers=raw)
        assert refused.status_code == 401
        assert refused.headers["www-authenticate"] == "Bearer"
        assert error_of(refused)["type"] == "authentication_error"
        assert "s\u00e9cret" not in refused.text
    for headers in ({"authorization": "bearer sécret"}, {"x-api-key": "sécret"}):
        raw = {key: value.encode() for key, value in headers.items()}
        assert rig.get("/v1/models", headers=raw).status_code == 200
    health = rig.get("/health")
    assert health.status_code == 200
    assert health.json()["has_api_key"] is True
