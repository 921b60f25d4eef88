"""Gateways' parts in the quotas that they share, several in one process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from services.gateway.admission.quota import REQUEST, Allowance, Claim, QuotaExceeded, Reservation
from services.gateway.admission.shared_quotas import SharedQuotas
from services.runtime.security.secrets import Url
from services.runtime.shared_state import SharedState, connected
from tests.redis import PATIENT_S, RedisProcess
from tests.waiting import until

LEASE_S = 60  # longer than any test waits
SLOW = 0.001  # requests a second: none comes back while a test runs


@dataclass(frozen=True, slots=True)
class Part:
    """One gateway's part, in this process."""

    state: SharedState
    quotas: SharedQuotas
    running: asyncio.Task[None]

    async def tries(
        self, allowance: Allowance, tokens: int = 1, tenant: str = "acme", claim: Claim = REQUEST
    ) -> Reservation | QuotaExceeded:
        try:
            return await self.quotas.reserve(tenant, allowance, tokens, PATIENT_S, claim)
        except QuotaExceeded as refused:
            return refused


@asynccontextmanager
async def taking_part(redis: RedisProcess, timeout_s: float = PATIENT_S) -> AsyncIterator[Part]:
    async with connected(Url(redis.url), timeout_s) as state:
        quotas = SharedQuotas(state, LEASE_S)
        running = asyncio.create_task(quotas.run())
        try:
            await until(lambda: state.up)
            yield Part(state, quotas, running)
        finally:
            running.cancel()
            await asyncio.wait({running})


def admitted(outcomes: list[Reservation | QuotaExceeded]) -> list[Reservation]:
    return [outcome for outcome in outcomes if isinstance(outcome, Reservation)]


async def admits(part: Part, allowance: Allowance) -> bool:
    return isinstance(await part.tries(allowance), Reservation)


async def settled(redis: RedisProcess, running: int = 0) -> None:
    """Return when Redis has leases of so many requests."""
    async with redis.client() as client:
        await until(lambda: client.zcard("hedgerow:quota:{acme}:leases"), holds=lambda leases: leases == running)


async def has_tokens(client: Any, tokens: float) -> bool:
    """Whether the tenant has about so many left; some are refilled with time."""
    level = await client.hget("hedgerow:quota:{acme}", "tokens_level")
    return level is not None and tokens <= float(level) < tokens + 100
