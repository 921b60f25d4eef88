"""Counts the values of a JSON text before Python makes objects of them: 22 MiB of `{}` would become 600 MiB of objects,
and block the event loop meanwhile.

In most texts the commas and brackets, inside and outside of strings, are fewer than the limits: counting those takes
microseconds, and is not needed if the text is shorter than a limit. In any other text the strings are removed, piece by
piece, and counting stops at the limit. Only functions of `bytes` and `re` do this, in linear time. After a syntax error
the count may be wrong; the parser stops there. The parser also stops at the first level too deep (`fields.py`), and
values before that have been counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from services.gateway.admission.intake import Limits
from services.runtime.aside import NO_VALUES
from services.runtime.errors import InvalidInput

_PIECE = 65_536
_NO_STRUCTURE = bytes(set(range(256)) - set(b'",[]{}'))
_INNERMOST = re.compile(rb"[\[{],{0,7}+[\]}]")  # an array or object without others in it, and with few values
_TOKEN = re.compile(rb",+|[^,]")
_OPENS_LIST = re.compile(rb"\s*:\s*\[")
_LONG_LISTS = (b'"messages"', b'"input"')  # a conversation's arrays, which `max_messages` bounds
_MOST_LONG_LISTS = 16  # of one name: the first ones
_DEEPEST = 1_000  # levels; the parser refuses even fewer


def check(body: bytes, limits: Limits) -> None:
    """Raise `InvalidInput` for a JSON text of more values, elements or members than `limits` has."""
    few = min(limits.items, limits.values)
    if len(body) <= few or _has_few(body, few):
        return
    values, commas, items, waiting = limits.values, 0, _Items(limits), list[bytes]()
    for marks in _structure(body):
        values -= len(marks) - marks.count(b"]") - marks.count(b"}")
        if values < 0:
            raise InvalidInput("body", f"at most {limits.values} values", "more")
        commas += marks.count(b",")
        waiting.append(marks)
        if commas >= limits.items:  # else no array and no object has too many
            items.count(b"".join(waiting))
            waiting.clear()


def _has_few(body: bytes, few: int) -> bool:
    """Whether `body` has fewer commas and opening brackets than `few`, inside and outside of strings."""
    for start in range(0, len(body), _PIECE):
        few -= len(body[start : start + _PIECE].translate(None, NO_VALUES))
        if few <= 0:
            return False
    return True


def _structure(body: bytes) -> Iterator[bytes]:
    """The commas and brackets of `body` outside of its strings, piece by piece; a conversation's array begins with
    `(`."""
    inside, starts = False, set(_long_lists(body))
    for start, end in _pieces(body, starts):
        marks, inside = _marks(body[start:end], inside=inside, begins_list=start in starts)
        yield marks


def _marks(piece: bytes, *, inside: bool, begins_list: bool) -> tuple[bytes, bool]:
    """The structure in `piece`, and whether a string continues after it. `inside`: whether one continues from before
    it."""
    if b"\\" in piece:
        piece = piece.replace(b"\\\\", b"").replace(b'\\"', b"")
    marks = piece.translate(None, _NO_STRUCTURE)
    if begins_list and not inside:
        marks = b"(" + marks[1:]
    marks = (b'"' + marks if inside else marks).replace(b'""', b"")  # all that is left of most strings
    parts = marks.split(b'"')
    return b"".join(parts[::2]), len(parts) % 2 == 0


def _pieces(body: bytes, starts: set[int]) -> Iterator[tuple[int, int]]:
    """The beginnings and ends of the pieces of `body`: they also begin at `starts`, and never end between a backslash
    and the character that it escapes."""
    shift = 0
    for begins, ends in pairwise(sorted({*range(0, len(body), _PIECE), *starts, len(body)})):
        piece = body[begins + shift : ends]
        before, shift = shift, (len(piece) - len(piece.rstrip(b"\\"))) % 2
        yield begins + before, min(ends + shift, len(body))


def _long_lists(body: bytes) -> Iterator[int]:
    """The positions where arrays of a conversation begin. Inside a string quotes are escaped, so a name there does not
    match."""
    for name in _LONG_LISTS:
        at = -1
        for _ in range(_MOST_LONG_LISTS):
            if (at := body.find(name, at + 1)) < 0:
                break
            if opens := _OPENS_LIST.match(body, at + len(name)):
                yield opens.end() - 1


class _Items:
    """Counts the values of each array and each object. Most contain few values and no other arrays or objects: those
    are removed first, and then those that contained them."""

    def __init__(self, limits: Limits):
        self._limits, self._left = limits, [limits.items]  # commas, in each array and object that is open

    def count(self, marks: bytes) -> None:
        """Count those in the next piece of a structure. Raises `InvalidInput` at the first value too many."""
        limits, left = self._limits, self._left
        marks = marks.replace(b"{}", b"").replace(b"[]", b"")  # which takes a twentieth of the time
        for found in _TOKEN.finditer(_INNERMOST.sub(b"", _INNERMOST.sub(b"", marks))):
            token = found[0]
            if token[0] == ord(","):
                left[-1] -= len(token)
            elif token in b"[{(":
                left.append(limits.long if token == b"(" else limits.items)
                if len(left) > _DEEPEST:
                    raise InvalidInput("body", f"JSON (nested too deeply: at most {_DEEPEST} levels)", "more")
            elif len(left) > 1:
                left.pop()
            if left[-1] <= 0:
                most = f"at most {limits.items} elements in an array or members in an object"
                raise InvalidInput("body", f"{most}, {limits.long} in `messages`", "more")
