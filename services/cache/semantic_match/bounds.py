"""How large a share may be, by a sample of it: bounds that hold at every look.

A confidence sequence holds for all sizes of the sample at once, so one may look after each report and act on what one
sees. The method of mixtures (Robbins, Statistical methods related to the law of the iterated logarithm, 1970; Howard et
al., arXiv 1810.08240; for a finite or Bernoulli population Waudby-Smith and Ramdas, arXiv 2010.09686): for the true
share p the likelihood ratio of a Beta mixture over p is a martingale that starts at 1, so it ever reaches 1 / α with a
probability of α at most (Ville). The interval holds each p for which it has not reached 1 / α.

Assumed: the sample's items are exchangeable, and which items are in it does not depend on what they are.
"""

from __future__ import annotations

from collections.abc import Callable
from math import lgamma, log, log1p

CONFIDENCE = 0.95  # of each bound separately
_CERTAIN = -log(1 - CONFIDENCE)
# Of the mixture, whose mean is 1%: there it is tight. Without hits 138 items say that a share is below 2.8%.
_PRIOR = (1.0, 99.0)
_STEPS = 45  # of a bisection; neither end is ever tried


def is_below(share: float, hits: int, count: int) -> bool:
    """Whether `upper` is below a share, or at it, found without it."""
    return hits < share * count and (share >= 1 or _log_ratio(share, hits, count) >= _CERTAIN)


def is_above(share: float, hits: int, count: int) -> bool:
    """Whether `lower` is above a share, or at it."""
    return hits > share * count and _log_ratio(share, hits, count) >= _CERTAIN


def upper(hits: int, count: int) -> float:
    """The share is not above this, whenever one looks: `hits` of `count` items of the sample had it."""
    if hits == count:
        return 1.0
    return _bisect(lambda share: not is_below(share, hits, count), hits / count, 1.0)


def lower(hits: int, count: int) -> float:
    """The share is not below this, whenever one looks."""
    if hits == 0:
        return 0.0
    return _bisect(lambda share: is_above(share, hits, count), 0.0, hits / count)


def _log_ratio(share: float, hits: int, count: int) -> float:
    """The logarithm of how much likelier the sample is under the mixture than under `share`."""
    misses, (a, b) = count - hits, _PRIOR
    likelihood = hits * log(share) + misses * log1p(-share)
    return _log_beta(a + hits, b + misses) - _log_beta(a, b) - likelihood


def _log_beta(a: float, b: float) -> float:
    return lgamma(a) + lgamma(b) - lgamma(a + b)


def _bisect(holds: Callable[[float], bool], low: float, high: float) -> float:
    """Where a condition that holds at `low` and not at `high` ends to hold."""
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return high
