"""docs/openapi.yaml has the routes that are served. Its options come from their table; schemathesis holds the rest."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from services.gateway.admission.intake import Intake
from services.gateway.admission.question import TIERS
from services.gateway.config import GatewaySettings
from services.gateway.http.app import HttpParts, _App
from services.runtime.policy.waiting_bytes import WaitingBytes
from tests.conftest import REPOSITORY

NOBODY: Any = None  # behind the routes
INTAKE = Intake(WaitingBytes(0), NOBODY)


@pytest.fixture(scope="module")
def document() -> Any:
    return yaml.safe_load((REPOSITORY / "docs/openapi.yaml").read_text())


@pytest.fixture(scope="module")
def http_api() -> _App:
    parts = HttpParts(
        GatewaySettings(llm_addresses={"m": ["127.0.0.1:1"]}),
        NOBODY,
        NOBODY,
        NOBODY,
        NOBODY,
        NOBODY,
        INTAKE,
        NOBODY,
        NOBODY,
        NOBODY,
    )
    return _App(parts)


def test_the_openapi_document_has_every_route_by_its_method(document: Any, http_api: _App) -> None:
    served = {
        (re.sub(r":\w+}", "}", route.path), method)
        for route in http_api._routes()
        for method in (route.methods or set()) - {"HEAD"}
    }
    documented = {(path, method.upper()) for path, operations in document["paths"].items() for method in operations}
    assert documented == served


def test_the_http_page_has_every_route(document: Any) -> None:
    page = (REPOSITORY / "docs/http.md").read_text()
    documented = {path.replace("{model}", "{id}") for path in document["paths"]}
    assert {path for path in documented if f"{path}`" not in page} == set()


def test_a_tier_has_the_names_that_stand_for_a_model(document: Any) -> None:
    assert document["components"]["schemas"]["Options"]["properties"]["tier"]["enum"] == [*TIERS]


def test_every_name_in_it_is_somewhere(document: Any) -> None:
    named = set(re.findall(r"#/components/(\w+)/(\w+)", (REPOSITORY / "docs/openapi.yaml").read_text()))
    there = {(kind, name) for kind, each in document["components"].items() for name in each}
    assert named == {(kind, name) for kind, name in there if kind != "securitySchemes"}
