"""The two policies by which words of a segment are confirmed.

LocalAgreement-2: a word is confirmed when two runs in a row agree on it and on everything before it.

After Macháček, Dabre and Bojar, "Turning Whisper into Real-Time Transcription System", 2023 (whisper_streaming). A
growing utterance is transcribed again and again. When it becomes long it is cut, at the last confirmed sentence's end
if there is one. What differs: where a run goes on from the confirmed words is found by text and time (`alignment`).

Windows of fixed length that overlap: each utterance of speech is transcribed about once. A window confirms the words
that end before its overlap with the next one. The next one starts with the overlap, or earlier, with the last confirmed
word, which shows where it goes on: a window that starts inside a word loses it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from services.audio.alignment import SegmentWords, Span, after, in_order, plain
from services.audio.sentences import MARKS
from services.audio.speech import Word

_ENDS = tuple(MARKS)
_KEPT = 2  # confirmed words that stay in the utterance when it is cut inside a sentence
_LONGEST = 2  # times `trim_s`: the utterance is cut although nothing in it is confirmed
_HARD_S = 1.0  # what is kept then
# An utterance is first transcribed when it is this long. In less of it a Whisper invents words, and notices: its second
# try, with a beam, takes three times as long, and so does the step that follows.
_FIRST_S = 0.8
_MARGIN_S = 0.1  # word times are no better than that


class Agreement(SegmentWords):
    """The words of one segment, by local agreement. `trim_s` is the length at which the utterance is cut."""

    def __init__(self, start_s: float, trim_s: float):
        super().__init__(start_s)
        self._trim_s = trim_s
        self._runs: list[int] = []  # in a row that had the pending word, for each

    @property
    def pending(self) -> tuple[Word, ...]:
        """Words that may change. Stability is 1/2 for one heard once, 3/4 for one heard twice in a row, and so on."""
        stability = (1 - 0.5**runs for runs in self._runs)
        return tuple(replace(word, stability=sure) for word, sure in zip(self._pending, stability, strict=True))

    def next(self, upto_s: float, hurry: bool, step_s: float) -> Span | None:
        """The audio to transcribe when there is speech up to `upto_s`: a step after the last run; at once in a hurry,
        or if there is more audio than a run takes, because a larger step would never be reached."""
        most_s = self._start_s + self._trim_s * (_LONGEST + 1)
        hurry, upto_s = hurry or upto_s > most_s, min(upto_s, most_s)
        new_s = upto_s - self._transcribed_s
        due_s = max(step_s, _FIRST_S) if self._transcribed_s == self._start_s else step_s
        return Span(self._start_s, upto_s) if new_s >= due_s or (hurry and new_s > 0) else None

    def take(self, run: Sequence[Word], span: Span) -> None:
        """A run over the span has found these words, with times of the whole audio."""
        self._transcribed_s = span.stop_s
        fresh = after(self._said, run, span.start_s)
        fresh = in_order(fresh, self._said[-1].end_s if self._said else 0.0)
        agreed = _in_common(self._pending, fresh)
        runs = [
            self._runs[at] + 1 if at < len(self._pending) and plain(self._pending[at].text) == plain(word.text) else 1
            for at, word in enumerate(fresh)
        ]
        self._said += fresh[:agreed]
        self._pending, self._runs = fresh[agreed:], runs[agreed:]
        if span.stop_s - span.start_s > self._trim_s:
            self._cut()

    def finish(self) -> None:
        super().finish()
        self._runs = []

    def _cut(self) -> None:
        """Cut the buffer at the last end of a sentence, or inside the sentence if that is not enough."""
        words = self._said
        inside = [at for at in range(len(words)) if words[at].end_s > self._start_s]
        ends = [at + 1 for at in inside if words[at].text.endswith(_ENDS)]
        if ends:
            self._start_at(ends[-1])
        if self._transcribed_s - self._start_s > self._trim_s and len(words) > _KEPT:
            self._start_at(len(words) - _KEPT)
        if self._transcribed_s - self._start_s > self._trim_s * _LONGEST:
            self._give_up_s(self._transcribed_s - _HARD_S)

    def _start_at(self, index: int) -> None:
        """Go on from the gap before a word."""
        words = [*self._said, *self._pending[:1]]
        before_s = words[index - 1].end_s
        follows_s = words[index].start_s if index < len(words) else before_s
        self._start_s = max(self._start_s, (before_s + follows_s) / 2)

    def _give_up_s(self, at_s: float) -> None:
        """The model does not agree with itself: what it found last stays, up to a time from which it starts afresh."""
        count = sum(word.end_s <= at_s for word in self._pending)
        self._said += self._pending[:count]
        self._pending, self._runs = self._pending[count:], self._runs[count:]
        self._start_s = at_s


def _in_common(left: Sequence[Word], right: Sequence[Word]) -> int:
    """How many words both begin with."""
    count = 0
    for one, other in zip(left, right, strict=False):
        if plain(one.text) != plain(other.text):
            break
        count += 1
    return count


class Windows(SegmentWords):
    """The words of one segment, by windows."""

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
