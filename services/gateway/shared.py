"""What gateways share on Redis: the quotas of tenants and the budget of second calls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from services.gateway.admission.shared_quotas import SharedQuotas
from services.gateway.config import GatewaySettings
from services.gateway.policies.hedge import HedgeBudget, HedgePool
from services.runtime.shared_state import connected


@asynccontextmanager
async def sharing(settings: GatewaySettings, hedges: HedgeBudget) -> AsyncIterator[SharedQuotas | None]:
    """Yields the quotas of all gateways together, and makes `hedges` a part of their budget; without a `redis_url`,
    None. The gateway does not wait for a Redis that does not answer at once."""
    if not settings.redis_url:
        yield None
        return
    async with connected(settings.redis_url, settings.redis_timeout_ms / 1000) as state:
        quotas = SharedQuotas(state, settings.quota_lease_ms / 1000, settings.shed.retry_after_ms / 1000)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(quotas.run()), group.create_task(HedgePool(state, hedges).run())]
            await state.tried()  # or the first answers would be marked for nothing
            yield quotas
            for task in tasks:
                task.cancel()
