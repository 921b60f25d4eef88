"""`docs/sdk.md` lists the options, the fields of an answer and the errors as they are."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import hedgerow
from docs import sdk as page

PACKAGE = Path(__file__).parents[2] / "hedgerow"


def test_the_page_of_the_sdk_is_up_to_date() -> None:
    text = page.PAGE.read_text()
    assert page.render(text) == text, "run `make docs`"


def test_every_field_is_described() -> None:
    for cls in ("Options", "MeshOptions", "Request", "Answer"):
        assert [name for name, _, what in page.fields(cls) if not what] == []


def test_every_class_of_errors_is_listed() -> None:
    classes = {cls.__name__ for cls in hedgerow.HedgerowError.__subclasses__()}
    assert set(page.RETRY) == classes | {"HedgerowError"}


def test_every_reason_that_the_sdk_gives_is_listed() -> None:
    listed = {reason for reasons in page.OWN.values() for reason in reasons}
    assert set(_reasons()) - listed == set()
    assert {reason for reason in listed if f"\n- `{reason}`: " not in page.PAGE.read_text()} == set()


def _reasons() -> Iterator[str]:
    """Constants that are given as `reason`."""
    for path in PACKAGE.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.keyword) and node.arg == "reason" and isinstance(node.value, ast.Constant):
                yield str(node.value.value)
