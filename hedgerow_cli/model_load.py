"""How busy the models of a gateway are and which breakers are open, as its metrics say."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from hedgerow_cli.scrape import MetricSample, scrape

_MODEL = "llm "  # before its name, in the label of its limiter
_GAUGES = {"hedgerow_in_flight": "in_flight", "hedgerow_waiting": "waiting", "hedgerow_limit": "limit"}


@dataclass(slots=True)
class ModelLoad:
    """Calls in flight, requests that wait for a slot, and the most calls at once, of all workers that were asked.

    `open`: of each replica, whether its breaker keeps calls away after failures."""

    in_flight: int = 0
    waiting: int = 0
    limit: int = 0
    open: list[bool] = field(default_factory=list)

    @property
    def problem(self) -> str:
        """For people; empty where calls are let through."""
        return "calls fail: the gateway's breaker is open" if self.open and all(self.open) else ""

    def as_object(self) -> dict[str, int]:
        """For programs."""
        return {name: getattr(self, name) for name in _GAUGES.values()}


def loads(where: str, api_key: str | None = None) -> dict[str, ModelLoad]:
    """By model, of the gateway that serves HTTP at `where`; nothing of one that shows no metrics to this caller."""
    return loads_in(scrape([f"{where}/metrics"], api_key))


def loads_in(samples: Iterable[MetricSample]) -> dict[str, ModelLoad]:
    """By model."""
    found: dict[str, ModelLoad] = {}
    for name, labels, value in samples:
        limiter = labels.get("limiter", "")
        if name in _GAUGES and limiter.startswith(_MODEL):
            load = found.setdefault(limiter.removeprefix(_MODEL), ModelLoad())
            setattr(load, _GAUGES[name], getattr(load, _GAUGES[name]) + int(value))
        elif name == "hedgerow_breaker_open":
            model, at, _ = labels["backend"].rpartition("@")
            if at:
                found.setdefault(model, ModelLoad()).open.append(value > 0)
    return found
