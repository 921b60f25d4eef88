"""Benches that count on the cache ask what it may answer: a question of a kind is neither looked up nor stored."""

from __future__ import annotations

from bench import mesh
from bench.jagged import ask_around
from services.gateway.cache_eligibility.choice import kinds


def test_no_question_is_of_a_kind() -> None:
    asked = [each.text for each in ask_around(50, 10, 0.4, seed=1)]
    asked += [mesh.text(number) for number in range(10)]
    assert [text for text in asked if kinds([text])] == []
