from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.checklists import copy_of_the_tree


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the tree to follow a checklist in."""
    return copy_of_the_tree(tmp_path)
