"""What no rule may touch: code, quotes, JSON, tags, tables and addresses, wherever they stand in a text.

A text is parted into pieces that are protected and pieces that are prose. Where it is not clear where something ends (a
quote that is not closed, a bracket too many), all of the rest of its paragraph is protected, and of a fence all of the
rest of the text: too much is kept rather than too little. So it is where many things do not end: once their ends have
been looked for in as much as eight times the text, all of its rest is protected.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

_CLOSING: Mapping[str, str] = {
    **{'"': '"', "“": "”", "«": "»", "»": "«", "‘": "’", "„": "“", "`": "`"},
    **{"「": "」", "『": "』"},
}
_BRACKETS: Mapping[str, str] = {"{": "}", "[": "]"}
_OPENING = re.compile(
    r"(?P<fence>```|~~~)"
    r"|(?P<line>^(?:[ ]{4}|[ ]{0,3}\t|[ ]*[|>]|[ ]*\d+[.)]?\t).*$)"  # code by indent, tables, quotes of mails
    r"|(?P<address>\b[a-z][a-z0-9+.-]{1,15}://\S+)"
    r"|(?P<tag><[A-Za-z][^<>\n]{0,200}>)"
    r"|(?P<bracket>[{\[])"
    r"|(?P<quote>[\"“«»‘„`「『]|(?<!\w)'(?=\w))",
    re.MULTILINE,
)
_NEXT_BRACKET = re.compile(r"\"(?:[^\"\\]|\\.)*+(?P<closed>\"?)|[{}\[\]]", re.DOTALL)
_BRACKET = re.compile(r"[{}\[\]]")
_SINGLE = re.compile(r"(?<=\S)'(?!\w)|\n")
_LONGEST_SINGLE = 200  # characters
_MOST_LOOKED = 8  # times a text
_PARAGRAPH = re.compile(r"\n[ \t]*\n")


def pieces(text: str) -> Iterator[tuple[str, bool]]:
    """`text`, in order and complete: each piece, and whether it is protected."""
    begin = at = 0
    ends = _Ends(text)
    while found := _OPENING.search(text, at):
        end = ends.of(found)
        if begin < found.start():
            yield text[begin : found.start()], False
        yield text[found.start() : end], True
        begin = at = end
    if begin < len(text):
        yield text[begin:], False


class _Ends:
    """Finds the ends of protected pieces of a text."""

    def __init__(self, text: str):
        self._text = text
        self._left = _MOST_LOOKED * len(text)  # characters that may be looked through in vain

    def of(self, found: re.Match[str]) -> int:
        """The end of the piece that has begun."""
        end = self._of(found)
        return end if self._left >= 0 else len(self._text)

    def _of(self, found: re.Match[str]) -> int:
        text = self._text
        match found.lastgroup:
            case "fence":
                return self._after(found[0], found.end(), len(text))
            case "tag":
                name = re.match(r"[\w.:-]+", found[0][1:])
                closing = f"</{name[0]}>" if name else ">"
                return found.end() if found[0].endswith("/>") else self._after(closing, found.end(), found.end())
            case "bracket":
                return self._after_bracket(found.start())
            case "quote":
                return self._after_quote(found)
            case _:
                return found.end()

    def _after_quote(self, found: re.Match[str]) -> int:
        text, opened = self._text, found[0]
        if opened == "'":  # of one line, else it is an apostrophe
            closed = _SINGLE.search(text, found.end(), found.end() + _LONGEST_SINGLE)
            return closed.end() if closed and closed[0] == "'" else found.end()
        end = self._after(_CLOSING[opened], found.end(), len(text))
        paragraph = _PARAGRAPH.search(text, found.end(), end)
        if paragraph:
            self._left -= end - paragraph.start()
        return paragraph.start() if paragraph else end

    def _after(self, closing: str, start: int, otherwise: int) -> int:
        at = self._text.find(closing, start)
        if at < 0:
            self._left -= len(self._text) - start
        return otherwise if at < 0 else at + len(closing)

    def _after_bracket(self, start: int) -> int:
        """Behind the bracket that closes the one at `start`."""
        open_ones = [_BRACKETS[self._text[start]]]
        at = len(self._text)
        for found in self._brackets(start + 1):
            if found[0] in _BRACKETS:
                open_ones.append(_BRACKETS[found[0]])
            elif found[0] != open_ones.pop():
                at = found.end()
                break
            elif not open_ones:
                return found.end()
        self._left -= at - start
        paragraph = _PARAGRAPH.search(self._text, start + 1)
        return paragraph.start() if paragraph else len(self._text)

    def _brackets(self, at: int) -> Iterator[re.Match[str]]:
        """The brackets outside of quotation marks. There are none after a mark that is not closed."""
        brackets = _NEXT_BRACKET
        while found := brackets.search(self._text, at):
            at = found.end()
            if found[0][0] == '"' and not found["closed"]:
                at, brackets = found.start() + 1, _BRACKET
            elif found[0][0] != '"':
                yield found
