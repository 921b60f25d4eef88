"""Windows of fixed length that overlap: each utterance of speech is transcribed about once.

A window confirms the words that end before its overlap with the next one. The next one starts with the overlap, or
earlier, with the last confirmed word, which shows where it goes on: a window that starts inside a word loses it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from services.audio.alignment import SegmentWords, Span, after, in_order
from services.audio.speech import Word

_MARGIN_S = 0.1  # word times are no better than that


class Windows(SegmentWords):
    """The words of one segment."""

    def __init__(self, start_s: float, window_s: float, overlap_s: float):
        super().__init__(start_s)
        self._window_s, self._overlap_s = window_s, overlap_s

    @property
    def pending(self) -> tuple[Word, ...]:
        """The audio that the next window hears again."""
        return tuple(replace(word, stability=0.5) for word in self._pending)

    def next(self, upto_s: float, hurry: bool, step_s: float) -> Span | None:
        """A whole window when there is one, what there is in a hurry. `step_s` does not matter."""
        whole_s = self._start_s + self._window_s
        if upto_s >= whole_s:
            return Span(self._start_s, whole_s)
        return Span(self._start_s, upto_s) if hurry and upto_s > self._transcribed_s else None

    def take(self, run: Sequence[Word], span: Span) -> None:
        """A run over the span has found these words, with times of the whole audio."""
        self._transcribed_s = span.stop_s
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

    def _next_start_s(self, sure_s: float) -> float:
        """Before the last confirmed word, unless that is so long ago that windows would hardly move."""
        if not self._said:
            return sure_s
        return max(min(self._said[-1].start_s - _MARGIN_S, sure_s), self._start_s + self._window_s / 2)
