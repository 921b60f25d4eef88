"""`docs/mesh-file.md` lists the keys that there are, and its examples, as those of other pages, can be used."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs import mesh_file as page
from docs.settings import settings
from launcher.meshfile.fields import Surroundings
from launcher.meshfile.reading import parse
from services.gateway.config import GatewaySettings

REPOSITORY = Path(__file__).parents[2]
EXAMPLES = [
    text
    for file in (REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md")))
    for text in re.findall(r"```yaml\n(models:.*?)```", file.read_text(), re.DOTALL)
]
VARIABLES = ("OPENAI_API_KEY", "HEDGEROW_API_KEY", "ACME_KEY", "BATCH_KEY", "SUPPORT_KEY")


def test_the_page_of_mesh_file_keys_is_up_to_date() -> None:
    text = page.PAGE.read_text()
    assert page.render(text) == text, "run `make docs`"


def test_every_key_is_described() -> None:
    for line in page.render(page.HEAD).splitlines():
        assert not line.startswith("- `") or not line.endswith(": "), line


def test_settings_of_the_gateway_that_the_page_names_are_settings() -> None:
    known = {setting.path for setting in settings(GatewaySettings)}
    named = set(re.findall(r"`gateway\.settings\.([\w.]+)`", page.PAGE.read_text()))
    assert len(named) > 5
    assert {name for name in named if not any(f"{path}.".startswith(f"{name}.") for path in known)} == set()


@pytest.mark.parametrize("text", EXAMPLES)
def test_the_examples_can_be_used(text: str, tmp_path: Path) -> None:
    for folder in re.findall(r"\./(\S+)", text):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "anthropic").write_text("a-key")
    assert parse(text, "mesh.yaml", Surroundings(tmp_path, dict.fromkeys(VARIABLES, "a-key"))).whole().models
