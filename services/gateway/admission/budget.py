"""The time that an answer has, and who limits it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.admission.identity import Tenant
from services.gateway.changes import By
from services.gateway.config import GatewaySettings
from services.gateway.errors import BudgetSpent
from services.runtime.deadline import Deadline


@dataclass(frozen=True, slots=True)
class Budget:
    """Milliseconds; `asked_ms` is what the request asked for, 0 where it did not say. `told`: whether it changes the
    request. The caller's own time-out, which it would have without a gateway, does not."""

    ms: float
    by: By = By.MESH
    asked_ms: float = 0
    told: bool = True


def budget_of(request: pb.GenerateRequest, tenant: Tenant, settings: GatewaySettings, deadline: Deadline) -> Budget:
    """The smallest of the request's budget, or the one that is usual where it names none, of the tenant's cap, of the
    gateway's, and of the time that the caller waits. Of equal ones the first limits. Raises `BudgetSpent`."""
    asked = request.budget_ms if request.HasField("budget_ms") else 0
    limits = [(asked, By.REQUEST) if asked else (settings.default_budget_ms, By.MESH)]
    limits += [(tenant.max_budget_ms, By.TENANT)] if tenant.max_budget_ms else []
    limits += [(settings.max_budget_ms, By.MESH)]
    ms, by = min(limits, key=lambda limit: limit[0])
    left_ms = deadline.remaining() * 1000
    if math.isfinite(left_ms):
        left_ms -= settings.finish_reserve_ms  # the last event has a way to go
    if left_ms <= 0:
        raise BudgetSpent(f"deadline: {settings.finish_reserve_ms:.0f} ms or more, got less")
    return Budget(left_ms, By.REQUEST, asked, told=False) if left_ms < ms else Budget(ms, by, asked)
