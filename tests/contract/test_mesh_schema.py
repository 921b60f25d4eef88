"""The JSON Schema of mesh files: as its classes have it, and valid for every mesh file of the documentation."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator
from typer.testing import CliRunner

import services.llm.engines
from hedgerow.engines import ENGINES
from hedgerow_cli.app import app
from launcher.meshfile.json_schema import SHIPPED, text
from launcher.meshfile.template import InitAnswers, write

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads(SHIPPED.read_text())
VALIDATOR = Draft202012Validator(SCHEMA)


def of_pages() -> Iterator[tuple[str, Any]]:
    """Mesh files in the documentation, with their place."""
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        for number, block in enumerate(re.findall(r"```yaml\n(.*?)```", page.read_text(), re.DOTALL)):
            yield f"{page.name}#{number}", yaml.safe_load(block)


def of_folders() -> Iterator[tuple[str, Any]]:
    for folder in ("docs", "samples", "deploy"):
        for file in sorted((ROOT / folder).rglob("*.y*ml")):
            if "helm" not in file.parts:  # values of the chart also have `models`
                for content in yaml.safe_load_all(file.read_text()):
                    yield str(file.relative_to(ROOT)), content


MESHES = [(where, content) for where, content in (*of_pages(), *of_folders()) if "models" in (content or ())]


def wrong(content: Any) -> list[str]:
    return [error.message for error in VALIDATOR.iter_errors(content)]


def test_the_shipped_schema_is_up_to_date_and_is_printed() -> None:
    assert SHIPPED.read_text() == text(), "run `make docs`"
    Draft202012Validator.check_schema(SCHEMA)
    printed = CliRunner().invoke(app, ["check", "--schema"])
    assert (printed.exit_code, printed.stdout) == (0, SHIPPED.read_text())


def test_every_key_has_a_description_for_editors() -> None:
    sections = [SCHEMA, *(each for each in SCHEMA["$defs"].values() if each)]
    keys = {
        f"{section.get('title')}.{name}": key
        for each in sections
        for section in each.get("anyOf", [each])
        for name, key in section.get("properties", {}).items()
    }
    assert len(keys) > 80
    assert [name for name, key in keys.items() if not (key.get("description") or "$ref" in key)] == []


def test_a_mesh_file_has_every_engine_that_a_models_service_has() -> None:
    assert tuple(services.llm.engines.ENGINES) == ENGINES


def test_there_are_mesh_files_in_the_documentation() -> None:
    assert {where.partition("#")[0] for where, _ in MESHES} >= {"README.md", "mesh-file.md", "proxy.md", "tenants.md"}


@pytest.mark.parametrize(("where", "content"), MESHES, ids=[where for where, _ in MESHES])
def test_every_mesh_file_of_the_documentation_is_valid(where: str, content: Any) -> None:
    assert wrong(content) == []


@pytest.mark.parametrize("model", ["openai:gpt-5-mini", "./models/mine", "a/b", "http://127.0.0.1:8000/v1 Qwen/Q"])
@pytest.mark.parametrize("callers", ["local", "keys"])
@pytest.mark.parametrize("stored", ["no", "exact", "semantic"])
def test_the_file_of_init_is_valid(model: str, callers: Any, stored: Any) -> None:
    assert wrong(yaml.safe_load(write(InitAnswers(model, "MY_KEY", callers, stored)))) == []


@pytest.mark.parametrize(
    "more",
    [
        {"gateway": 50050},
        {"gateway": "0.0.0.0:1"},
        {"gateway": {"address": 1, "http": False}},
        {"gateway": {"http": 50080}},
        {"cache": False},
        {"tracing": "http://127.0.0.1:4317"},
        {"vision": "efficientnet-lite0", "audio": "large-v3-turbo"},
        {"tenants": {"a": {"key_sha256": "0" * 64}, "b": {"key_sha256": ["f" * 64], "key_env": ["A", "B"]}}},
        {"tenants": {"a": {"key_sha256": {"sha256": "0" * 64, "expires": "2027-01-31"}}}},
    ],
)
def test_short_forms_are_valid(more: dict[str, Any]) -> None:
    assert wrong({"models": {"a": "./b", "c": {"url": ["http://x/v1", "http://y/v1"]}}, **more}) == []


@pytest.mark.parametrize(
    ("path", "nearest"),
    [
        (("gatewy",), "gateway"),
        (("models", "a", "teir"), "tier"),
        (("models", "a", "prices", "imput"), "input"),
        (("tenants", "acme", "requests_per_sec"), "requests_per_s"),
        (("gateway", "adress"), "address"),
        (("cache", "semantics"), "semantic"),
        (("audio", "foldr"), "folder"),
    ],
)
def test_a_misspelt_key_is_refused_by_the_schema_and_by_check_with_the_nearest(
    path: tuple[str, ...], nearest: str, tmp_path: Path
) -> None:
    whole: dict[str, Any] = {"models": {"a": {"url": "http://127.0.0.1:9/v1"}}}
    section = whole
    for step in path[:-1]:
        section = section.setdefault(step, {})
    assert wrong(whole) == []
    section[path[-1]] = 1
    assert wrong(whole) != []
    file = tmp_path / "mesh.yaml"
    file.write_text(yaml.safe_dump(whole))
    refused = CliRunner().invoke(app, ["check", str(file)])
    assert refused.exit_code == 2
    assert f"{'.'.join(path)}: no such key; did you mean {nearest}?" in refused.stderr


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"models": {}},
        {"models": {"a": {"url": "http://x/v1", "tier": "best"}}},
        {"models": {"a": {"url": "http://x/v1", "replicas": 65}}},
        {"models": {"a": 1}},
        {"models": {"a": "./b"}, "gateway": 70_000.5},
        {"models": {"a": "./b"}, "tenants": {"a": {"key_sha256": "abc"}}},
        {"models": {"a": "./b"}, "tenants": {"a": {"key_sha256": [{"sha256": "abc"}]}}},
        {"models": {"a": "./b"}, "tenants": {"a": {"key_sha256": [{"sha256": "0" * 64, "until": "2027-01-31"}]}}},
        {"models": {"a": "./b"}, "profile": "fast"},
    ],
)
def test_types_and_limits_are_refused(content: Any) -> None:
    assert wrong(content) != []
