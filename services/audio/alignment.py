"""Where a new run goes on from what is confirmed.

A model that gets an utterance again, or the end of it, says some confirmed words once more, perhaps a bit differently
and with other times. Dropping them by time alone doubles words ("Which Which"), or loses them. So the cut is where the
words before it fit the confirmed ones best, and among equals where the times fit best.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

from services.audio.speech import Word
from services.runtime.letters import MARKS

_PER_SECOND = 1.0  # a second away weighs as much as one word too many
_CHANGED = 0.5  # so does a word heard differently, but less: "nine" and "9" are one word
_CUT = 0.1  # so does a word that the run heard only the end of: models leave it out
_TAIL = 60  # confirmed words that are remembered to compare with
_PUNCTUATION = re.compile(rf"[^\w'{MARKS}]")
_BEFORE_S = 0.05  # what ends this close to the start of a run is the echo of the word before it


@dataclass(frozen=True, slots=True)
class Span:
    """The range to transcribe, in seconds of the audio."""

    start_s: float
    stop_s: float


class SegmentWords:
    """The words of one segment: those that are confirmed, and those of the last run that may still change."""

    def __init__(self, start_s: float):
        self._start_s = self._transcribed_s = start_s
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


def plain(text: str) -> str:
    """The word without its case and punctuation, to compare."""
    return _PUNCTUATION.sub("", text.lower())


def after(confirmed: Sequence[Word], run: Sequence[Word], start_s: float) -> list[Word]:
    """The words of a run that come after the confirmed ones. The run heard the audio from `start_s` on."""
    if not confirmed:
        return list(run)
    tail = [word for word in confirmed if word.end_s > start_s + _BEFORE_S]
    at_s = confirmed[-1].end_s
    losses = [1.0 if word.start_s >= start_s else _CUT for word in tail]
    costs = _differences([plain(word.text) for word in tail], losses, [plain(word.text) for word in run])
    cuts = range(len(run) + 1)
    best = min(cuts, key=lambda cut: (costs[cut] + _PER_SECOND * abs(_seam_s(run, cut) - at_s), cut))
    rest = list(run[best:])
    if rest and not tail and plain(rest[0].text) == plain(confirmed[-1].text) and rest[0].start_s <= at_s:
        rest = rest[1:]
    return rest


def shifted(word: Word, by_s: float) -> Word:
    """The word, said later."""
    return replace(word, start_s=word.start_s + by_s, end_s=word.end_s + by_s)


def in_order(words: Sequence[Word], from_s: float) -> list[Word]:
    """The words with times that never go back, none before `from_s`."""
    ordered = []
    for word in words:
        start, end = max(word.start_s, from_s), max(word.end_s, from_s)
        ordered.append(replace(word, start_s=start, end_s=max(start, end)))
        from_s = start
    return ordered


def _seam_s(run: Sequence[Word], cut: int) -> float:
    """When the cut is: the end of the word before it, or the start of the first."""
    return run[cut - 1].end_s if cut else run[0].start_s if run else 0.0


def _differences(tail: Sequence[str], losses: Sequence[float], run: Sequence[str]) -> list[float]:
    """For each cut, how much must change to make the words of the run before it the tail (Levenshtein's distance, in
    which leaving a word of the tail out costs its loss)."""
    column = list(accumulate(losses, initial=0.0))
    costs = [column[-1]]
    for count, word in enumerate(run, 1):
        fresh = [float(count)]
        for said, loss, (diagonal, above) in zip(tail, losses, pairwise(column), strict=True):
            changed = 0.0 if said == word else _CHANGED
            fresh.append(min(fresh[-1] + loss, above + 1, diagonal + changed))
        column = fresh
        costs.append(column[-1])
    return costs
