"""The metrics of answers, the latency targets of stages, and the names of enum values in metrics and reports."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

from prometheus_client import Counter, Histogram

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.labels import Degraded
from services.gateway.settings.answer_time import TargetSettings
from services.runtime import telemetry

_BUCKETS = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 3, 4, 5),
    *telemetry.LONG_S,
)
_LABELS = ["model", "cache"]
_STAGE_SECONDS = Histogram("hedgerow_stage_seconds", "Time a stage took.", ["stage", "outcome"], buckets=_BUCKETS)
_TTFT_SECONDS = Histogram(
    "hedgerow_ttft_seconds", "Time to the first text, thought or call.", _LABELS, buckets=_BUCKETS
)
_USABLE_SECONDS = Histogram("hedgerow_usable_seconds", "Time to the first whole sentence.", _LABELS, buckets=_BUCKETS)
_TOTAL_SECONDS = Histogram("hedgerow_total_seconds", "Time to the last event.", _LABELS, buckets=_BUCKETS)
_ANSWERS = Counter("hedgerow_answers", "Answers.", ["model", "finish_reason", "cache"])
_DEGRADED = Counter("hedgerow_degraded", "Degraded answers, by reason.", ["reason"])
DROPPED = Counter("hedgerow_dropped", "Answers whose client disconnected, by progress.", ["progress"])
# `labels` takes a lock and formats its values each time; the labels here have few values.
_stage_seconds, _ttft_seconds, _usable_seconds, _total_seconds = map(
    cache, (_STAGE_SECONDS.labels, _TTFT_SECONDS.labels, _USABLE_SECONDS.labels, _TOTAL_SECONDS.labels)
)
_answers = cache(_ANSWERS.labels)
_MEASURED = Counter("hedgerow_target_measured", "Latencies that have a target.", ["what"])
_MISSED = Counter("hedgerow_target_missed", "Latencies above their target.", ["what", "percentile"])
_measured, _missed = cache(_MEASURED.labels), cache(_MISSED.labels)
_PERCENTILES = ("p99", "p95", "p50")


def _words(enum: Any, prefix: str) -> dict[int, str]:
    """The values of a protobuf enum as lower-case words."""
    return {number: name.removeprefix(prefix).lower() for name, number in enum.items()}


OUTCOMES = _words(pb.StageOutcome, "STAGE_OUTCOME_")
VERDICTS = _words(pb.CacheVerdict, "CACHE_VERDICT_")
HITS = (pb.CACHE_VERDICT_EXACT, pb.CACHE_VERDICT_SEMANTIC)
REASONS = _words(chat_pb2.FinishReason, "FINISH_REASON_")


def observe_stages(stages: Iterable[pb.Stage]) -> None:
    """Count the stages of an answer, or of an error in its place."""
    for stage in stages:
        _stage_seconds(stage.name.partition(":")[0], OUTCOMES[stage.outcome]).observe(stage.spent_ms / 1000)


def observe(final: pb.Final, *, awaited: bool) -> None:
    """Count an answer once its client has it, and its times, where a client waited for it."""
    observe_stages(final.stages)
    model, verdict = final.model, VERDICTS[final.cache.verdict]
    _answers(model, REASONS[final.finish_reason], verdict).inc()
    for label in final.degraded:
        _DEGRADED.labels(label).inc()
    if not awaited:
        return
    _total_seconds(model, verdict).observe(final.total_ms / 1000)
    if final.HasField("ttft_ms"):
        _ttft_seconds(model, verdict).observe(final.ttft_ms / 1000)
    if final.HasField("usable_ms"):
        _usable_seconds(model, verdict).observe(final.usable_ms / 1000)


def degrade(final: pb.Final, reason: Degraded) -> None:
    """Add a reason to an answer that is counted already."""
    final.degraded.append(reason)
    _DEGRADED.labels(reason).inc()


class Targets:
    """Latency targets, in milliseconds, by stage; `ttft`, `usable` and `total` are of the whole answer."""

    def __init__(self, settings: Mapping[str, TargetSettings] | None = None):
        self._targets = {
            name: [(percentile, target) for percentile in _PERCENTILES if (target := _target(stage, percentile))]
            for name, stage in (settings or {}).items()
        }

    def __bool__(self) -> bool:
        return bool(self._targets)

    def count_missed(self, spent_ms: Mapping[str, float]) -> Iterator[tuple[str, str, str]]:
        """Count stages with a target, and those beyond it. Yields (stage, percentile, reason) for each of the latter,
        with the highest percentile whose target it exceeds."""
        for name in spent_ms.keys() & self._targets.keys():
            _measured(name).inc()
            beyond = [(percentile, target) for percentile, target in self._targets[name] if spent_ms[name] > target]
            for percentile, _ in beyond:
                _missed(name, percentile).inc()
            if beyond:
                percentile, target = beyond[0]
                yield name, percentile, f"{spent_ms[name]:.0f} ms, {percentile} target {target:.0f} ms"


def _target(stage: TargetSettings, percentile: str) -> float:
    return float(getattr(stage, f"{percentile}_ms"))
