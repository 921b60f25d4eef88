"""LocalAgreement-2: a word is confirmed when two runs in a row agree on it."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from services.audio.agreement import Agreement
from services.audio.alignment import Span
from tests.examples import examples
from tests.unit.audio.voices import said, texts

STEP_S, TRIM_S = 0.3, 7.0


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
