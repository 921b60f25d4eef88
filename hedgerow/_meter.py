"""A client's measurements of an answer while it arrives."""

from __future__ import annotations

import time
from collections.abc import Callable

from hedgerow._events import Timings
from hedgerow._sentences import SentenceSplitter


class Meter:
    """Starts at its construction; `clock` returns monotonic seconds."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter):
        self._clock = clock
        self._started = clock()
        self._first_text: float | None = None
        self._last_text = 0.0
        self._tokens_after_first = 0
        self._first_sentence: float | None = None
        self._sentences = SentenceSplitter()

    def text(self, text: str, tokens: int) -> None:
        """Record new text with its number of tokens (0: not known)."""
        now = self._clock()
        if self._first_text is None:
            self._first_text = now
        else:
            self._tokens_after_first += tokens
        self._last_text = now
        if self._first_sentence is None and self._sentences.feed(text):
            self._first_sentence = now

    def timings(self) -> Timings:
        """The measurements, at the end of the answer."""
        if self._first_sentence is None and self._sentences.flush():
            self._first_sentence = self._clock()
        return Timings(
            first_token_ms=self._since_start(self._first_text),
            per_output_token_ms=self._per_token(),
            first_sentence_ms=self._since_start(self._first_sentence),
            total_ms=(self._clock() - self._started) * 1000,
        )

    def _per_token(self) -> float | None:
        if self._first_text is None or not self._tokens_after_first:
            return None
        return (self._last_text - self._first_text) * 1000 / self._tokens_after_first

    def _since_start(self, at: float | None) -> float | None:
        return None if at is None else (at - self._started) * 1000
