"""The settings that a service makes of an environment with no other variables of Hedgerow."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from docs.settings import settings_classes
from services.runtime.process.config import load

DOCKER = Path(__file__).parents[2] / "deploy/docker"
CLASSES = {cls.__module__.split(".")[1]: cls for cls in settings_classes()}


def give_only(monkeypatch: pytest.MonkeyPatch, variables: Mapping[str, str]) -> None:
    """Give the process these variables, and none of Hedgerow beside them."""
    for name in [name for name in os.environ if name.startswith("HEDGEROW_")]:
        monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


def exposed(service: str) -> int:
    """The port that its image listens on."""
    return int(re.findall(r"^EXPOSE (\d+)$", (DOCKER / f"{service}.Dockerfile").read_text(), flags=re.MULTILINE)[0])


def accepted(service: str, environment: Mapping[str, str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The settings that a service in its image makes of the variables of Hedgerow, all of which are its own."""
    variables = {name: value for name, value in environment.items() if name.startswith("HEDGEROW_")}
    assert all(name.startswith(f"HEDGEROW_{service.upper()}_") for name in variables)
    variables[f"HEDGEROW_{service.upper()}_ADDRESS"] = f"0.0.0.0:{exposed(service)}"
    (folder / "tenants.yaml").write_text("{}")
    give_only(monkeypatch, {name: value.replace("/etc/hedgerow", str(folder)) for name, value in variables.items()})
    return load(CLASSES[service], [], prog=service)
