"""Where a run goes on from what is confirmed."""

from __future__ import annotations

from services.audio.alignment import after, in_order
from tests.unit.audio.voices import said, texts


def test_with_nothing_confirmed_the_whole_run_is_new() -> None:
    assert texts(after([], said("which", "city"), 0)) == ["which", "city"]


def test_what_is_confirmed_already_is_not_said_again() -> None:
    assert texts(after(said("Which", "city"), said("which", "city", "is"), 0)) == ["is"]


def test_a_confirmed_word_that_is_heard_much_later_is_not_doubled() -> None:
    late = said("Which", "city", from_s=0.7)
    assert texts(after(said("Which"), late, 0)) == ["city"]


def test_a_word_that_is_said_twice_is_kept_twice() -> None:
    assert texts(after(said("no"), said("no", "no", "fox"), 0)) == ["no", "fox"]


def test_a_confirmed_word_that_is_now_heard_differently_is_not_doubled() -> None:
    assert texts(after(said("is", "nine"), said("is", "9", "minus"), 0)) == ["minus"]


def test_the_echo_of_a_word_that_ended_where_the_run_starts_is_dropped() -> None:
    assert texts(after(said("Which"), said("which", "city", from_s=0.4), 0.4)) == ["city"]


def test_a_word_that_the_run_heard_only_the_end_of_may_be_missing() -> None:
    confirmed = said("semantic", "cache")
    assert texts(after(confirmed, said("cache", "is", from_s=0.4), 0.2)) == ["is"]


def test_times_never_go_back() -> None:
    ordered = in_order([*said("a", from_s=1), *said("b", from_s=0.5)], 0.8)
    assert [(word.start_s, word.end_s) for word in ordered] == [(1.0, 1.4), (1.0, 1.0)]
