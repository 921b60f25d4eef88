"""What the labels of pairs say of any two of their questions."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from bench.cache.pairs import Linked, Pair


class Judged(Enum):
    """Whether the answer to one question serves another."""

    RIGHT = "right"
    WRONG = "wrong"
    UNLABELLED = "unlabelled"


class Labels:
    """A question is a text as the cache compares it. Duplicates of duplicates are duplicates."""

    def __init__(self, pairs: Sequence[Pair]):
        self._duplicates = Linked()
        self._labelled = {(pair.a, pair.b): pair.duplicate for pair in pairs}
        for pair in pairs:
            if pair.duplicate:
                self._duplicates.link(pair.a, pair.b)

    def judge(self, stored: str, asked: str) -> Judged:
        """What is to be said of the answer to `stored` for `asked`: first by their own label, then by their text, then
        by the duplicates they have."""
        label = self._labelled.get((stored, asked), self._labelled.get((asked, stored)))
        if label is not None:
            return Judged.RIGHT if label else Judged.WRONG
        same = self._duplicates.root(stored) == self._duplicates.root(asked)
        return Judged.RIGHT if same else Judged.UNLABELLED
