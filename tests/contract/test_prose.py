"""No folder holds more words that have a plainer one than it may (scripts/prose.py), and the check finds them."""

from __future__ import annotations

import tomllib

import pytest

from scripts.prose import ALLOWED, REPOSITORY, found, main, vague_names


def test_no_folder_has_more_than_it_may(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0, capsys.readouterr().out


def test_allowances_are_for_folders_that_exist() -> None:
    allowed = tomllib.loads(ALLOWED.read_text())
    assert all((REPOSITORY / name).is_dir() and count > 0 for name, count in allowed.items())


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("a.md", "A caller leaves.\n\nNobody waits."),
        ("a.md", "A cache.\n\nWhat is stored stays stored."),
        ("a.py", "x = 1\n\n# told to go\n"),
        ("a.py", 'def f():\n\n    """Who calls."""\n'),
        ("a.py", 'x = f(\n\n    help="The caller who asks again.")\n'),
        ("a.proto", "int32 who = 1;\n\n// Whoever calls.\n"),
    ],
)
def test_a_word_is_found_with_its_line(path: str, text: str) -> None:
    assert [each.line for each in found(path, text)] == [3]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("a.md", "`who` is a command:\n\n```sh\nwho\n```\n\n[a page](who.md), What is it?"),
        ("a.py", 'who = {"who": nobody}\n'),
        ("tests/a.py", 'ask("Who wrote this long book?")\n'),
        ("a.proto", "int32 who = 1;\n"),
    ],
)
def test_code_and_data_are_not_read(path: str, text: str) -> None:
    assert [*found(path, text)] == []


@pytest.mark.parametrize(
    "line",
    [
        "_told_s = 1",
        "def tell(): ...",
        "each.heard()",
        "f(nobody=1)",
        "lambda door: 0",
        "import a as mine",
        'f"{Diet}"',
    ],
)
def test_a_vague_name_in_product_code_is_found_with_its_line(line: str) -> None:
    text = f"x = 1\n\n{line}\n"
    assert [each.line for each in vague_names("services/a.py", text)] == [3]
    assert [*vague_names("tests/a.py", text)] == []


def test_a_name_without_vague_parts_is_accepted() -> None:
    assert [*vague_names("services/a.py", "outdoor, retelling, wall_s = 'told', 1, 2  # tell\n")] == []
