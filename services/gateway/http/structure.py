"""How many values a JSON text has, counted before Python makes objects of them: 22 MiB of `{}` would become 600 MiB of
objects, and the event loop would stand still meanwhile.

Most texts have fewer commas and brackets than the limits, inside of their strings and outside together: to count those
takes microseconds, and nothing where a text is shorter than that. Of any other text the strings are taken out, piece by
piece, and the count ends at the limit. All of it is done by functions of `bytes` and `re`, in time in proportion to the
text. Of a text that is not JSON a part behind its first mistake may be counted wrongly: the parser stops there. The
parser also stops at the first level too deep (`fields.py`), and what stands before that has been counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from services.gateway.admission.intake import Limits
from services.runtime.errors import InvalidInput

_PIECE = 65_536
_NO_STRUCTURE = bytes(set(range(256)) - set(b'",[]{}'))
_NO_VALUES = bytes(set(range(256)) - set(b",[{"))  # deleting these takes a third of the time of counting three
_INNERMOST = re.compile(rb"[\[{],{0,7}+[\]}]")  # an array or object that holds no other, and few values
_TOKEN = re.compile(rb",+|[^,]")
_OPENS_LIST = re.compile(rb"\s*:\s*\[")
_LONG_LISTS = (b'"messages"', b'"input"')  # a conversation's arrays, which `max_messages` bounds
_MOST_LONG_LISTS = 16  # of one name, the first ones
_DEEPEST = 1_000  # levels; the parser refuses fewer


def check(body: bytes, limits: Limits) -> None:
    """Raise `InvalidInput` for a JSON text of more values, elements or members than `limits` has."""
    few = min(limits.items, limits.values)
    if len(body) <= few or len(body.translate(None, _NO_VALUES)) < few:
        return
    structure = _structure(body, limits)
    if structure.count(b",") >= limits.items:
        _check_items(structure, limits)


def _structure(body: bytes, limits: Limits) -> bytes:
    """The commas and brackets of `body` outside of its strings; a conversation's array begins with `(`. Raises
    `InvalidInput` at the first value too many."""
    found, left, inside, starts = bytearray(), limits.values, False, set(_long_lists(body))
    for start, end in _pieces(body, starts):
        marks, inside = _marks(body[start:end], inside=inside, begins_list=start in starts)
        left -= len(marks) - marks.count(b"]") - marks.count(b"}")
        if left < 0:
            raise InvalidInput("body", f"at most {limits.values} values", "more")
        found += marks
    return bytes(found)


def _marks(piece: bytes, *, inside: bool, begins_list: bool) -> tuple[bytes, bool]:
    """The structure in `piece`, and whether a string goes on behind it. `inside`: whether one does before it."""
    if b"\\" in piece:
        piece = piece.replace(b"\\\\", b"").replace(b'\\"', b"")
    marks = piece.translate(None, _NO_STRUCTURE)
    if begins_list and not inside:
        marks = b"(" + marks[1:]
    marks = (b'"' + marks if inside else marks).replace(b'""', b"")  # all that is left of most strings
    parts = marks.split(b'"')
    return b"".join(parts[::2]), len(parts) % 2 == 0


def _pieces(body: bytes, starts: set[int]) -> Iterator[tuple[int, int]]:
    """Where the pieces of `body` begin and end: at `starts` too, and never between a backslash and what it escapes."""
    shift = 0
    for begins, ends in pairwise(sorted({*range(0, len(body), _PIECE), *starts, len(body)})):
        piece = body[begins + shift : ends]
        before, shift = shift, (len(piece) - len(piece.rstrip(b"\\"))) % 2
        yield begins + before, min(ends + shift, len(body))


def _long_lists(body: bytes) -> Iterator[int]:
    """Where arrays of a conversation begin. In a string its quotes are escaped, so a name there is none of these."""
    for name in _LONG_LISTS:
        at = -1
        for _ in range(_MOST_LONG_LISTS):
            if (at := body.find(name, at + 1)) < 0:
                break
            if opens := _OPENS_LIST.match(body, at + len(name)):
                yield opens.end() - 1


def _check_items(structure: bytes, limits: Limits) -> None:
    """Raise `InvalidInput` for an array or an object with too many values. Most hold few and no other: those are taken
    out first, and then those that held them."""
    left = [limits.items]  # commas, in each array and object that is open
    for found in _TOKEN.finditer(_INNERMOST.sub(b"", _INNERMOST.sub(b"", structure))):
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
            most = f"at most {limits.items} elements in an array or members in an object, {limits.long} in `messages`"
            raise InvalidInput("body", most, "more")
