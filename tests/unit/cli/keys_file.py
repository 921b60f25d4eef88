"""A mesh file with keys, and `hedgerow keys` on it."""

from __future__ import annotations

import difflib
import json
from pathlib import Path

from typer.testing import CliRunner, Result

from hedgerow_cli.app import app
from tests.keys import digest

OLD, OTHER = digest("old"), digest("other")


MESH = f"""\
# Ours.
models:
  gpt: {{url: "https://api.example/v1"}}   # a provider

tenants:
  # The first customer.
  acme: {{key_sha256: {OLD}, requests_per_s: 20}}
  batch:
    key_sha256:
      - "{OLD[::-1]}"
      - "{OTHER}"   # of the night's jobs

# The way in.
gateway: 50050
"""


def keys(*arguments: str, typed: str = "") -> Result:
    return CliRunner().invoke(app, ["keys", *arguments], input=typed)


def changes(file: Path, before: str = MESH) -> list[str]:
    """The lines that are others now."""
    lines = difflib.ndiff(before.splitlines(), file.read_text().splitlines())
    return [line for line in lines if line[0] in "+-"]


def created(*arguments: str) -> dict[str, str]:
    result = keys("create", *arguments, "--json")
    assert result.exit_code == 0, result.output
    made: dict[str, str] = json.loads(result.stdout)
    return made
