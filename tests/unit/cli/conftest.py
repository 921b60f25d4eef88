"""Fixtures of the CLI's tests."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from typer import testing

from tests.unit.cli.keys_file import MESH

# What Typer makes of the application is made once: that takes longer than most commands.
testing._get_command = cache(testing._get_command)  # type: ignore[attr-defined]


@pytest.fixture
def mesh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mesh.yaml").write_text(MESH)
    return Path("mesh.yaml")
