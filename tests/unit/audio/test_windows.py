"""Windows of fixed length that overlap."""

from __future__ import annotations

from services.audio.alignment import Span
from services.audio.windows import Windows
from tests.unit.audio.voices import said, texts

WINDOW_S, OVERLAP_S = 5.0, 0.5


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
