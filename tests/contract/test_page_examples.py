"""Values of settings, and files of services, that a page shows are ones that the services take."""

from __future__ import annotations

import contextlib
import re

import pytest
import yaml
from pydantic import BaseModel

from docs.settings import settings_classes
from services.control.topology import Topology
from services.gateway.settings.guard import GuardSettings
from services.gateway.settings.prompt import WarmSettings
from services.gateway.settings.tools import ToolSettings
from services.runtime.process.config import load
from services.vision.manifest import Manifest
from tests.contract.accepting import give_only
from tests.contract.test_pages import DOCUMENTS, PAGES, blocks

CLASSES = {str(cls.model_config.get("env_prefix")): cls for cls in settings_classes()}
PREFIX = re.compile("|".join(CLASSES))
_VALUE = re.compile(r"(HEDGEROW_[A-Z0-9_]+)=(?:'([^']*)'|([^\s'\"`$()<>]+))")
VALUES = [
    (page.name, variable, quoted or plain)
    for page in DOCUMENTS
    for code in re.findall(r"```.*?```|`[^`\n]+`", page.read_text(), re.DOTALL)
    for variable, quoted, plain in _VALUE.findall(code)
    if PREFIX.match(variable) and "<" not in quoted and "…" not in f"{quoted}{plain}"
]
FILES: list[tuple[str, str, type[BaseModel]]] = [
    ("guard", "acme.guard", GuardSettings),
    ("mesh", "", Topology),
    ("prompts", "warm", WarmSettings),
    ("tools", "gateway.settings.tools", ToolSettings),
    ("vision", "", Manifest),
]


def test_there_are_values_on_the_pages() -> None:
    assert len(VALUES) > 5


@pytest.mark.parametrize(("page", "variable", "value"), VALUES)
def test_a_service_takes_the_value_of_a_setting(
    page: str, variable: str, value: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    give_only(monkeypatch, {variable: value})
    prefix = PREFIX.match(variable)
    assert prefix
    with contextlib.suppress(SystemExit):
        load(CLASSES[prefix[0]], [], prog="service")
    field = variable.removeprefix(prefix[0]).lower().partition("__")[0]
    said = capsys.readouterr().err.splitlines()
    assert [line for line in said if line.startswith(f"service: {field}") and "required" not in line] == []


@pytest.mark.parametrize(("page", "place", "kind"), FILES)
def test_a_service_takes_the_file(page: str, place: str, kind: type[BaseModel]) -> None:
    (path,) = [each for each in PAGES if each.stem == page]
    found = [yaml.safe_load(text) for text in blocks(path, "yaml")]
    part = next(filter(None, (_part(each, place) for each in found)))
    assert kind.model_validate(part)


def _part(content: object, place: str) -> object:
    for key in filter(None, place.split(".")):
        content = content.get(key) if isinstance(content, dict) else None
    return content
