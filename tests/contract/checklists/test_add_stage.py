"""The checklist "Add a stage with its service" of CONTRIBUTING.md, followed in a copy of the tree: a few files by hand
and one command, and images, mesh files and the chart have the service."""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.contract.chart import ask, environment, ports
from tests.contract.checklists.following import Followed, run
from tests.contract.checklists.glossary_stage import NAME, PORT, TEST, TITLE

# Their commands use 30 s of a processor, which takes minutes on a busy machine.
pytestmark = pytest.mark.timeout(900)
MOST_FILES = 12
MESH = """models:
  small: {url: "http://10.0.0.1:8000/v1"}
gateway: {allow_anonymous: true}
services:
  glossary: {settings: {words: {ttft: the time to the first token}}}
"""
DECLARED = {
    "test_a_question_has_the_explanations_of_its_words",
    f"test_a_service_has_an_extra_and_its_own_port[{NAME}]",
    "test_the_folders_are_the_services",
    "test_the_import_rules_know_every_service",
    f"test_an_image_has_every_package_its_service_imports[{NAME}]",
    f"test_an_image_runs_its_service_without_privileges_and_has_a_health_check[{NAME}]",
    "test_every_service_has_an_image",
    "test_stubs_are_what_the_contracts_generate",
}


def test_a_stage_with_its_service_is_added_by_the_checklist_in_at_most_twelve_files(followed: Followed) -> None:
    tree, by_hand = followed.tree, followed.by_hand[TITLE]
    assert len(by_hand) <= MOST_FILES
    named = {path for path in by_hand if f"`{path.replace(NAME, '<name>')}`" in followed.texts[TITLE]}
    assert named == by_hand - {TEST}
    assert DECLARED - followed.passed == set()

    (tree / "mesh.yaml").write_text(MESH)
    compose = rendered(tree, "compose")
    gateway, glossary = compose["services"]["gateway"], compose["services"][NAME]
    assert glossary["image"].startswith(f"hedgerow/{NAME}:")
    assert glossary["environment"]["HEDGEROW_GLOSSARY_WORDS"] == '{"ttft": "the time to the first token"}'
    assert gateway["environment"]["HEDGEROW_GATEWAY_STAGE_ADDRESSES"] == f'{{"{NAME}": "{NAME}:{PORT}"}}'
    values = rendered(tree, "helm")
    assert values["services"][NAME]["settings"] == {"WORDS": {"ttft": "the time to the first token"}}
    if find_spec("helm_python"):
        (answer,) = ask([values], chart=tree / "deploy/helm/hedgerow")
        assert not answer.error
        assert ports(answer.ours[NAME])["grpc"] == PORT
        variables = environment(answer.ours["gateway"])
        assert json.loads(variables["HEDGEROW_GATEWAY_STAGE_ADDRESSES"]) == {NAME: f"xds:///{NAME}"}


def rendered(tree: Path, target: str) -> dict[str, Any]:
    """The mesh file as `hedgerow render` writes it."""
    run(tree, sys.executable, "-m", "hedgerow_cli", "render", target, "mesh.yaml", "-o", "rendered.yaml")
    found: dict[str, Any] = yaml.safe_load((tree / "rendered.yaml").read_text())
    return found
