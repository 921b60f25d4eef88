"""Sentences of a text that is still being written.

A sentence ends at `.`, `!`, `?` or `…` (and closing quotes) before white space, or at a line's end. Whether it really
did is known once the next word begins: a lower-case letter goes on with the sentence (`"Who is it?" asked the owl.`).
A point inside a number or a name (`3.14`, `example.com`) has no white space after it. Marks of Chinese, Japanese,
Hindi, Arabic and Urdu need none.

Each character is looked at once, whatever pieces a text comes in, so its time grows with its length alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_WIDE = "。！？।॥؟۔"  # of Chinese, Japanese, Hindi, Arabic and Urdu: they end sentences and nothing else
# A mark that may end a sentence: white space, another mark or a closing sign follows it, or the text ends with it.
_START = re.compile(rf"""[.!?…](?=[.!?…"'”’»)\]\s]|\Z)|[{_WIDE}\n]""")
_FOLLOWED = re.compile(r"""([.!?…]*+["'”’»)\]]*+)[^\S\n]++([^\n])""")
_MARKS = re.compile(r"[.!?…]*+")
_CLOSERS = re.compile(r"""["'”’»)\]]*+""")
_WIDE_CLOSERS = re.compile(r"""["'”’」』）]*+""")
_SPACES = re.compile(r"[^\S\n]*+")
_LIST_MARKER = re.compile(r"\s*+(\d++|[a-zA-Z])")  # `1. First do this`
_INITIAL = re.compile(r"[A-Z](\.[A-Z])*+\Z")  # `J. R. R. Tolkien`, `the U.S. Senate`
_BEFORE_NAMES = {"mr", "mrs", "ms", "dr", "prof", "st", "sr", "jr", "vs", "e.g", "i.e", "cf", "approx"}
_BEFORE_NUMBERS = {"no", "nos", "fig", "figs", "eq", "sec", "vol", "ch", "p", "pp"}
_LONGEST_WORD = 64  # characters before a mark that say whether a sentence ends there


@dataclass(slots=True)
class _Mark:
    """A mark after which the sentence may be over. `end`: its place in all that was fed, with the quotation marks and
    brackets after it."""

    before: str  # the last characters before it
    numbers: bool  # what is before it may be the number of an item in a list
    point: bool = True  # it is a point alone
    spaced: bool = False
    end: int = 0


class SentenceSplitter:
    """Takes pieces of text, gives whole sentences without the white space between them."""

    def __init__(self) -> None:
        self._pieces: list[str] = []  # of the sentence that is being written
        self._last = ""  # their last characters
        self._marks = 0  # in that sentence
        self._mark: _Mark | None = None  # the last one, until what follows says whether the sentence is over
        self._fed = 0  # characters before the piece that is looked at
        self.settled = 0  # how many characters of all that was fed have been given, white space included

    def feed(self, text: str) -> list[str]:
        """The sentences that `text` completes."""
        sentences = []
        begin = at = 0
        while at < len(text):
            at, over = self._decide(self._mark, text, at) if self._mark else self._find(text, begin, at)
            if over:
                self._pieces.append(text[begin:at])
                sentences += self._take()
                begin = at
        self._pieces.append(text[begin:])
        self._last = (self._last + text[max(begin, len(text) - _LONGEST_WORD) :])[-_LONGEST_WORD:]
        self._fed += len(text)
        return sentences

    def flush(self) -> list[str]:
        """The rest, as the last sentence; may be empty."""
        return self._take()

    def _take(self) -> list[str]:
        sentence = "".join(self._pieces).strip()
        self._pieces.clear()
        self._last, self._marks, self._mark = "", 0, None
        return [sentence] if sentence else []

    def _find(self, text: str, begin: int, at: int) -> tuple[int, bool]:
        """Where to go on after the next character that may end a sentence, and whether it does."""
        start = _START.search(text, at)
        if start is None:
            return len(text), False
        if start[0] == "\n" or start[0] in _WIDE:
            end = start.end() if start[0] == "\n" else _end(_WIDE_CLOSERS, text, start.end())
            self.settled = self._fed + end
            return end, True
        followed = _FOLLOWED.match(text, start.end())
        if followed is None:
            self._mark = self._marked(text, begin, start)
            return start.end(), False
        following, point = followed[2], start[0] == "." and not followed[1]
        if following.islower() or (point and _goes_on(self._marked(text, begin, start), following)):
            return followed.start(2), False
        self.settled = self._fed + followed.end(1)
        return followed.start(2), True

    def _marked(self, text: str, begin: int, start: re.Match[str]) -> _Mark:
        at = start.start()
        before = (self._last + text[max(begin, at - _LONGEST_WORD) : at])[-_LONGEST_WORD:]
        numbers = not self._marks and bool(_LIST_MARKER.fullmatch("".join((*self._pieces, text[begin:at]))))
        self._marks += 1
        return _Mark(before, numbers, start[0] == ".", end=self._fed + start.end())

    def _decide(self, mark: _Mark, text: str, at: int) -> tuple[int, bool]:
        """Where to go on after the characters that belong to a mark, and whether the sentence is over."""
        if not mark.spaced:
            end = _end(_CLOSERS, text, _end(_MARKS, text, at))
            mark.point = mark.point and end == at
            mark.end, at = self._fed + end, end
        end = _end(_SPACES, text, at)
        mark.spaced = mark.spaced or end > at
        if end == len(text):
            return end, False
        self._mark = None
        if text[end] == "\n":
            self.settled = self._fed + end + 1
            return end + 1, True
        if not mark.spaced or _goes_on(mark, text[end]):
            return end, False
        self.settled = mark.end
        return end, True


def parts(text: str, size: int) -> list[str]:
    """`text` in parts of `size` characters, or of a few more: a splitter finds the same sentences in them as in the
    whole, because none begins with a sign that belongs to the sentence before it."""
    found, begin = list[str](), 0
    while begin < len(text):
        end = _end(_WIDE_CLOSERS, text, begin + size)
        found.append(text[begin:end])
        begin = end
    return found


def _end(characters: re.Pattern[str], text: str, at: int) -> int:
    """Where a run of these characters that begins there ends."""
    found = characters.match(text, at)
    return found.end() if found else at


def _goes_on(mark: _Mark, following: str) -> bool:
    """Whether the sentence continues after a mark that could have ended it."""
    if following.islower():
        return True
    if not mark.point:
        return False
    word = mark.before.split()[-1].lstrip("\"'“‘(«[") if mark.before.strip() else ""
    return (
        word.lower() in _BEFORE_NAMES
        or (word.lower() in _BEFORE_NUMBERS and following.isdigit())
        or bool(_INITIAL.match(word))
        or mark.numbers
    )
