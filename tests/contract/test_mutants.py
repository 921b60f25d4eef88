"""`[tool.mutmut]` names what is there: mutmut passes over a path that is not, and reports no error."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_MUTMUT = tomllib.loads((_ROOT / "pyproject.toml").read_text())["tool"]["mutmut"]


@pytest.mark.parametrize("pattern", [*_MUTMUT["only_mutate"], *_MUTMUT["do_not_mutate"]])
def test_a_pattern_of_files_to_mutate_or_to_leave_matches_one_below_the_source_paths(pattern: str) -> None:
    assert any(path.match(pattern) for folder in _MUTMUT["source_paths"] for path in (_ROOT / folder).rglob("*.py"))


@pytest.mark.parametrize("name", [*_MUTMUT["also_copy"], *_MUTMUT["pytest_add_cli_args_test_selection"]])
def test_a_path_that_the_unit_tests_need_or_that_holds_them_exists(name: str) -> None:
    assert (_ROOT / name).exists()
