"""How dear a request is: a score, and the class it falls into."""

from __future__ import annotations

CLASSES = ("critical", "high", "normal", "low")
_MAX_REPEATS = 10
_BATCH = 1_000  # below whatever somebody waits for


def score(*, premium: bool, realtime: bool, attempt: int, batch: bool = False) -> int:
    """Premium +100, real-time +75, each of at most ten repeats -50; items of batches come after all others."""
    return 100 * premium + 75 * realtime - 50 * min(max(attempt, 0), _MAX_REPEATS) - _BATCH * batch


def class_of(score: int) -> int:
    """The index in `CLASSES`: critical from 100 on, high from 50, normal from 0, else low."""
    return 0 if score >= 100 else 1 if score >= 50 else 2 if score >= 0 else 3
