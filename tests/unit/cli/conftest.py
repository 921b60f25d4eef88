"""Fixtures of the CLI's tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.cli.keys_file import MESH


@pytest.fixture
def mesh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mesh.yaml").write_text(MESH)
    return Path("mesh.yaml")
