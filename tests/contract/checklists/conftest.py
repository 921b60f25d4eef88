from __future__ import annotations

import pytest

from tests.contract.checklists import glossary_stage, message_limit
from tests.contract.checklists.following import Followed, copy_of_the_tree, follow


@pytest.fixture(scope="session")
def followed(tmp_path_factory: pytest.TempPathFactory) -> Followed:
    """A copy of the tree, with one more request option and one more stage."""
    tree = copy_of_the_tree(tmp_path_factory.mktemp("tree"))
    return follow(tree, message_limit.checklist(tree), glossary_stage.checklist(tree))
