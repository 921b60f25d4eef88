"""Sentences of a text that is still being written.

A sentence ends at `.`, `!`, `?` or `…` (and closing quotes) before white space, or at a line's end. Whether it really
did is known once the next word begins: a lower-case letter goes on with the sentence (`"Who is it?" asked the owl.`).
A point inside a number or a name (`3.14`, `example.com`) has no white space after it. Chinese and Japanese marks need
none.
"""

from __future__ import annotations

import re

_END = re.compile(r"""(?P<mark>[.!?…]+)["'”’»)\]]*(?=\s+(?P<next>\S))|[。！？]["'”’」』）]*|\n""")
# At the end of the text so far, these may yet become the end of a sentence; what is before them is settled.
_UNDECIDED = ".!?…\"'”’»)]" + "".join(filter(str.isspace, map(chr, range(0x3001))))
_LIST_MARKER = re.compile(r"\s*(\d+|[a-zA-Z])\.\Z")  # `1. First do this`
_INITIAL = re.compile(r"[A-Z](\.[A-Z])*\Z")  # `J. R. R. Tolkien`, `the U.S. Senate`
_BEFORE_NAMES = {"mr", "mrs", "ms", "dr", "prof", "st", "sr", "jr", "vs", "e.g", "i.e", "cf", "approx"}
_BEFORE_NUMBERS = {"no", "nos", "fig", "figs", "eq", "sec", "vol", "ch", "p", "pp"}


class SentenceSplitter:
    """Takes pieces of text, gives whole sentences without the white space between them."""

    def __init__(self) -> None:
        self._rest = ""  # what has not been given yet
        self._from = 0  # where in it to go on looking
        self.settled = 0  # how many characters of all that was fed have been given, white space included

    def feed(self, text: str) -> list[str]:
        """The sentences that `text` completes."""
        self._rest += text
        sentences = []
        while end := self._next_end():
            if sentence := self._rest[:end].strip():
                sentences.append(sentence)
            self._rest, self._from = self._rest[end:], 0
            self.settled += end
        return sentences

    def flush(self) -> list[str]:
        """What is left, as the last sentence; empty where nothing is."""
        sentence, self._rest, self._from = self._rest.strip(), "", 0
        return [sentence] if sentence else []

    def _next_end(self) -> int | None:
        for match in _END.finditer(self._rest, self._from):
            if not _goes_on(self._rest, match):
                return match.end()
            self._from = match.end()
        self._from = max(self._from, len(self._rest.rstrip(_UNDECIDED)))
        return None


def _goes_on(text: str, match: re.Match[str]) -> bool:
    """Whether the sentence continues after a mark that could have ended it."""
    following = match["next"]
    if following is None:
        return False
    if following.islower():
        return True
    if match[0] != ".":
        return False
    before = text[: match.start()]
    word = before.split()[-1].lstrip("\"'“‘(«[") if before.strip() else ""
    return (
        word.lower() in _BEFORE_NAMES
        or (word.lower() in _BEFORE_NUMBERS and following.isdigit())
        or bool(_INITIAL.match(word))
        or bool(_LIST_MARKER.match(text[: match.end()]))
    )
