"""Tenants' quotas and the hedge budget of several gateways, on a real Redis that comes and goes."""

from __future__ import annotations

import asyncio
import hashlib
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest

from services.gateway.shared_hedges import HedgePool
from services.gateway.shared_quotas import SharedQuotas
from services.runtime.policy.hedge import HedgeBudget
from services.runtime.policy.quota import Allowance, QuotaExceeded, Reservation
from services.runtime.shared_state import SharedState, connected
from tests.fault.asking import Asked, Asker, Outcome, asking
from tests.fault.mesh import Processes, processes
from tests.redis import RedisProcess, redis_server

_WITHIN_S = 20.0
_SLOW = 0.001  # requests a second: none comes back while a test runs


async def until(condition: Callable[[], Awaitable[Any] | Any], within_s: float = _WITHIN_S) -> None:
    async with asyncio.timeout(within_s):
        while True:
            found = condition()
            if await found if isinstance(found, Awaitable) else found:
                return
            await asyncio.sleep(0.02)


@pytest.fixture
async def redis(tmp_path: Path) -> AsyncIterator[RedisProcess]:
    async with redis_server(tmp_path) as running:
        yield running


@dataclass(frozen=True, slots=True)
class Part:
    """One gateway's part, in this process."""

    state: SharedState
    quotas: SharedQuotas
    running: asyncio.Task[None]

    async def tries(self, allowance: Allowance, tokens: int = 1, tenant: str = "acme") -> Reservation | QuotaExceeded:
        try:
            return await self.quotas.reserve(tenant, allowance, tokens, within_s=5)
        except QuotaExceeded as refused:
            return refused


@asynccontextmanager
async def taking_part(redis: RedisProcess, lease_s: float = 10, timeout_s: float = 2) -> AsyncIterator[Part]:
    async with connected(redis.url, timeout_s) as state:
        quotas = SharedQuotas(state, lease_s)
        running = asyncio.create_task(quotas.run())
        try:
            await until(lambda: state.up)
            yield Part(state, quotas, running)
        finally:
            running.cancel()
            await asyncio.wait({running})


@pytest.fixture
async def parts(redis: RedisProcess) -> AsyncIterator[tuple[Part, Part]]:
    async with taking_part(redis) as first, taking_part(redis) as second:
        yield first, second


def admitted(outcomes: list[Reservation | QuotaExceeded]) -> list[Reservation]:
    return [outcome for outcome in outcomes if isinstance(outcome, Reservation)]


@pytest.mark.parametrize(
    ("allowance", "tokens", "limit", "quota"),
    [
        (Allowance(concurrency=7), 1, 7, "concurrency"),
        (Allowance(requests_per_s=_SLOW, requests_burst=7), 1, 7, "requests"),
        (Allowance(tokens_per_minute=2), 1, 2, "tokens"),
    ],
)
async def test_many_at_once_at_two_gateways_get_what_there_is_and_no_more(
    parts: tuple[Part, Part], allowance: Allowance, tokens: int, limit: int, quota: str
):
    outcomes = await asyncio.gather(*(part.tries(allowance, tokens) for _ in range(40) for part in parts))
    assert len(admitted(outcomes)) == limit
    assert not any(reservation.local for reservation in admitted(outcomes))
    refused = [outcome for outcome in outcomes if isinstance(outcome, QuotaExceeded)]
    assert Counter(each.metadata["quota"] for each in refused) == {quota: 80 - limit}
    assert all(each.retry_delay_s > 0 for each in refused)


async def test_a_place_that_is_settled_is_free_for_the_other_gateway_and_only_once(parts: tuple[Part, Part]):
    one, other = parts
    allowance = Allowance(concurrency=2)
    first, second = admitted([await one.tries(allowance) for _ in range(2)])
    assert isinstance(await other.tries(allowance), QuotaExceeded)
    first.settle(1)
    first.settle(1)
    first.release()
    await until(lambda: _admits(other, allowance))
    assert isinstance(await one.tries(allowance), QuotaExceeded)
    second.settle(1)


async def _admits(part: Part, allowance: Allowance, tokens: int = 1) -> bool:
    return isinstance(await part.tries(allowance, tokens), Reservation)


async def test_what_an_answer_cost_beyond_its_estimate_is_a_debt_at_every_gateway(
    redis: RedisProcess, parts: tuple[Part, Part]
):
    one, other = parts
    allowance = Allowance(tokens_per_minute=60)
    (reservation,) = admitted([await one.tries(allowance, tokens=10)])
    reservation.settle(90)
    await _settled(redis)
    refused = await other.tries(allowance, tokens=1)
    assert isinstance(refused, QuotaExceeded)
    assert 25 < refused.retry_delay_s <= 31
    assert "0 of 60 tokens a minute left, 1 needed" in refused.message


