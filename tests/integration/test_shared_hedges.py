"""The hedge budget of several gateways, on a real Redis that comes and goes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from services.gateway.policies.hedge import HedgeBudget, HedgePool
from services.runtime.security.secrets import Url
from services.runtime.shared_state import SharedState, connected
from tests.redis import PATIENT_S, RedisProcess
from tests.waiting import until

_WITHIN_S = 20.0


@asynccontextmanager
async def pooling(redis: RedisProcess, *budgets: HedgeBudget) -> AsyncIterator[list[SharedState]]:
    """Each budget as a gateway of its own has it."""
    async with AsyncExitStack() as stack:
        states, tasks = [], []
        for budget in budgets:
            state = await stack.enter_async_context(connected(Url(redis.url), PATIENT_S))
            states.append(state)
            tasks.append(asyncio.create_task(HedgePool(state, budget, every_s=0.02).run()))
        try:
            for state in states:
                await until(lambda state=state: state.up)
            yield states
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)


async def _spent(budget: HedgeBudget) -> bool:
    news = asyncio.Event()
    spent = budget.spend(news)
    budget.dequeue(news)
    return spent


async def test_a_gateway_spends_the_second_calls_that_another_saved(redis: RedisProcess):
    saving, slow = HedgeBudget(0.1, 10), HedgeBudget(0.1, 10)
    async with pooling(redis, saving, slow):
        for _ in range(60):
            saving.count_request()
        for _ in range(5):  # of six: one stays where it was earned
            await until(lambda: _spent(slow))
        async with redis.client() as client:
            assert float(await client.get("hedgerow:hedges")) == pytest.approx(0, abs=1e-6)


async def test_a_waiting_hedge_is_allowed_when_another_gateway_has_saved_budget(redis: RedisProcess):
    saving, slow = HedgeBudget(0.5, 10), HedgeBudget(0.5, 10)
    async with pooling(redis, saving, slow):
        line = [asyncio.Event() for _ in range(3)]
        assert not any(slow.spend(news) for news in line)
        for _ in range(8):
            saving.count_request()
        for news in line:
            await asyncio.wait_for(news.wait(), _WITHIN_S)
            assert slow.spend(news)


async def test_second_calls_of_all_gateways_stay_within_their_share_though_redis_comes_and_goes(redis: RedisProcess):
    budgets = [HedgeBudget(0.2, 5) for _ in range(3)]
    requests = spent = 0
    async with pooling(redis, *budgets):
        for turn in range(300):
            for index, budget in enumerate(budgets):
                if index != turn % 2:
                    budget.count_request()
                    requests += 1
                spent += await _spent(budget)
            await asyncio.sleep(0.001)
            if turn in (100, 200):
                await redis.restart()
    assert 0 < spent <= 0.2 * requests + 1e-6


async def test_a_full_redis_takes_no_budget_and_is_not_lost(redis: RedisProcess):
    budget, losses = HedgeBudget(1, 10), list[None]()
    async with pooling(redis, budget) as (state,), redis.client() as client:
        state.on_loss(lambda: losses.append(None))
        await client.config_set("maxmemory", 1)
        for _ in range(10):
            budget.count_request()
        await until(lambda: _has_refused(client, 3))
        for _ in range(10):  # an exchange has the budget for as long as Redis takes to refuse it
            await until(lambda: _spent(budget))
    assert not losses


async def _has_refused(client: Any, times: int) -> bool:
    """Whether so many exchanges have failed."""
    scripts = (await client.info("commandstats")).get("cmdstat_eval", {})
    return bool(scripts.get("failed_calls", 0) >= times)


async def test_the_pool_holds_no_more_than_the_burst(redis: RedisProcess):
    saving = HedgeBudget(1, 3)
    async with pooling(redis, saving), redis.client() as client:
        for _ in range(10):
            for _ in range(3):
                saving.count_request()
            await until(lambda: saving.missing() == 0 and not saving.draw())
        assert float(await client.get("hedgerow:hedges") or 0) <= 3
