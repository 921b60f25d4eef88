"""What no rule may touch: code, quotes, JSON, tags, tables and addresses, wherever they stand in a text.

A text is parted into pieces that are protected and pieces that are prose. Where it is not clear where something ends (a
quote that is not closed, a bracket too many), all of the rest of its paragraph is protected, and of a fence all of the
rest of the text: too much is kept rather than too little.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

_FENCES = ("```", "~~~")
_CLOSING: Mapping[str, str] = {'"': '"', "“": "”", "«": "»", "‘": "’", "„": "“", "`": "`"}
_BRACKETS: Mapping[str, str] = {"{": "}", "[": "]"}
_OPENING = re.compile(
    r"(?P<fence>```|~~~)"
    r"|(?P<line>^(?:[ ]{4}|[ ]{0,3}\t|[ ]*[|>]|[ ]*\d+[.)]?\t).*$)"  # code by indent, tables, quotes of mails
    r"|(?P<address>\b[a-z][a-z0-9+.-]{1,15}://\S+)"
    r"|(?P<tag><[A-Za-z][^<>\n]{0,200}>)"
    r"|(?P<bracket>[{\[])"
    r"|(?P<quote>[\"“«‘„`]|(?<!\w)'(?=\w))",
    re.MULTILINE,
)
_NEXT_BRACKET = re.compile(r"\"(?:[^\"\\]|\\.)*\"|[{}\[\]]")
_SINGLE = re.compile(r"(?<=\S)'(?!\w)|\n")
_LONGEST_SINGLE = 200  # characters
_PARAGRAPH = re.compile(r"\n[ \t]*\n")


def pieces(text: str) -> Iterator[tuple[str, bool]]:
    """`text`, in order and complete: each piece, and whether it is protected."""
    begin = at = 0
    while found := _OPENING.search(text, at):
        end = _end(text, found)
        if begin < found.start():
            yield text[begin : found.start()], False
        yield text[found.start() : end], True
        begin = at = end
    if begin < len(text):
        yield text[begin:], False


def _end(text: str, found: re.Match[str]) -> int:
    """Where what has begun ends."""
    match found.lastgroup:
        case "fence":
            return _after(text, found[0], found.end(), len(text))
        case "tag":
            name = re.match(r"[\w.:-]+", found[0][1:])
            closing = f"</{name[0]}>" if name else ">"
            return found.end() if found[0].endswith("/>") else _after(text, closing, found.end(), found.end())
        case "bracket":
            return _after_bracket(text, found.start())
        case "quote":
            opened = found[0]
            if opened == "'":  # of one line, else it is an apostrophe
                closed = _SINGLE.search(text, found.end(), found.end() + _LONGEST_SINGLE)
                return closed.end() if closed and closed[0] == "'" else found.end()
            end = _after(text, _CLOSING[opened], found.end(), len(text))
            paragraph = _PARAGRAPH.search(text, found.end(), end)
            return paragraph.start() if paragraph else end
        case _:
            return found.end()


def _after(text: str, closing: str, start: int, otherwise: int) -> int:
    at = text.find(closing, start)
    return otherwise if at < 0 else at + len(closing)


def _after_bracket(text: str, start: int) -> int:
    """Behind the bracket that closes the one at `start`."""
    open_ones = [_BRACKETS[text[start]]]
    for found in _NEXT_BRACKET.finditer(text, start + 1):
        if found[0] in _BRACKETS:
            open_ones.append(_BRACKETS[found[0]])
        elif found[0] in ("}", "]"):
            if found[0] != open_ones.pop():
                break
            if not open_ones:
                return found.end()
    return _paragraph_end(text, start + 1)


def _paragraph_end(text: str, start: int) -> int:
    found = _PARAGRAPH.search(text, start)
    return found.start() if found else len(text)
