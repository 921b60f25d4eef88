"""Windows of fixed length that overlap: each utterance of speech is transcribed about once.

A window confirms the words that end before its overlap with the next one. The next one starts with the overlap, or
earlier, with the last confirmed word, which shows where it goes on: a window that starts inside a word loses it.
"""

from __future__ import annotations

from collections.abc import Sequence

from services.audio.alignment import Span, after, in_order
from services.audio.speech import Word

_MARGIN_S = 0.1  # word times are no better than that
_TAIL = 60  # confirmed words that are remembered to compare with


class Windows:
    """The words of one segment."""

    def __init__(self, start_s: float, window_s: float, overlap_s: float):
        self._start_s = self._heard_s = start_s
        self._window_s, self._overlap_s = window_s, overlap_s
        self._said: list[Word] = []  # confirmed
        self._released = 0  # of those, given away
        self._pending: list[Word] = []

    @property
    def start_s(self) -> float:
        """Audio before it is not needed any more."""
        return self._start_s

    @property
    def confirmed(self) -> tuple[Word, ...]:
        """The words that stay as they are."""
        return tuple(self._said[self._released :])

    @property
    def pending(self) -> tuple[Word, ...]:
        """The audio that the next window hears again."""
        return tuple(Word(word.text, word.start_s, word.end_s, word.probability, 0.5) for word in self._pending)

    def next(self, upto_s: float, hurry: bool, step_s: float) -> Span | None:
        """A whole window when there is one, what there is in a hurry. `step_s` does not matter."""
        whole_s = self._start_s + self._window_s
        if upto_s >= whole_s:
            return Span(self._start_s, whole_s)
        return Span(self._start_s, upto_s) if hurry and upto_s > self._heard_s else None

    def take(self, run: Sequence[Word], span: Span) -> None:
        """A run over the span has found these words, with times of the whole audio."""
        self._heard_s = span.stop_s
        fresh = after(self._said, run, span.start_s)
        fresh = in_order(fresh, self._said[-1].end_s if self._said else 0.0)
        if span.stop_s < self._start_s + self._window_s:
            self._pending = fresh
            return
        sure_s = span.stop_s - self._overlap_s
        count = sum(word.end_s <= sure_s for word in fresh)
        self._said += fresh[:count]
        self._pending = fresh[count:]
        self._start_s = self._next_start_s(sure_s)

    def finish(self) -> None:
        """The segment is over: what the last run found is confirmed."""
        self._said += self._pending
        self._pending = []

    def release(self) -> tuple[Word, ...]:
        """Give the confirmed words away, as a segment of their own; the rest goes on."""
        given = self.confirmed
        self._said = self._said[-_TAIL:]
        self._released = len(self._said)
        return given

    def _next_start_s(self, sure_s: float) -> float:
        """Before the last confirmed word, unless that is so long ago that windows would hardly move."""
        if not self._said:
            return sure_s
        return max(min(self._said[-1].start_s - _MARGIN_S, sure_s), self._start_s + self._window_s / 2)
