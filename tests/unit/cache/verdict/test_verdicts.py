"""What is said of a near question."""

from __future__ import annotations

from services.cache.verdict.verdicts import Judged, judge


def judged(asked: str, stored: str) -> Judged:
    return judge(asked, stored, "acme", 0.97, lambda a, b: "unseen" * ("qzxv" in a))


def test_the_score_is_the_similarity() -> None:
    assert judged("How do I get a new password?", "How can I reset my password?") == Judged(0.97)


def test_a_doubt_is_told_beside_the_similarity_and_a_difference_refuses() -> None:
    told = judged("Who leads Acme in Rome?", "Who leads Acme in Oslo?")
    assert told == Judged(0.97, "", ("names differ",))
    assert judged("Who leads Acme 7?", "Who leads Globex 8?").refused == "numbers differ"
    assert judged("What is qzxv?", "What is it?").refused == "unseen"