async def test_tokens_that_were_not_needed_are_there_for_every_gateway(redis: RedisProcess, parts: tuple[Part, Part]):
    one, other = parts
    allowance = Allowance(tokens_per_minute=1)  # so slow that none comes by itself
    (reservation,) = admitted([await one.tries(allowance, tokens=1)])
    assert not await _admits(other, allowance)
    reservation.settle(0)
    await _settled(redis)
    assert await _admits(other, allowance)


async def _settled(redis: RedisProcess, tenant: str = "acme", running: int = 0) -> None:
    async with redis.client() as client:
        await until(lambda: _counts(client, tenant, running))


async def _counts(client: Any, tenant: str, running: int) -> bool:
    return await client.zcard(f"hedgerow:quota:{{{tenant}}}:leases") == running


async def test_a_new_allowance_holds_at_all_gateways_and_is_no_gift(parts: tuple[Part, Part]):
    one, other = parts
    few, many = Allowance(requests_per_s=_SLOW, requests_burst=2), Allowance(requests_per_s=_SLOW, requests_burst=50)
    assert len(admitted([await one.tries(few) for _ in range(3)])) == 2
    assert isinstance(await other.tries(many), QuotaExceeded)
    assert isinstance(await other.tries(Allowance(concurrency=3)), Reservation)


async def test_one_tenants_flood_takes_nothing_from_another(parts: tuple[Part, Part]):
    one, other = parts
    allowance = Allowance(requests_per_s=_SLOW, requests_burst=1)
    assert len(admitted([await one.tries(allowance, tenant="flood") for _ in range(5)])) == 1
    assert isinstance(await other.tries(allowance, tenant="calm"), Reservation)


async def test_who_leaves_before_the_verdict_holds_no_place(redis: RedisProcess, parts: tuple[Part, Part]):
    one, other = parts
    allowance = Allowance(concurrency=1)
    leaving = asyncio.create_task(one.tries(allowance))
    await asyncio.sleep(0)  # it has asked
    leaving.cancel()
    await asyncio.wait({leaving})
    await _settled(redis)
    await until(lambda: _admits(other, allowance))


async def test_of_whatever_happens_no_place_is_left_over_and_there_are_never_too_many(
    redis: RedisProcess, parts: tuple[Part, Part]
):
    allowance, running, most, rng = Allowance(concurrency=6), 0, 0, random.Random(7)

    async def come_and_go() -> None:
        nonlocal running, most
        for _ in range(20):
            asking = asyncio.create_task(rng.choice(parts).tries(allowance))
            for _ in range(rng.choice([0, 1, 2, 50])):
                await asyncio.sleep(0)
            if rng.random() < 0.3:
                asking.cancel()
            await asyncio.wait({asking})
            if asking.cancelled() or isinstance(outcome := asking.result(), QuotaExceeded):
                continue
            assert not outcome.local
            running += 1
            most = max(most, running)
            await asyncio.sleep(rng.random() / 100)
            running -= 1
            outcome.settle(1)

    await asyncio.gather(*(come_and_go() for _ in range(30)))
    assert 1 < most <= 6
    await _settled(redis)
    for _ in range(2):
        assert len(admitted([await part.tries(allowance) for part in parts])) == 2


async def test_places_are_held_while_requests_run_and_come_back_when_their_gateway_is_gone(redis: RedisProcess):
    allowance = Allowance(concurrency=1)
    async with taking_part(redis, lease_s=0.6) as doomed, taking_part(redis, lease_s=0.6) as other:
        (reservation,) = admitted([await doomed.tries(allowance)])
        async with redis.client() as client:
            (_, ends), *_ = await client.zrange("hedgerow:quota:{acme}:leases", 0, -1, withscores=True)
            await until(lambda: _now_is_after(client, ends))  # without a renewal it would be over by now
        assert isinstance(await other.tries(allowance), QuotaExceeded)
        doomed.running.cancel()
        await asyncio.wait({doomed.running})  # nothing is renewed any more, as after a kill
        await until(lambda: _admits(other, allowance))
        assert not reservation.local


async def _now_is_after(client: Any, ends: float) -> bool:
    seconds, microseconds = await client.time()
    return seconds + microseconds / 1e6 > ends


async def test_a_gateway_that_stops_gives_back_what_has_ended_before_it_goes(redis: RedisProcess):
    allowance = Allowance(concurrency=1)
    async with taking_part(redis) as leaving, taking_part(redis) as other:
        (reservation,) = admitted([await leaving.tries(allowance)])
        reservation.settle(1)
        leaving.running.cancel()
        await asyncio.wait({leaving.running})
        assert await _admits(other, allowance)


