"""How large a share may be, of which a sample is known."""

from __future__ import annotations

import math


def clopper_pearson_upper(successes: int, trials: int, confidence: float = 0.95) -> float:
    """The largest share that `successes` of `trials` do not speak against: one-sided, exact, for a sample that was
    looked at once. Source: Clopper, Pearson, Biometrika 26 (1934) 404."""
    if successes >= trials:
        return 1.0
    low, high = successes / trials, 1.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        if _at_most(successes, trials, middle) > 1 - confidence:
            low = middle
        else:
            high = middle
    return high


def clopper_pearson_lower(successes: int, trials: int, confidence: float = 0.95) -> float:
    """The smallest such share."""
    return 1 - clopper_pearson_upper(trials - successes, trials, confidence) if trials else 0.0


def _at_most(successes: int, trials: int, share: float) -> float:
    """The probability of no more than so many, each with a chance of `share`."""
    if share <= 0:
        return 1.0
    log_share, log_rest = math.log(share), math.log1p(-share) if share < 1 else -math.inf
    whole = math.lgamma(trials + 1)
    return math.fsum(
        math.exp(
            whole
            - math.lgamma(count + 1)
            - math.lgamma(trials - count + 1)
            + count * log_share
            + (trials - count) * log_rest
        )
        for count in range(successes + 1)
    )
