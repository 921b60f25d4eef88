from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.gateway.answer.stages.cache.stored import paced


@given(st.text(max_size=300), st.floats(0.01, 1e6), st.floats(0, 100))
def test_the_text_is_whole_in_order_and_done_in_its_time(text, per_s, within_s):
    pieces = list(paced(text, per_s, within_s))
    assert "".join(piece for _, piece in pieces) == text
    due = [due_s for due_s, _ in pieces]
    assert due == sorted(due)
    assert all(0 <= due_s <= within_s for due_s in due)


def test_it_comes_at_its_pace_from_the_first_moment_on():
    assert list(paced("abcdef", 40, 10)) == [(0, "ab"), (0.05, "cd"), (0.1, "ef")]


def test_a_slow_pace_is_one_character_at_a_time():
    assert list(paced("abc", 2, 10)) == [(0, "a"), (0.5, "b"), (1, "c")]


def test_it_is_faster_where_the_time_is_short():
    assert list(paced("abcd", 1, 0.1)) == [(0, "ab"), (pytest.approx(0.05), "cd")]
    assert list(paced("abcd", 1, 0)) == [(0, "abcd")]
