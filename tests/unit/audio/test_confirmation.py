"""Which words are confirmed by local agreement, by windows, and by both for any output of a model."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.audio.alignment import Span
from services.audio.confirmation import Agreement, Windows
from services.audio.speech import Word
from tests.examples import examples
from tests.unit.audio.voices import Hearing, said, speech, texts

STEP_S, TRIM_S, WINDOW_S, OVERLAP_S = 0.3, 7.0, 5.0, 0.5


def test_a_word_is_confirmed_when_two_runs_in_a_row_agree() -> None:
    words = Agreement(0.0, TRIM_S)
    words.take(said("which", "kitty"), Span(0, 1))
    assert texts(words.confirmed) == []
    words.take(said("Which", "city", "is"), Span(0, 1.3))
    assert texts(words.confirmed) == ["Which"]
    assert texts(words.pending) == ["city", "is"]


def test_agreement_on_a_later_word_does_not_confirm_it_before_the_earlier_one() -> None:
    words = Agreement(0.0, TRIM_S)
    words.take(said("witch", "city"), Span(0, 1))
    words.take(said("which", "city"), Span(0, 1.3))
    assert texts(words.confirmed) == []
    assert [word.stability for word in words.pending] == [0.5, 0.75]


def test_the_end_of_the_segment_confirms_what_is_pending() -> None:
    words = Agreement(0.0, TRIM_S)
    words.take(said("which", "city"), Span(0, 1))
    words.finish()
    assert texts(words.confirmed) == ["which", "city"]
    assert words.pending == ()


def test_a_run_is_due_after_a_step_or_at_once_in_a_hurry_but_never_without_new_audio() -> None:
    words = Agreement(1.0, TRIM_S)
    assert words.next(1.2, False, STEP_S) is None
    assert words.next(1.2, True, STEP_S) == Span(1.0, 1.2)
    words.take([], Span(1.0, 1.2))
    assert words.next(1.2, True, STEP_S) is None
    assert words.next(1.6, False, STEP_S) == Span(1.0, 1.6)


def test_the_first_run_waits_for_enough_audio_unless_in_a_hurry() -> None:
    words = Agreement(1.0, TRIM_S)
    assert words.next(1.7, False, STEP_S) is None
    assert words.next(1.7, True, STEP_S) == Span(1.0, 1.7)
    assert words.next(1.8, False, STEP_S) == Span(1.0, 1.8)


def test_a_long_stretch_is_cut_at_the_end_of_a_sentence() -> None:
    words = Agreement(0.0, 2.0)
    for stop_s in (2.0, 2.4):
        words.take(said("no", "fox.", "which", "city", "is"), Span(0, stop_s))
    assert words.start_s == 0.8
    assert texts(words.confirmed) == ["no", "fox.", "which", "city", "is"]


def test_released_words_are_gone_and_the_rest_goes_on() -> None:
    words = Agreement(0.0, TRIM_S)
    for stop_s in (1.0, 1.3):
        words.take(said("which", "city"), Span(0, stop_s))
    assert texts(words.release()) == ["which", "city"]
    for stop_s in (1.6, 1.9):
        words.take(said("which", "city", "is"), Span(0, stop_s))
    assert texts(words.confirmed) == ["is"]


@settings(deadline=None, max_examples=examples(40))
@given(st.lists(st.lists(st.sampled_from("abc"), max_size=8), min_size=40, max_size=120))
def test_a_model_that_never_agrees_with_itself_is_not_given_more_than_fits(runs: list[list[str]]) -> None:
    words, now = Agreement(0.0, TRIM_S), 0.0
    for run in runs:
        now += STEP_S
        if span := words.next(now, False, STEP_S):
            assert span.stop_s - span.start_s <= 3 * TRIM_S
            assert span.stop_s <= now
            words.take(said(*run, from_s=span.start_s), span)
    assert now - words.start_s <= 3 * TRIM_S


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


Policy = Agreement | Windows
each_policy = pytest.mark.parametrize(
    ("policy", "longest_s"),
    [(lambda: Agreement(0.0, TRIM_S), 3 * TRIM_S), (lambda: Windows(0.0, WINDOW_S, 0.5), WINDOW_S + 1e-9)],
    ids=["local agreement", "windows"],
)


def listen(words: Policy, hearing: Hearing) -> tuple[list[tuple[Word, ...]], list[Span]]:
    """Everything that is said, in packets of 200 ms: what was confirmed after each run of the model, and the runs."""
    confirmed, spans, now, stop_s = [], [], 0.0, hearing.spoken[-1].end_s + 0.2
    while now < stop_s:
        now = min(stop_s, now + 0.2)
        while span := words.next(now, now == stop_s, STEP_S):
            spans.append(span)
            words.take(hearing(span), span)
            confirmed.append(words.confirmed)
    words.finish()
    return [*confirmed, words.confirmed], spans


@each_policy
@settings(deadline=None, max_examples=examples(60))
@given(spoken=speech())
def test_the_words_of_a_perfect_model_are_confirmed_as_they_were_said(
    policy: Callable[[], Policy], longest_s: float, spoken: list[Word]
) -> None:
    history, spans = listen(policy(), Hearing(spoken))
    assert texts(history[-1]) == texts(spoken)
    assert all(span.stop_s - span.start_s <= longest_s for span in spans)


@each_policy
@settings(deadline=None, max_examples=examples(60))
@given(spoken=speech(), seed=st.integers(0, 100))
def test_confirmed_words_stay_and_are_in_order_however_wrong_their_times_are(
    policy: Callable[[], Policy], longest_s: float, spoken: list[Word], seed: int
) -> None:
    history, spans = listen(policy(), Hearing(spoken, off_s=0.3, seed=seed))
    for earlier, later in pairwise(history):
        assert later[: len(earlier)] == earlier
    starts = [word.start_s for word in history[-1]]
    assert starts == sorted(starts)
    assert all(span.stop_s - span.start_s <= longest_s for span in spans)
