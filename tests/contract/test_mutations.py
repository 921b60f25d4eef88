"""The old faults that `make mutants` brings back still fit the code."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.mutations import Mutation, mutations

_ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("mutation", list(mutations()), ids=lambda mutation: mutation.fault)
def test_an_old_fault_can_be_brought_back_in_one_place_and_its_test_exists(mutation: Mutation):
    assert (_ROOT / mutation.file).read_text().count(mutation.old) == 1
    assert mutation.new != mutation.old
    file, _, name = mutation.test.partition("::")
    tests = {node.name for node in ast.walk(ast.parse((_ROOT / file).read_text())) if hasattr(node, "name")}
    assert not name or name.partition("[")[0] in tests
