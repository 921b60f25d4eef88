"""The tree runs on each patch of the Python versions that `pyproject.toml` names."""

from __future__ import annotations

import ast
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
SHIPPED = ("hedgerow", "hedgerow_cli", "launcher", "services")


def raises_in_except_star(text: str) -> list[int]:
    """The lines of `raise ERROR` in a handler of `except*`."""
    handlers = [
        handler for node in ast.walk(ast.parse(text)) if isinstance(node, ast.TryStar) for handler in node.handlers
    ]
    inside = [node for handler in handlers for node in ast.walk(handler)]
    return [node.lineno for node in inside if isinstance(node, ast.Raise) and node.exc]


def test_no_handler_of_except_star_raises_an_error_of_its_own() -> None:
    """Python before 3.11.4 wraps it in an ExceptionGroup, which no caller matches. Debian 12 has 3.11.2."""
    files = [path for package in SHIPPED for path in (REPOSITORY / package).rglob("*.py")]
    assert [f"{path}:{line}" for path in files for line in raises_in_except_star(path.read_text())] == []


def test_such_a_handler_is_found() -> None:
    assert raises_in_except_star("try:\n    f()\nexcept* OSError as group:\n    raise group.exceptions[0]\n") == [4]
