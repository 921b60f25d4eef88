"""What the policies did for a request, and why: for its last event, its trace and the metrics."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from typing import Any, Protocol

from prometheus_client import Counter

from services.gateway.labels import Act, Policy
from services.runtime.deadline import Clock
from services.runtime.errors import ServiceError

_DECISIONS = Counter("hedgerow_decisions", "What policies did.", ["policy", "action"])
_decisions = cache(_DECISIONS.labels)


class Backend(Protocol):
    """What callers know by its `name`, and operators by its `address` too."""

    @property
    def name(self) -> str: ...

    @property
    def address(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Decision:
    """`action` is a stable word, `subject` a stage, a model or a backend, `reason` for people; `at` on the clock.
    `address` is the backend's, and for operators alone."""

    policy: Policy
    action: str
    subject: str
    reason: str
    at: float
    address: str = ""


class Decisions(list[Decision]):
    """In the order in which they were made."""

    def __init__(self, clock: Clock = time.monotonic):
        super().__init__()
        self._clock = clock

    def add(self, act: Act, subject: str | Backend, reason: str) -> None:
        said = act.value
        name, address = (subject, "") if isinstance(subject, str) else (subject.name, subject.address)
        self.append(Decision(said.policy, said.action, name, reason, self._clock(), address))
        _decisions(said.policy, said.action).inc()

    def told(self, opened: float) -> list[dict[str, Any]]:
        """As the contract has them, with times in milliseconds since `opened`. Those of a generation that somebody else
        started may be older than this request: they happened at 0."""
        return [
            {
                "policy": made.policy,
                "action": made.action,
                "subject": made.subject,
                "reason": made.reason,
                "at_ms": round(max(0.0, made.at - opened) * 1000, 3),
            }
            for made in sorted(self, key=attrgetter("at"))
        ]

    def explain(self, error: ServiceError, opened: float, trace_id: str) -> None:
        """Have an error that ends a request tell what the policies did before."""
        error.metadata["trace_id"] = trace_id
        if self:
            error.metadata["decisions"] = json.dumps(self.told(opened))
