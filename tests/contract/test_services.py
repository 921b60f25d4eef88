"""There is one list of services; folders, settings, extras and import rules follow it."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from hedgerow.identities import SERVICES
from services.runtime.explain import settings_class

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_the_folders_are_the_services() -> None:
    assert {path.parent.name for path in (ROOT / "services").glob("*/__main__.py")} == set(SERVICES)


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_has_an_extra_and_its_own_port(service: str) -> None:
    assert service in PROJECT["project"]["optional-dependencies"]
    assert settings_class(service).model_fields["address"].default == f"127.0.0.1:{SERVICES[service].port}"


def test_the_import_rules_know_every_service() -> None:
    rules = {rule["name"]: rule for rule in PROJECT["tool"]["importlinter"]["contracts"]}
    layers = rules["The packages, from the command line down to the SDK"]["layers"]
    assert " | ".join(f"services.{service}" for service in sorted(SERVICES)) in layers
