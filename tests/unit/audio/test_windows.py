"""Windows of fixed length that overlap."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from services.audio.alignment import Span
from services.audio.speech import Word
from services.audio.windows import Windows
from tests.unit.audio.voices import Hearing, said, speech, texts

WINDOW_S, OVERLAP_S = 5.0, 0.5


def listen(hearing: Hearing, stop_s: float) -> tuple[Windows, list[tuple[Word, ...]], list[Span]]:
    """Everything said, in packets; with what was confirmed after each run."""
    words, confirmed, spans = Windows(0.0, WINDOW_S, OVERLAP_S), [], []
    now = 0.0
    while now < stop_s:
        now = min(stop_s, now + 0.1)
        while span := words.next(now, now == stop_s, 0.3):
            spans.append(span)
            words.take(hearing(span), span)
            confirmed.append(words.confirmed)
    words.finish()
    return words, [*confirmed, words.confirmed], spans


def test_a_window_is_due_when_it_is_whole_and_not_before() -> None:
    words = Windows(1.0, WINDOW_S, OVERLAP_S)
    assert words.next(5.9, False, 0.3) is None
    assert words.next(6.3, False, 0.3) == Span(1.0, 6.0)


def test_in_a_hurry_what_there_is_will_do_once() -> None:
    words = Windows(1.0, WINDOW_S, OVERLAP_S)
    assert words.next(2.0, True, 0.3) == Span(1.0, 2.0)
    words.take(said("which", from_s=1), Span(1.0, 2.0))
    assert texts(words.pending) == ["which"]
    assert words.confirmed == ()
    assert words.next(2.0, True, 0.3) is None


def test_words_in_the_overlap_wait_for_the_next_window() -> None:
    words = Windows(0.0, 2.0, OVERLAP_S)
    words.take(said("which", "city", "is", "the"), Span(0, 2.0))
    assert texts(words.confirmed) == ["which", "city", "is"]
    assert texts(words.pending) == ["the"]


def test_the_next_window_starts_before_the_last_confirmed_word() -> None:
    words = Windows(0.0, 2.0, OVERLAP_S)
    words.take(said("which", "city", each_s=0.7), Span(0, 2.0))
    span = words.next(5.0, False, 0.3)
    assert span
    assert span.start_s < 0.7 + 0.7


def test_windows_move_on_when_there_are_no_words() -> None:
    words = Windows(0.0, WINDOW_S, OVERLAP_S)
    words.take([], Span(0, WINDOW_S))
    assert words.start_s == WINDOW_S - OVERLAP_S


@settings(deadline=None)
@given(speech())
def test_what_a_perfect_model_hears_comes_out_as_it_was_said(spoken: list[Word]) -> None:
    words, *_ = listen(Hearing(spoken), spoken[-1].end_s + 0.2)
    assert texts(words.confirmed) == texts(spoken)


@settings(deadline=None)
@given(speech(), st.integers(0, 100))
def test_confirmed_words_stay_and_are_in_order_however_wrong_the_times(spoken: list[Word], seed: int) -> None:
    _, history, spans = listen(Hearing(spoken, off_s=0.3, seed=seed), spoken[-1].end_s + 0.2)
    for earlier, later in pairwise(history):
        assert later[: len(earlier)] == earlier
    starts = [word.start_s for word in history[-1]]
    assert starts == sorted(starts)
    assert all(span.stop_s - span.start_s <= WINDOW_S + 1e-9 for span in spans)
