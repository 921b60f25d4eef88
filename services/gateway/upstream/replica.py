"""One replica of a model: its state, its speed, and the breaker before it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from services.gateway.config import GatewaySettings
from services.gateway.policies.baseline import LatencyBaseline
from services.gateway.policies.breaker import Breaker
from services.gateway.policies.tenant_aware_breaker import TenantAwareBreaker
from services.gateway.settings.generation import BreakerSettings
from services.gateway.upstream.balance import Locality, Prefixes
from services.gateway.upstream.llm import Llm
from services.gateway.upstream.start import Notice, Start
from services.runtime.deadline import Clock

_SMOOTHING = 2 / (10 + 1)  # an average over about ten calls


@dataclass(slots=True, eq=False)
class Replica:
    """An address of a model. `name` is its name for callers. `in_flight` counts only this gateway's calls; `first_s` is
    their average time to first text, 0 until it is known."""

    address: str
    llm: Llm
    breaker: TenantAwareBreaker
    start: Start
    locality: Locality = field(default_factory=Locality)
    in_flight: int = 0
    first_s: float = 0.0
    prefixes: Prefixes = field(default_factory=Prefixes)
    name: str = ""

    def would_admit(self, tenant: str = "") -> bool:
        """Whether a call of `tenant` may be made now."""
        return not self.start.starting and self.breaker.would_admit(tenant)

    def answered(self, first_s: float) -> None:
        """A call had its first text after that time."""
        self.first_s += (first_s - self.first_s) * (_SMOOTHING if self.first_s else 1)

    def gave_up(self, silent_s: float) -> None:
        """A call ended after that time without any text: a sample where that is longer than usual."""
        if 0 < self.first_s < silent_s:
            self.answered(silent_s)


def make_replica(
    settings: GatewaySettings,
    model: str,
    number: int,
    address: str,
    llm: Llm,
    baseline: LatencyBaseline,
    notice: Notice,
    clock: Clock = time.monotonic,
) -> Replica:
    """A new replica of `model`. `baseline` is the model's."""
    name = f"{model}#{number}"
    breaker = make_breaker(settings.breakers, f"{model}@{address}", baseline, clock, name)
    return Replica(address, llm, breaker, Start(notice, breaker), name=name)


def stage_breaker(settings: GatewaySettings, stage: Literal["cache", "vision", "audio"]) -> TenantAwareBreaker:
    """A closed breaker before the service of a stage."""
    expected_ms: float = getattr(settings.expected, f"{stage}_ms")
    return make_breaker(settings.breakers, stage, LatencyBaseline(expected_ms / 1000))


def make_breaker(
    settings: BreakerSettings, name: str, baseline: LatencyBaseline, clock: Clock = time.monotonic, shown: str = ""
) -> TenantAwareBreaker:
    """A closed breaker before a backend with that `baseline`. `shown`: the backend's name for callers, where that
    is not `name`."""
    make = partial(
        Breaker,
        name,
        window_s=settings.window_s,
        min_calls=settings.min_calls,
        in_a_row=settings.in_a_row,
        failure_rate=settings.failure_rate,
        slow_rate=settings.slow_rate,
        slow_s=settings.slow_s,
        open_s=settings.open_ms / 1000,
        clock=clock,
    )
    return TenantAwareBreaker(make, baseline, settings.window_s, shown or name)
