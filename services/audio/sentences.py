"""The words of a recording → segments: one for each sentence, and for each part of one that a pause ends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from services.audio.speech import Segment, Word

PAUSE_S = 0.8  # between two words: times of words are no better than a few tenths of a second
LONGEST_S = 30.0
MARKS = ".?!…。？！।॥؟۔"  # Hindi ends sentences with a danda; Arabic and Urdu have marks of their own
_CLOSING = "\"'”」』"
_SHORT = frozenset(["mr.", "mrs.", "ms.", "dr.", "prof.", "st.", "no.", "vs.", "etc.", "e.g.", "i.e.", "jr.", "sr."])


class TranscriptSentences:
    """Takes words in order, and gives the segments that they complete."""

    def __init__(self, language: str = ""):
        self.language = language
        self._words: list[Word] = []
        self._index = 0

    def push(self, words: Iterable[Word]) -> Iterator[Segment]:
        """The segments that these words end. The last of them is the last before a silence."""
        for word in words:
            if self._words and _parted(self._words, word):
                yield self._close()
            self._words.append(word)
        if self._words and _ends_sentence(self._words[-1]):
            yield self._close()

    def end(self) -> Iterator[Segment]:
        """The last segment."""
        if self._words:
            yield self._close()

    def _close(self) -> Segment:
        words, self._words = tuple(self._words), []
        self._index += 1
        return Segment(self._index - 1, words, words[0].start_s, words[-1].end_s, self.language)


def _parted(words: list[Word], following: Word) -> bool:
    """Whether a segment ends before a word."""
    last = words[-1]
    pause_s = following.start_s - last.end_s
    over = _ends_sentence(last) and not following.text[:1].islower()
    return over or pause_s >= PAUSE_S or following.end_s - words[0].start_s > LONGEST_S


def _ends_sentence(word: Word) -> bool:
    return word.text.rstrip(_CLOSING).endswith(tuple(MARKS)) and word.text.lower() not in _SHORT
