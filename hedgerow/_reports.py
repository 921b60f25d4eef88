"""Parts of an answer that errors report, too: stages, decisions and the text so far. Times are
milliseconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

StageOutcome: TypeAlias = Literal["unspecified", "ok", "overrun", "failed", "skipped", "replaced"]


@dataclass(frozen=True, slots=True)
class StageReport:
    """A stage that ended."""

    name: str
    budget_ms: float  # the slice it had
    spent_ms: float
    started_ms: float  # after the request was admitted
    outcome: StageOutcome
    detail: str  # for people


@dataclass(frozen=True, slots=True)
class Decision:
    """A policy's decision for this request, with its reason."""

    policy: str  # `hedge`, `retry`, `failover`, `fallback`, `breaker`, `limit`, `shed`, `quota`, `single_flight`, …
    action: str  # a stable word: `started`, `won`, `skipped`, `refused`, `joined`, …
    subject: str  # a stage, a model, or one of its replicas (`model#2`)
    reason: str  # for people
    at_ms: float  # after the request was admitted


@dataclass(frozen=True, slots=True)
class PartialAnswer:
    """An answer so far: `stream.partial`, and `error.partial` of an answer that failed."""

    text: str = ""
    reasoning: str = ""
    stages: tuple[StageReport, ...] = ()  # those that have ended
    trace_id: str | None = None  # None until the request was admitted
