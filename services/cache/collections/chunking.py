"""Cuts a document into snippets that an embedder can read whole.

A snippet is a slice of its document: snippets follow each other, and between two of them there is nothing but white
space. A cut is made at the first of these borders that makes the parts small enough: a heading, an empty line, the end
of a sentence (or of a list's item, or a table's row), white space, anywhere. Parts of one section are about equally
long. Each is searched with the headings that it stands under, which say what "it" is.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from services.cache.collections.documents import Document, Format, Snippet
from services.cache.tokens import CHARACTERS_PER_TOKEN

Length = Callable[[str], int]  # of a text, in the pieces that an embedder reads

BETWEEN = " › "  # headings
_MARKS = 2  # pieces that the embedder adds to each text
_TITLE_SHARE = 3  # a title has at most one of so many parts of the room
_MOST_PARTS = 16  # of a title that are tried one by one
# An embedder's pieces end at these, so the length of a whole is the sum of its parts'. Other white space it may drop.
_SPACE = r"[ \t\r\n]"
_BORDERS = tuple(
    re.compile(border)
    for border in (
        rf"(?:\r?\n[ \t]*){{2,}}{_SPACE}*",
        rf"(?<=[.!?…]){_SPACE}+|(?<=[.!?…][\"'”’)\]]){_SPACE}+|(?<=[。！？।॥؟۔])|\n(?=[ \t]*(?:[-*+|>]|\d+[.)])[ \t|])",
        rf"{_SPACE}+",
    )
)

LONGEST = 200  # characters of a heading that are its title: each snippet below it carries that
_HEADING_MARKS = re.compile(r"[#`~](?:(?<=#)#*|(?<=`)`*|(?<=~)~*)")  # of headings and of fenced blocks of code
_MOST_MARKS, _MOST_INDENT, _LEAST_FENCE = 6, 3, 3
_ENDS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"  # of lines, as `str.splitlines` has them
_LINE_END = re.compile(rf"\r\n|[{_ENDS}]")


@dataclass(frozen=True, slots=True)
class _Part:
    """A slice of a text. `whole`: it ends at a border, so lengths add up."""

    start: int
    end: int
    length: int
    whole: bool = True


@dataclass(frozen=True, slots=True)
class _Section:
    title: str
    start: int
    end: int


def cut(document: Document, length: Length, max_tokens: int) -> Iterator[Snippet]:
    """A document's snippets, in order; the embedder reads at most `max_tokens` of each."""
    for passage in document.passages:
        title = BETWEEN.join(filter(None, (document.title, passage.title)))
        yield from _cut(passage.text, _Section(title, 0, len(passage.text)), length, max_tokens)
    if not document.passages:
        for section in _sections(document):
            yield from _cut(document.text, section, length, max_tokens)


def title_of(document: Document) -> str:
    """A document's title, else its first heading."""
    if document.title or document.format is Format.PLAIN:
        return document.title
    return next((heading.title for heading in headings(document.text)), "")


def _cut(text: str, section: _Section, length: Length, max_tokens: int) -> Iterator[Snippet]:
    lead, room = _titled(section.title, length, max_tokens - _MARKS)
    for start, end in _packed(list(_parts(text, section.start, section.end, length, room)), room):
        yield Snippet(section.title, text[start:end], lead)


def _titled(title: str, length: Length, room: int) -> tuple[str, int]:
    """The innermost headings of a title for which there is room, and the remaining room."""
    parts = title.rsplit(BETWEEN, _MOST_PARTS - 1) if title else []
    while parts:
        headings = f"{BETWEEN.join(parts)}\n"
        if (taken := _measured(headings, length, room)) <= room // _TITLE_SHARE:
            return headings, room - taken
        parts = parts[1:]
    return "", room


def _measured(text: str, length: Length, room: int) -> int:
    """A text's length. An embedder does not look at one with too many characters, however few pieces they make."""
    characters = math.ceil(len(text) / CHARACTERS_PER_TOKEN)
    return characters if characters > room else max(length(text), characters)


def _parts(text: str, start: int, end: int, length: Length, room: int, level: int = 0) -> Iterator[_Part]:
    """Parts that have room, cut at borders no finer than they need to be."""
    start, end = _stripped(text, start, end)
    if start == end:
        return
    size = _measured(text[start:end], length, room)
    if size <= room:
        yield _Part(start, end, size)
    elif level == len(_BORDERS):
        yield from _anywhere(text, start, end, length, room)
    else:
        for piece in _BORDERS[level].finditer(text, start, end):
            yield from _parts(text, start, piece.start(), length, room, level + 1)
            start = piece.end()
        yield from _parts(text, start, end, length, room, level + 1)


def _stripped(text: str, start: int, end: int) -> tuple[int, int]:
    while start < end and text[start] in " \t\r\n":
        start += 1
    while start < end and text[end - 1] in " \t\r\n":
        end -= 1
    return start, end


def _anywhere(text: str, start: int, end: int, length: Length, room: int) -> Iterator[_Part]:
    """Parts of what has no white space in it."""
    while start < end:
        taken = min(room, end - start)
        while taken > 1 and length(text[start : start + taken]) > room:
            taken //= 2
        yield _Part(start, start + taken, room, whole=False)
        start += taken


def _packed(parts: Sequence[_Part], room: int) -> Iterator[tuple[int, int]]:
    """Neighbours joined into slices that have room, about equally long."""
    total = sum(part.length for part in parts)
    wanted = total / max(1, math.ceil(total / room))
    slice_: list[_Part] = []
    taken = 0
    for part in parts:
        if slice_ and not (taken < wanted and _joins(slice_, part, taken, room)):
            yield slice_[0].start, slice_[-1].end
            slice_, taken = [], 0
        slice_.append(part)
        taken += part.length
    if slice_:
        yield slice_[0].start, slice_[-1].end


def _joins(slice_: Sequence[_Part], part: _Part, taken: int, room: int) -> bool:
    fits = taken + part.length <= room and part.end - slice_[0].start <= room * CHARACTERS_PER_TOKEN
    return fits and part.whole and slice_[-1].whole


def _sections(document: Document) -> Iterator[_Section]:
    """Slices under one heading each; headings with nothing under them are part of the next."""
    text, path = document.text, list(filter(None, (document.title,)))
    if document.format is Format.PLAIN:
        yield _Section(document.title, 0, len(text))
        return
    start = body = 0
    own: list[tuple[int, str]] = []
    for heading in headings(text):
        if text[body : heading.start].strip():
            yield _Section(_path(path, own), start, heading.start)
            start = heading.start
        own = [*(each for each in own if each[0] < heading.level), (heading.level, heading.title)]
        body = heading.end
    yield _Section(_path(path, own), start, len(text))


def _path(outer: Sequence[str], own: Sequence[tuple[int, str]]) -> str:
    titles = [title for _, title in own if title]
    return BETWEEN.join([*(each for each in outer if each not in titles[:1]), *titles])


@dataclass(frozen=True, slots=True)
class Heading:
    """`start` and `end`: of its line, the end of the line included. `level`: 1 to 6."""

    start: int
    end: int
    level: int
    title: str


def headings(text: str) -> Iterator[Heading]:
    """Each heading of a Markdown document that is not in a fenced block of code, in order; found without a list of the
    lines, which may be a million."""
    fence, at = "", 0
    while found := _HEADING_MARKS.search(text, at):
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
