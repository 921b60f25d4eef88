from __future__ import annotations

from services.gateway.policies.ticket import CLASSES, class_of, score


def test_scores_follow_tier_real_time_and_repeats():
    assert score(premium=True, realtime=True, attempt=0) == 175
    assert score(premium=False, realtime=True, attempt=2) == -25
    assert score(premium=False, realtime=False, attempt=1_000) == -500
    assert [CLASSES[class_of(value)] for value in (100, 75, 49, -1)] == ["critical", "high", "normal", "low"]
