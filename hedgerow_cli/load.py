"""How busy the models of a gateway are, as its `/metrics` say."""

from __future__ import annotations

from dataclasses import dataclass, field

_TIMEOUT_S = 2
_MOST_BYTES = 16 * 1024 * 1024
_OF_MODEL = '{limiter="llm '
_OF_BREAKER = 'hedgerow_breaker_open{backend="'
_GAUGES = {"hedgerow_in_flight": "in_flight", "hedgerow_waiting": "waiting", "hedgerow_limit": "limit"}


@dataclass(slots=True)
class Load:
    """Calls in flight, requests that wait for a place, and the most calls at once, of one worker of the gateway.

    `open`: of each replica, whether its breaker keeps calls away after failures."""

    in_flight: int = 0
    waiting: int = 0
    limit: int = 0
    open: list[bool] = field(default_factory=list)

    @property
    def problem(self) -> str:
        """For people; empty where calls are let through."""
        return "calls fail: the gateway's breaker is open" if self.open and all(self.open) else ""


def loads(where: str, api_key: str | None = None) -> dict[str, Load]:
    """By model, of the gateway that serves HTTP at `where`; nothing of one that shows no metrics to this caller."""
    from urllib.request import Request, urlopen

    headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
    try:
        with urlopen(Request(f"{where}/metrics", headers=headers), timeout=_TIMEOUT_S) as answer:
            return read(answer.read(_MOST_BYTES).decode(errors="replace"))
    except (OSError, ValueError):
        return {}


def read(metrics: str) -> dict[str, Load]:
    """By model, from Prometheus' text format."""
    found: dict[str, Load] = {}
    for line in metrics.splitlines():
        gauge, _, labelled = line.partition(_OF_MODEL)
        if gauge in _GAUGES:
            model, _, value = labelled.partition('"} ')
            setattr(found.setdefault(model, Load()), _GAUGES[gauge], int(float(value)))
        elif line.startswith(_OF_BREAKER):
            backend, _, value = line.removeprefix(_OF_BREAKER).partition('"} ')
            model, at, _ = backend.rpartition("@")
            if at:
                found.setdefault(model, Load()).open.append(float(value) > 0)
    return found
