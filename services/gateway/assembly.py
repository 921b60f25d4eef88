"""Makes the parts of a gateway from its settings. `__main__` runs them and serves with them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import grpc

from services.gateway.admission.shared_quotas import SharedQuotas
from services.gateway.answer.backends import Backends, Fallbacks, Prompts
from services.gateway.answer.stages.cache.l1 import L1Cache
from services.gateway.answer.stages.cache.verification import CacheVerification
from services.gateway.answer.stages.cache.write_behind import WriteBehind
from services.gateway.answer.summaries import Summaries
from services.gateway.config import GatewaySettings
from services.gateway.generation.shared import Shared
from services.gateway.generation.stack import make_stack
from services.gateway.http.stored_responses.memory import BYTES, MemoryResponses
from services.gateway.http.stored_responses.redis_store import RedisResponses
from services.gateway.http.stored_responses.store import ResponseStore
from services.gateway.output_validation.forms import Forms
from services.gateway.policies.hedge import HedgeBudget, HedgePool
from services.gateway.policies.work_shares import WorkShares
from services.gateway.tools.toolbox import make_toolbox
from services.gateway.upstream.assignment import SCHEME
from services.gateway.upstream.cache import Cache
from services.gateway.upstream.fleet import make_fleet
from services.gateway.upstream.llm import Llm
from services.gateway.upstream.replica import stage_breaker
from services.gateway.upstream.router import Router, Routes
from services.runtime.shared_state import SharedState, connected


def make_backends(
    settings: GatewaySettings,
    channels: Mapping[str, grpc.aio.Channel],
    router: Router | None,
    work: WorkShares,
    stack: AsyncExitStack,
) -> Backends:
    """The backends of answers, reached by `channels`. Background work ends when `stack` is left."""
    llms = {
        name: [] if is_listed(addresses) else [(address, Llm(channels[address], name)) for address in addresses]
        for name, addresses in settings.llm_addresses.items()
    }
    fleet = make_fleet(settings, llms, work)
    cache = Cache(channels[settings.cache_address]) if settings.cache_address else None
    l1 = L1Cache(settings.l1_cache_entries, settings.l1_cache_ttl_ms / 1000, settings.l1_cache_bytes)
    names, never = settings.llm_addresses.keys(), settings.serves.keys()
    routes = Routes(names, expected=router is not None, on_row=fleet.expect, never=never)
    write_behind = WriteBehind(cache, router, l1, settings.write_behind_bytes)
    models = make_stack(fleet, write_behind.observe)
    return Backends(
        cache=cache,
        cache_breaker=stage_breaker(settings, "cache"),
        fleet=fleet,
        routes=routes,
        l1=l1,
        write_behind=write_behind,
        models=models,
        fallbacks=Fallbacks(settings.fallbacks, settings.template),
        prompts=_prompts(settings, models, routes, stack),
        cascade=settings.cascade,
        tools=make_toolbox(settings, fleet.retry, channels.__getitem__),
        verification=_judging(settings, models, routes, cache, stack),
        forms=Forms(settings.response_format.check_ms),
    )


def is_listed(addresses: Sequence[str]) -> bool:
    """Whether the control plane lists the replicas."""
    return addresses[0].startswith(SCHEME)


@dataclass(frozen=True, slots=True)
class OnRedis:
    """The state that all gateways share. `responses`: a connection for stored responses alone, because megabytes on
    that of the quotas would have these take Redis for lost; None where none are stored."""

    quotas: SharedQuotas
    responses: SharedState | None


@asynccontextmanager
async def sharing(settings: GatewaySettings, hedges: HedgeBudget) -> AsyncIterator[OnRedis | None]:
    """Yields the state that all gateways share, and makes `hedges` a part of their budget; without a `redis_url`, None.
    The gateway does not wait for a Redis that does not answer at once."""
    if not settings.redis_url:
        yield None
        return
    url, timeout_s = settings.redis_url, settings.redis_timeout_ms / 1000
    async with connected(url, timeout_s) as state, AsyncExitStack() as stack:
        responses = None
        if settings.responses.ttl_ms:
            without = "responses are neither stored nor found"
            responses = await stack.enter_async_context(connected(url, timeout_s, without))
        quotas = SharedQuotas(state, settings.quota_lease_ms / 1000, settings.shed.retry_after_ms / 1000)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(quotas.run()), group.create_task(HedgePool(state, hedges).run())]
            await state.tried()  # or the first answers would be marked for nothing
            if responses:
                await responses.tried()
            yield OnRedis(quotas, responses)
            for task in tasks:
                task.cancel()


def response_store(settings: GatewaySettings, shared: OnRedis | None) -> ResponseStore | None:
    """The store of responses; None if they are not stored."""
    stored = settings.responses
    if not stored.ttl_ms:
        return None
    if shared and shared.responses:
        return RedisResponses(shared.responses, stored.ttl_ms, stored.tenant_bytes)
    memory = MemoryResponses(stored.ttl_ms / 1000, stored.tenant_bytes, stored.memory_bytes)
    BYTES.set_function(lambda: memory.total_bytes)
    return memory


def _prompts(settings: GatewaySettings, models: Shared, routes: Routes, stack: AsyncExitStack) -> Prompts:
    """The system prompts, and the summaries of conversations, which close with `stack`."""
    if not settings.prompt.summary_model:
        return Prompts(settings.system_prompts)
    summaries = Summaries(settings.prompt, models, routes)
    stack.push_async_callback(summaries.close)
    return Prompts(settings.system_prompts, summaries)


def _judging(
    settings: GatewaySettings, models: Shared, routes: Routes, cache: Cache | None, stack: AsyncExitStack
) -> CacheVerification | None:
    """The judge of the stored answers that a cache draws; it closes with `stack`."""
    if cache is None or not settings.judge.at_once:
        return None
    judging = CacheVerification(settings.judge, models, routes, cache)
    stack.push_async_callback(judging.close)
    return judging
