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
async def taking_part(redis: RedisProcess, lease_s: float = 10, timeout_s: float = PATIENT_S) -> AsyncIterator[Part]:
    async with connected(Url(redis.url), timeout_s) as state:
        quotas = SharedQuotas(state, lease_s)
        running = asyncio.create_task(quotas.run())
        try:
            await until(lambda: state.up)
            yield Part(state, quotas, running)
        finally:
            running.cancel()
            await asyncio.wait({running})


def admitted(outcomes: list[Reservation | QuotaExceeded]) -> list[Reservation]:
    return [outcome for outcome in outcomes if isinstance(outcome, Reservation)]


async def admits(part: Part, allowance: Allowance, tokens: int = 1) -> bool:
    return isinstance(await part.tries(allowance, tokens), Reservation)


async def settled(redis: RedisProcess, tenant: str = "acme", running: int = 0) -> None:
    async with redis.client() as client:
        await until(lambda: _counts(client, tenant, running))


async def _counts(client: Any, tenant: str, running: int) -> bool:
    return await client.zcard(f"hedgerow:quota:{{{tenant}}}:leases") == running


async def has_tokens(client: Any, tokens: float) -> bool:
    """Whether the tenant has about so many left; some are refilled with time."""
    level = await client.hget("hedgerow:quota:{acme}", "tokens_level")
    return level is not None and tokens <= float(level) < tokens + 100
