"""How a mesh answers now: requests a second, p50 and p99, errors, and how busy its models are."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from hedgerow_cli.model_load import ModelLoad, loads_in
from hedgerow_cli.scrape import Group, MetricSample, increase, quantile, scrape, total

_REQUESTS, _ANSWERS = "hedgerow_request_seconds", "hedgerow_total_seconds"
_FAILED = ("failed", "late")  # outcomes of calls to models; a refused one was its caller's mistake


@dataclass(frozen=True, slots=True)
class Flow:
    """Requests that ended within the window: how many a second, how many of them with an error, and percentiles of the
    time that the rest took; None where nothing succeeded."""

    per_s: float = 0.0
    errors_per_s: float = 0.0
    p50_ms: float | None = None
    p99_ms: float | None = None


@dataclass(frozen=True, slots=True)
class GatewayTraffic:
    """`over_s`: the window in seconds. `since_start`: it is all the time since the gateway started. `errors`: how many
    a second by (tenant, reason). `warnings` are for people."""

    over_s: float
    since_start: bool
    mesh: Flow
    tenants: Mapping[str, Flow]
    models: Mapping[str, Flow]
    errors: Mapping[Group, float]
    busy: Mapping[str, ModelLoad]
    warnings: Sequence[str]

    def as_object(self) -> dict[str, Any]:
        """For programs."""
        return {
            "window": {"over_s": self.over_s, "since_start": self.since_start},
            "mesh": asdict(self.mesh),
            "tenants": [{"name": name, **asdict(flow)} for name, flow in self.tenants.items()],
            "models": [{"name": name, **load.as_object(), **asdict(flow)} for name, load, flow in self.by_model()],
            "errors": [
                {"tenant": tenant, "reason": reason, "per_s": count} for (tenant, reason), count in self.errors.items()
            ],
            "warnings": list(self.warnings),
        }

    def by_model(self) -> Iterator[tuple[str, ModelLoad, Flow]]:
        """Every model that is known or has answered."""
        for name in dict.fromkeys((*self.busy, *self.models)):
            yield name, self.busy.get(name, ModelLoad()), self.models.get(name, Flow())


def watch(pages: Sequence[str], over_s: float) -> GatewayTraffic | None:
    """The traffic of the next `over_s` seconds; with 0, or where nothing ends within them, of all the time since the
    start. None where no page shows metrics."""
    before, began = scrape(pages), time.monotonic()
    if before and over_s:
        time.sleep(over_s)
        after, took_s = scrape(pages), time.monotonic() - began
        if after and (seen := between(before, after, took_s)).mesh.per_s:
            return seen
        before = after
    if not before:
        return None
    now = time.time()
    began = min((each.value for each in before if each.name == "process_start_time_seconds"), default=now)
    return between([], before, max(now - began, 1.0), since_start=True)


def between(
    before: Sequence[MetricSample], after: Sequence[MetricSample], over_s: float, *, since_start: bool = False
) -> GatewayTraffic:
    """The traffic between two scrapes that are `over_s` apart."""

    def per_s(name: str, *by: str) -> dict[Group, float]:
        risen = increase(total(before, name, *by), total(after, name, *by))
        return {group: count / over_s for group, count in risen.items()}

    def flows(histogram: str, by: Sequence[str], errors: Mapping[Group, float]) -> dict[str, Flow]:
        ended, buckets = per_s(f"{histogram}_count", *by), dict[Group, dict[float, float]]()
        for (*group, bound), count in per_s(f"{histogram}_bucket", *by, "le").items():
            buckets.setdefault(tuple(group), {})[float(bound)] = count
        found = {
            "".join(group): _flow(ended.get(group, 0.0), errors.get(group, 0.0), buckets.get(group, {}))
            for group in sorted({*ended, *errors})
        }
        return {name: flow for name, flow in found.items() if flow.per_s}

    failed: dict[Group, float] = {}
    for (model, outcome), count in per_s("hedgerow_attempts_total", "model", "outcome").items():
        failed[model,] = failed.get((model,), 0.0) + count * (outcome in _FAILED)
    errors = per_s("hedgerow_errors_total", "tenant", "reason")
    return GatewayTraffic(
        over_s=over_s,
        since_start=since_start,
        mesh=flows(_REQUESTS, (), per_s("hedgerow_errors_total")).get("", Flow()),
        tenants=flows(_REQUESTS, ("tenant",), per_s("hedgerow_errors_total", "tenant")),
        models=flows(_ANSWERS, ("model",), failed),
        errors={group: count for group, count in sorted(errors.items(), key=lambda each: -each[1]) if count},
        busy=loads_in(after),
        warnings=[*_warnings(after, per_s("hedgerow_write_behind_dropped_total", "kind"))],
    )


def _flow(ended: float, errors: float, buckets: Mapping[float, float]) -> Flow:
    p50, p99 = (quantile(share, buckets) for share in (0.5, 0.99))
    return Flow(ended + errors, errors, None if p50 is None else p50 * 1000, None if p99 is None else p99 * 1000)


def _warnings(now: Sequence[MetricSample], dropped: Mapping[Group, float]) -> Iterator[str]:
    """Problems beside failed requests, for people."""
    if any(each.name == "hedgerow_shared_state_up" and not each.value for each in now):
        yield "Redis does not answer: each process uses its own memory"
    if count := dropped.get(("store",), 0.0):
        yield f"answers are not stored: {count:.1f}/s"
    ends, due = (
        {each.labels["identity"]: each.value for each in now if each.name == f"hedgerow_certificate_{at}_seconds"}
        for at in ("expires", "due")
    )
    for identity, at in sorted(due.items()):
        if time.time() >= at:
            yield f"the certificate of {identity} expires in {(ends[identity] - time.time()) / 3600:.1f} h"
    for name, load in loads_in(now).items():
        if load.problem:
            yield f"model {name}: {load.problem}"