async def test_without_redis_each_gateway_decides_and_knows_what_runs(redis: RedisProcess, parts: tuple[Part, Part]):
    one, _ = parts
    allowance = Allowance(concurrency=2)
    admitted([await one.tries(allowance)])
    await redis.kill()
    (alone,) = admitted([await one.tries(allowance)])
    assert "Redis" in alone.local
    assert isinstance(await one.tries(allowance), QuotaExceeded)


async def test_what_was_admitted_without_redis_counts_everywhere_when_it_is_back(redis: RedisProcess):
    allowance = Allowance(concurrency=2)
    async with taking_part(redis) as one, taking_part(redis) as other:
        before = admitted([await one.tries(allowance)])
        await redis.kill()
        meanwhile = admitted([await one.tries(allowance)])
        await until(lambda: _is_away(other, allowance))
        await redis.start()
        await until(lambda: one.state.up and other.state.up)
        await _settled(redis, running=2)
        assert isinstance(await other.tries(allowance), QuotaExceeded)
        for reservation in (*before, *meanwhile):
            reservation.settle(1)
        await until(lambda: _admits(other, allowance))


async def _is_away(part: Part, allowance: Allowance) -> bool:
    outcome = await part.tries(allowance, tenant="another")
    if isinstance(outcome, Reservation):
        outcome.settle(1)
    return not part.state.up


async def test_a_frozen_redis_is_not_waited_for_longer_than_it_may_take(redis: RedisProcess):
    async with taking_part(redis, timeout_s=0.1) as part:
        redis.stop()
        try:
            outcomes = await asyncio.gather(*(part.tries(Allowance(concurrency=50)) for _ in range(20)))
        finally:
            redis.cont()
        assert len(admitted(outcomes)) == 20
        assert all(reservation.local for reservation in admitted(outcomes))


async def test_a_redis_that_has_forgotten_its_scripts_learns_them_again(redis: RedisProcess, parts: tuple[Part, Part]):
    async with redis.client() as client:
        await client.script_flush()
    one, _ = parts
    await one.tries(Allowance(concurrency=5))
    await until(lambda: one.state.up)
    (reservation,) = admitted([await one.tries(Allowance(concurrency=5))])
    assert not reservation.local


# The hedge budget


@asynccontextmanager
async def pooling(redis: RedisProcess, *budgets: HedgeBudget) -> AsyncIterator[list[SharedState]]:
    """Each budget as a gateway of its own has it."""
    async with AsyncExitStack() as stack:
        states, tasks = [], []
        for budget in budgets:
            state = await stack.enter_async_context(connected(redis.url, 2))
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
    budget.leave(news)
    return spent


async def test_a_gateway_spends_the_second_calls_that_another_saved(redis: RedisProcess):
    saving, slow = HedgeBudget(0.1, 10), HedgeBudget(0.1, 10)
    async with pooling(redis, saving, slow):
        for _ in range(60):
            saving.request()
        for _ in range(5):  # of six: one stays where it was earned
            await until(lambda: _spent(slow))
        async with redis.client() as client:
            assert float(await client.get("hedgerow:hedges")) == pytest.approx(0, abs=1e-6)


async def test_who_waits_in_line_is_called_when_others_have_saved(redis: RedisProcess):
    saving, slow = HedgeBudget(0.5, 10), HedgeBudget(0.5, 10)
    async with pooling(redis, saving, slow):
        line = [asyncio.Event() for _ in range(3)]
        assert not any(slow.spend(news) for news in line)
        for _ in range(8):
            saving.request()
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
                    budget.request()
                    requests += 1
                spent += await _spent(budget)
            await asyncio.sleep(0.001)
            if turn in (100, 200):
                await redis.restart()
    assert 0 < spent <= 0.2 * requests + 1e-6


async def test_the_pool_holds_no_more_than_the_burst(redis: RedisProcess):
    saving = HedgeBudget(1, 3)
    async with pooling(redis, saving), redis.client() as client:
        for _ in range(10):
            for _ in range(3):
                saving.request()
            await until(lambda: saving.missing() == 0 and not saving.draw())
        assert float(await client.get("hedgerow:hedges") or 0) <= 3


# Whole gateways


def _tenant(**limits: object) -> dict[str, Any]:
    return {"acme": {"keys": [hashlib.sha256(b"key").hexdigest()], **limits}}


@pytest.fixture
async def starter(tmp_path: Path) -> AsyncIterator[Processes]:
    async with processes(tmp_path / "logs") as running:
        yield running


async def _two_gateways(starter: Processes, redis: RedisProcess, each_ms: float = 100, **limits: object) -> list[Any]:
    """In front of one simulated model, whose answers have 600 tokens. Whatever is refused is refused by a quota."""
    llm = await starter.start("simulated_llm", tokens=600, each_ms=each_ms)
    settings = {
        "tenants": _tenant(**limits),
        "redis_url": redis.url,
        "redis_timeout_ms": 5_000,
        "quota_lease_ms": 1_000,
        "single_flight": False,
        "limit": {"algorithm": "fixed", "initial": 100},
        "shed": {"score": -10_000},
    }
    return list(await asyncio.gather(*(starter.gateway(llm.spec.address, **settings) for _ in range(2))))


