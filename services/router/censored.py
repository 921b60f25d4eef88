"""Percentiles of right-censored times: an answer that its budget has cut takes longer than its time so far.

The product-limit estimator (Kaplan and Meier, 1958: https://doi.org/10.1080/01621459.1958.10501452): an answer that was
cut after 980 ms counts among those that take longer than 970 ms, and has no weight for times above 980 ms.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Weighted = Iterable[tuple[float, float]]  # a time, and the number of answers with it
_ROUNDING = 1e-9


def percentiles(whole: Weighted, cut: Weighted, shares: Sequence[float], expected: float) -> list[float]:
    """The percentiles of all answers at `shares` (0 to 1, in rising order). If too many answers were cut to estimate
    one, the `expected` time counts as one answer's; if the cut answers exclude that too, the percentile is infinite."""
    whole, cut = list(whole), list(cut)
    known = _percentiles(whole, cut, shares)
    return known if known[-1] < float("inf") else _percentiles([*whole, (expected, 1)], cut, shares)


def _percentiles(whole: Weighted, cut: Weighted, shares: Sequence[float]) -> list[float]:
    # At equal times complete answers come first: an answer that was cut at that time takes longer.
    times = sorted([(time, False, count) for time, count in whole] + [(time, True, count) for time, count in cut])
    running, longer, found = sum(count for _, _, count in times), 1.0, list[float]()
    for time, is_cut, count in times:
        if not is_cut:
            longer *= 1 - count / running
            while len(found) < len(shares) and longer <= 1 - shares[len(found)] + _ROUNDING:
                found.append(time)
        running -= count
    return found + [float("inf")] * (len(shares) - len(found))
