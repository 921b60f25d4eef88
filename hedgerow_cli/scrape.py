"""The metrics of a gateway's workers at one moment, and what a PromQL query would make of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

Group = tuple[str, ...]  # values of the labels that something is grouped by
_TIMEOUT_S = 2
_MOST_BYTES = 16 * 1024 * 1024


class MetricSample(NamedTuple):
    """One line of Prometheus' text format."""

    name: str
    labels: Mapping[str, str]
    value: float


def scrape(pages: Iterable[str], api_key: str | None = None) -> list[MetricSample]:
    """The samples of each page; none of one that does not show its metrics to this caller."""
    found = list[MetricSample]()
    for page in pages:
        try:
            with get(page, api_key, _TIMEOUT_S) as answer:
                found += read(answer.read(_MOST_BYTES).decode(errors="replace"))
        except (OSError, ValueError):
            continue
    return found


def get(url: str, api_key: str | None, timeout_s: float) -> Any:
    """The response of a page. Raises `URLError`, also for a redirect."""
    from urllib.request import Request

    from hedgerow._pages import ask

    return ask(Request(url, headers={"authorization": f"Bearer {api_key}"} if api_key else {}), timeout_s)


def read(text: str) -> list[MetricSample]:
    """The samples of a page. Raises ValueError for another text."""
    from prometheus_client.parser import text_string_to_metric_families

    families = text_string_to_metric_families(text)
    return [MetricSample(each.name, each.labels, each.value) for family in families for each in family.samples]


def total(samples: Iterable[MetricSample], name: str, *by: str) -> dict[Group, float]:
    """`sum by (by) (name)`."""
    found: dict[Group, float] = {}
    for each in samples:
        if each.name == name:
            group = tuple(each.labels.get(label, "") for label in by)
            found[group] = found.get(group, 0.0) + each.value
    return found


def increase(before: Mapping[Group, float], after: Mapping[Group, float]) -> dict[Group, float]:
    """How much counters have risen. One that fell was set to 0 meanwhile, by a restart."""
    return {
        group: value - (0.0 if (then := before.get(group, 0.0)) > value else then) for group, value in after.items()
    }


def quantile(share: float, buckets: Mapping[float, float]) -> float | None:
    """`histogram_quantile`: `buckets` has the count of values up to each bound. Within a bucket it interpolates; of the
    last bucket it is the lower bound. None without a value."""
    rank, low, count_low = share * buckets.get(math.inf, 0.0), 0.0, 0.0
    for bound, count in sorted(buckets.items()):
        if count > 0 and count >= rank:
            return low if bound == math.inf else low + (bound - low) * (rank - count_low) / (count - count_low)
        low, count_low = bound, count
    return None
