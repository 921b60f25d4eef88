from __future__ import annotations

import pytest

from services.gateway.policies.slot import CLASSES, class_of, score


@pytest.mark.parametrize(
    ("premium", "realtime", "attempt", "expected", "kind"),
    [
        *[(True, True, 0, 175, "critical"), (True, False, 0, 100, "critical"), (False, True, 0, 75, "high")],
        *[(False, True, 1, 25, "normal"), (False, True, 2, -25, "low"), (False, False, 1_000, -500, "low")],
    ],
)
def test_scores_follow_tier_real_time_and_repeats(premium, realtime, attempt, expected, kind):
    assert score(premium=premium, realtime=realtime, attempt=attempt) == expected
    assert CLASSES[class_of(expected)] == kind
