"""The time that an answer has, and who limits it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.admission.identity import Tenant
from services.gateway.changes import By
from services.gateway.config import GatewaySettings
from services.gateway.errors import BudgetSpent
from services.runtime.deadline import Deadline


class TokenLimit(NamedTuple):
    """The most tokens of an answer by its tenant's settings, and what the request asked for; 0: not limited, or it did
    not say."""

    most: int = 0
    asked: int = 0


@dataclass(frozen=True, slots=True)
class Budget:
    """Milliseconds; `asked_ms` is what the request asked for, 0 where it did not say. `told`: whether it changes the
    request. The caller's own time-out, which it would have without a gateway, does not."""

    ms: float
    by: By = By.MESH
    asked_ms: float = 0
    told: bool = True
    tokens: TokenLimit = TokenLimit()  # noqa: RUF009  # it is frozen


def limited(request: pb.GenerateRequest, tenant: Tenant) -> tuple[pb.GenerateRequest, TokenLimit]:
    """The request, with no more tokens for its answer than its tenant may have."""
    asked, most = request.sampling.max_tokens, tenant.max_tokens
    if not most or (request.sampling.HasField("max_tokens") and asked <= most):
        return request, TokenLimit()
    shorter = pb.GenerateRequest()
    shorter.CopyFrom(request)
    shorter.sampling.max_tokens = most
    if request.sampling.HasField("min_tokens"):
        shorter.sampling.min_tokens = min(request.sampling.min_tokens, most)
    return shorter, TokenLimit(most, asked)


def budget_of(
    request: pb.GenerateRequest,
    tenant: Tenant,
    settings: GatewaySettings,
    deadline: Deadline,
    tokens: TokenLimit = TokenLimit(),  # noqa: B008  # it is frozen
) -> Budget:
    """The smallest of the request's budget, or the one that is usual where it names none, of the tenant's cap, of the
    gateway's, and of the time that the caller waits. Of equal ones the first limits. Raises `BudgetSpent`."""
    asked = request.budget_ms if request.HasField("budget_ms") else 0
    own = tenant.default_budget_ms
    usual = (own, By.TENANT) if own else (settings.default_budget_ms, By.MESH)
    limits = [(asked, By.REQUEST) if asked else usual]
    limits += [(tenant.max_budget_ms, By.TENANT)] if tenant.max_budget_ms else []
    limits += [(settings.max_budget_ms, By.MESH)]
    ms, by = min(limits, key=lambda limit: limit[0])
    left_ms = deadline.remaining() * 1000
    if math.isfinite(left_ms):
        left_ms -= settings.finish_reserve_ms  # the last event has a way to go
    if left_ms <= 0:
        raise BudgetSpent(f"deadline: {settings.finish_reserve_ms:.0f} ms or more, got less")
    if left_ms < ms:
        return Budget(left_ms, By.REQUEST, asked, told=False, tokens=tokens)
    return Budget(ms, by, asked, tokens=tokens)