async def _run(caller: Asker, count: int, **fields: Any) -> list[Asked]:
    """Questions whose answers have begun."""
    asked = [caller.start(f"Question {number}?", **fields) for number in range(count)]
    for each in asked:
        await each.first_text()
    return asked


def _refused(outcome: Outcome) -> bool:
    return outcome.code is grpc.StatusCode.RESOURCE_EXHAUSTED


async def _admitted(caller: Asker) -> Outcome:
    """The first answer that is not refused, of those that are asked for one after the other."""
    outcomes = await caller.until(lambda outcome: not _refused(outcome), _WITHIN_S, budget_ms=1_500)
    return outcomes[-1]


async def test_two_gateways_share_a_tenants_places_and_a_killed_one_gives_its_own_back(
    starter: Processes, redis: RedisProcess
):
    first, second = await _two_gateways(starter, redis, concurrency=5)
    async with asking(first.spec.address, "key") as one, asking(second.spec.address, "key") as other:
        on_first, on_second = await _run(one, 3), await _run(other, 2)
        refused = [await one.ask(), await other.ask()]
        assert [outcome.code for outcome in refused] == [grpc.StatusCode.RESOURCE_EXHAUSTED] * 2, refused
        assert "5 of 5 requests at once" in refused[1].details
        on_first.pop().cancel()
        assert not (await _admitted(other)).final.degraded[1:]  # cut at its budget, and nothing else
        first.signal(signal.SIGKILL)
        on_second += [await _run_when_admitted(other) for _ in range(3)]
        assert _refused(await other.ask())
        for each in on_second:
            each.cancel()


async def _run_when_admitted(caller: Asker) -> Asked:
    async with asyncio.timeout(_WITHIN_S):
        while True:
            asked = caller.start()
            with suppress(grpc.aio.AioRpcError):  # refused: there is no place yet
                await asked.first_text()
                return asked


async def test_two_gateways_share_a_tenants_requests(starter: Processes, redis: RedisProcess):
    first, second = await _two_gateways(starter, redis, each_ms=0, requests_per_s=_SLOW, requests_burst=10)
    async with asking(first.spec.address, "key") as one, asking(second.spec.address, "key") as other:
        outcomes = await asyncio.gather(
            *(caller.ask(f"Question {number}?") for number in range(15) for caller in (one, other))
        )
    assert sum(outcome.ok for outcome in outcomes) == 10, outcomes
    assert sum(_refused(outcome) for outcome in outcomes) == 20
    assert [await gateway.stop() for gateway in (first, second)] == [0, 0]


async def test_without_redis_answers_are_marked_and_shared_quotas_return_with_it(
    starter: Processes, redis: RedisProcess
):
    first, second = await _two_gateways(starter, redis, concurrency=3)
    async with asking(first.spec.address, "key") as one, asking(second.spec.address, "key") as other:
        running = await _run(one, 1)
        await redis.kill()
        alone = await one.ask(budget_ms=300)
        assert "quota:local" in alone.final.degraded
        assert alone.decided("quota") == ["local"]
        running += await _run(one, 2)  # the one from before is known
        assert _refused(await one.ask())
        await redis.start()
        await other.until(lambda outcome: _refused(outcome), _WITHIN_S, budget_ms=500)
        running.pop().cancel()
        again = await _admitted(other)
        assert "quota:local" not in again.final.degraded
        for each in running:
            each.cancel()


async def test_a_gateway_makes_second_calls_that_another_has_saved(starter: Processes, redis: RedisProcess):
    quick = await starter.start("simulated_llm")
    slow = [(await starter.start("simulated_llm", first_ms=1_000)).spec.address for _ in range(2)]
    hedge = {"mode": "fixed", "delay_ms": 20, "max_share": 0.05}
    saving = await starter.gateway(quick.spec.address, redis_url=redis.url, hedge=hedge)
    late = await starter.gateway(*slow, redis_url=redis.url, hedge=hedge)
    async with asking(saving.spec.address) as one, asking(late.spec.address) as other, redis.client() as client:
        for number in range(
            80
        ):  # earn four: one stays, one is for the other to have at hand, and the pool has the rest
            await one.ask(f"Question {number}?")
        await until(lambda: _holds(client, "hedgerow:hedges", 1))
        assert "started" in (await other.ask()).decided("hedge")


async def _holds(client: Any, key: str, least: float) -> bool:
    return float(await client.get(key) or 0) >= least
