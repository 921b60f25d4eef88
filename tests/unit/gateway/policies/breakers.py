"""A breaker that opens soon and for a second."""

from __future__ import annotations

import random
from typing import Any

from services.gateway.policies.breaker import Breaker
from tests.clock import PausedClock

OPEN_S = 1.0
SETTINGS = {
    "window_s": 10,
    "min_calls": 5,
    "in_a_row": 100,
    "failure_rate": 0.5,
    "slow_rate": 0.9,
    "slow_s": 2,
    "open_s": OPEN_S,
}


def make(clock: PausedClock, **settings: Any) -> Breaker:
    return Breaker("b", **{**SETTINGS, **settings}, clock=clock, rng=random.Random(1))
