"""The route list and the document that describes it."""

from __future__ import annotations

from typing import Any

import pytest

from engine.api.app import routes
from tests.engine.api.api_rig import ApiRig


@pytest.fixture
def document(rig: ApiRig) -> dict[str, Any]:
    described: dict[str, Any] = rig.get("/openapi.json").json()
    return described


def test_every_address_is_described_with_its_refusals(document: dict[str, Any]) -> None:
    described = {
        (path, method) for path, methods in document["paths"].items() for method in methods
    }
    assert described == {
        (route.path.replace(":path", ""), method.lower())  # type: ignore[attr-defined]
        for route in routes()
        for method in route.methods  # type: ignore[attr-defined]
        if route.include_in_schema  # type: ignore[attr-defined]
    }
    for path, method in described:
        answers = document["paths"][path][method]["responses"]
        assert {"400", "403", "413", "503"} <= answers.keys(), path
        assert "422" not in answers
        schema = answers["400"]["content"]["application/json"]["schema"]
        assert schema == {"$ref": "#/components/schemas/ErrorEnvelope"}


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_generation_is_described_as_json_and_events(document: dict[str, Any], path: str) -> None:
    post = document["paths"][path]["post"]
    assert post["responses"]["200"]["content"].keys() == {"application/json", "text/event-stream"}
    assert "application/json" in post["requestBody"]["content"]


def test_all_references_resolve(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    assert "HTTPValidationError" not in schemas

    def references(value: Any) -> set[str]:
        if isinstance(value, dict):
            own = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
            return own.union(*(references(item) for item in value.values()))
        if isinstance(value, list):
            return set().union(*(references(item) for item in value))
        return set()

    for reference in references(document):
        assert reference.removeprefix("#/components/schemas/") in schemas


def test_pages_that_load_scripts_from_the_network_are_off(rig: ApiRig) -> None:
    assert rig.get("/docs").status_code == 404
    assert rig.get("/redoc").status_code == 404


@pytest.mark.parametrize("path", ["/health", "/v1/models", "/v1/models/tiny", "/v1/status"])
def test_head_asks_what_get_asks(rig: ApiRig, path: str) -> None:
    assert rig.send("HEAD", path).status_code == rig.get(path).status_code == 200


def test_a_stream_of_events_has_no_head(rig: ApiRig) -> None:
    assert rig.send("HEAD", "/v1/status/events").status_code == 405
