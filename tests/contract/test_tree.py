"""The tree follows the list of services, imports in no circle, and runs on the Pythons that `pyproject.toml` names."""

from __future__ import annotations

import ast
import tomllib
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp
import pytest

from hedgerow.identities import SERVICES
from services.runtime.explain import settings_class

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
MUTMUT = PROJECT["tool"]["mutmut"]
SHIPPED = ("hedgerow", "hedgerow_cli", "launcher", "services")


def test_the_folders_are_the_services() -> None:
    assert {path.parent.name for path in (ROOT / "services").glob("*/__main__.py")} == set(SERVICES)


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_has_an_extra_and_its_own_port(service: str) -> None:
    assert service in PROJECT["project"]["optional-dependencies"]
    assert settings_class(service).model_fields["address"].default == f"127.0.0.1:{SERVICES[service].port}"


def test_the_import_rules_know_every_service() -> None:
    rules = {rule["name"]: rule for rule in PROJECT["tool"]["importlinter"]["contracts"]}
    layers = rules["The packages, from the command line down to the SDK"]["layers"]
    assert " | ".join(f"services.{service}" for service in sorted(SERVICES)) in layers


@pytest.mark.parametrize("package", [*SHIPPED, "bench"])
def test_no_module_imports_itself_through_others(package: str) -> None:
    graph = grimp.build_graph(package, cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


@pytest.mark.parametrize("pattern", [*MUTMUT["only_mutate"], *MUTMUT["do_not_mutate"]])
def test_a_pattern_of_files_to_mutate_or_to_leave_matches_one_below_the_source_paths(pattern: str) -> None:
    assert any(path.match(pattern) for folder in MUTMUT["source_paths"] for path in (ROOT / folder).rglob("*.py"))


@pytest.mark.parametrize("name", [*MUTMUT["also_copy"], *MUTMUT["pytest_add_cli_args_test_selection"]])
def test_a_path_that_the_unit_tests_need_or_that_holds_them_exists(name: str) -> None:
    assert (ROOT / name).exists()


def raises_in_except_star(text: str) -> list[int]:
    """The lines of `raise ERROR` in a handler of `except*`."""
    handlers = [
        handler for node in ast.walk(ast.parse(text)) if isinstance(node, ast.TryStar) for handler in node.handlers
    ]
    inside = [node for handler in handlers for node in ast.walk(handler)]
    return [node.lineno for node in inside if isinstance(node, ast.Raise) and node.exc]


def test_no_handler_of_except_star_raises_an_error_of_its_own() -> None:
    """Python before 3.11.4 wraps it in an ExceptionGroup, which no caller matches. Debian 12 has 3.11.2."""
    files = [path for package in SHIPPED for path in (ROOT / package).rglob("*.py")]
    assert [f"{path}:{line}" for path in files for line in raises_in_except_star(path.read_text())] == []


def test_such_a_handler_is_found() -> None:
    assert raises_in_except_star("try:\n    f()\nexcept* OSError as group:\n    raise group.exceptions[0]\n") == [4]
