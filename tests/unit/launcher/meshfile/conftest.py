from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.launcher.meshfile.mesh_files import KEY


@pytest.fixture
def mesh_folder(tmp_path: Path) -> Path:
    """A folder of a mesh file, with a model and two key files."""
    (tmp_path / "model").mkdir()
    (tmp_path / "key.txt").write_text(f"{KEY}\n")
    (tmp_path / "two.txt").write_text("one two\n")
    return tmp_path
