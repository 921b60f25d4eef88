"""Confidence bounds of a share, from a sample, that hold at any time.

A confidence sequence holds for all sizes of the sample at once, so it may be evaluated and acted on after each report.
The method of mixtures (Robbins, Statistical methods related to the law of the iterated logarithm, 1970; Howard et al.,
arXiv 1810.08240; for a finite or Bernoulli population Waudby-Smith and Ramdas, arXiv 2010.09686): for the true share p
the likelihood ratio of a Beta mixture over p is a martingale that starts at 1, so the probability that it ever reaches
1 / α is at most α (Ville). The interval holds each p for which it has not reached 1 / α.

Assumed: the items of the sample are exchangeable, and the sampling does not depend on their values.
"""

from __future__ import annotations

from collections.abc import Callable
from math import lgamma, log, log1p

CONFIDENCE = 0.95  # of each bound separately
_CERTAIN = -log(1 - CONFIDENCE)
# The Beta mixture. Its mean is 1%, so bounds are tight there: 138 items without a hit show a share below 2.8%.
_A, _B = 1.0, 99.0
_LOG_PRIOR = lgamma(_A) + lgamma(_B) - lgamma(_A + _B)  # the logarithm of its Beta function
_STEPS = 45  # of the bisection, which never evaluates an end


def is_below(share: float, hits: int, count: int) -> bool:
    """Whether `upper` is at most `share`, without computing `upper`."""
    return hits < share * count and (share >= 1 or _log_ratio(share, hits, count) >= _CERTAIN)


def is_above(share: float, hits: int, count: int) -> bool:
    """Whether `lower` is at least `share`."""
    return hits > share * count and _log_ratio(share, hits, count) >= _CERTAIN


def upper(hits: int, count: int) -> float:
    """Upper bound of the share at any time, if `hits` of `count` sampled items have the property."""
    if hits == count:
        return 1.0
    return _bisect(lambda share: not is_below(share, hits, count), hits / count, 1.0)


def lower(hits: int, count: int) -> float:
    """Lower bound of the share at any time."""
    if hits == 0:
        return 0.0
    return _bisect(lambda share: is_above(share, hits, count), 0.0, hits / count)


def _log_ratio(share: float, hits: int, count: int) -> float:
    """The logarithm of the sample's likelihood ratio: under the mixture, over that under `share`."""
    misses = count - hits
    mixture = lgamma(_A + hits) + lgamma(_B + misses) - lgamma(_A + _B + count) - _LOG_PRIOR
    return mixture - (hits * log(share) + misses * log1p(-share))


def _bisect(holds: Callable[[float], bool], low: float, high: float) -> float:
    """The point where a condition stops to hold; it holds at `low` and not at `high`."""
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return high
