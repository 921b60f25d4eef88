"""The simulated provider's own counts: what calls really cost is asked of who served them, not of who made them."""

from __future__ import annotations

import asyncio
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

_PREFIX = "simulated_provider_"


@dataclass(slots=True)
class Tally:
    """Counts since the start; `running` and `waiting` are of now."""

    started: int = 0  # calls let in
    finished: int = 0  # to their end
    cancelled: int = 0
    failed: int = 0  # after they were let in
    running: int = 0
    waiting: int = 0  # for a slot
    prompt_tokens: int = 0
    completion_tokens: int = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(self)))

    def __sub__(self, other: Tally) -> Tally:
        return Tally(*(getattr(self, each.name) - getattr(other, each.name) for each in fields(self)))


class TallyCollector(Collector):
    """Shows a tally among the process's Prometheus metrics. Plain counts are cheaper to keep than counters."""

    def __init__(self, tally: Tally):
        self._tally = tally

    def collect(self) -> Iterator[GaugeMetricFamily]:
        for each in fields(self._tally):
            yield GaugeMetricFamily(_PREFIX + each.name, "Of the simulated provider.", getattr(self._tally, each.name))


async def read_tally(addresses: Sequence[str]) -> Tally:
    """The sum of the tallies of the processes whose metrics are at `addresses` (host:port)."""
    tallies = await asyncio.gather(*(asyncio.to_thread(_read, address) for address in addresses))
    return sum(tallies, Tally())


def _read(address: str) -> Tally:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=5) as reply:
        families = list(text_string_to_metric_families(reply.read().decode()))
    own = (family for family in families if family.name.startswith(_PREFIX))
    return Tally(**{family.name.removeprefix(_PREFIX): int(family.samples[0].value) for family in own})
