"""The headings of a Markdown document, found without a list of its lines, which may be a million."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

LONGEST = 200  # characters of a heading that are its title: each snippet below it carries that
_MARKS = re.compile(r"[#`~](?:(?<=#)#*|(?<=`)`*|(?<=~)~*)")  # of headings and of fenced blocks of code
_MOST_MARKS, _MOST_INDENT, _LEAST_FENCE = 6, 3, 3
_ENDS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"  # of lines, as `str.splitlines` has them
_LINE_END = re.compile(rf"\r\n|[{_ENDS}]")


@dataclass(frozen=True, slots=True)
class Heading:
    """`start` and `end`: of its line, the end of the line included. `level`: 1 to 6."""

    start: int
    end: int
    level: int
    title: str


def headings(text: str) -> Iterator[Heading]:
    """Each heading that is not in a fenced block of code, in order."""
    fence, at = "", 0
    while found := _MARKS.search(text, at):
        marks, start = found[0], _line_start(text, found.start())
        end, at = _line_end(text, found.end())
        if start is None or (marks[0] != "#" and len(marks) < _LEAST_FENCE):
            continue
        if marks[0] != "#":
            fence = marks if not fence else "" if marks.startswith(fence) else fence
        elif not fence and _is_heading(text, marks, found.end()):
            yield Heading(start, at, len(marks), _title(text, found.end(), end))


def _line_start(text: str, at: int) -> int | None:
    """The beginning of the line; None if more than a few blanks stand before `at` in it."""
    start = at
    while start > max(0, at - _MOST_INDENT) and text[start - 1] == " ":
        start -= 1
    return start if start == 0 or text[start - 1] in _ENDS else None


def _is_heading(text: str, marks: str, after: int) -> bool:
    return len(marks) <= _MOST_MARKS and (after == len(text) or text[after] in " \t\r\n")


def _line_end(text: str, at: int) -> tuple[int, int]:
    found = _LINE_END.search(text, at)
    return found.span() if found else (len(text), len(text))


def _title(text: str, start: int, end: int) -> str:
    title = text[start:end].strip().rstrip("#").rstrip()
    return title if len(title) <= LONGEST else f"{title[: LONGEST - 1].rstrip()}…"
