"""Quotas on a Redis that goes away before or after it has done what it is asked, and comes back: nothing stays held."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from services.gateway.admission.quota import REQUEST, Allowance, QuotaExceeded, Reservation
from services.gateway.admission.shared_quotas import SharedQuotas
from tests.cancelling import settled
from tests.clock import PausedLoop, loop_clock
from tests.examples import examples
from tests.unit.gateway.admission.scripted_redis import REDIS_S, FlakyState, ScriptedRedis

SEEDED = settings(max_examples=examples(60), stateful_step_count=25, derandomize=True, deadline=None, database=None)
LEASE_S = 10.0


class SharedQuotasMachine(RuleBasedStateMachine):
    """One tenant, with one slot."""

    ALLOWANCE = Allowance(concurrency=1, tokens_per_minute=6_000)

    def __init__(self) -> None:
        super().__init__()
        self.loop = PausedLoop()
        asyncio.set_event_loop(self.loop)
        self.redis = ScriptedRedis()
        self.state = FlakyState(self.redis)
        self.running = list[Reservation]()
        self.asking = list[asyncio.Task[Reservation]]()
        self.away = False  # whether Redis has ever been
        self.cost = 0  # of all that has ended
        self.do(self.begin())

    async def begin(self) -> None:
        self.quotas = SharedQuotas(self.state, LEASE_S, clock=self.loop.time)
        self.carrying = asyncio.create_task(self.quotas.run())

    def do(self, work: Awaitable[None]) -> None:
        async def and_settle() -> None:
            await work
            await settled()

        self.loop.run_until_complete(and_settle())
        for task in [task for task in self.asking if task.done()]:
            self.asking.remove(task)
            if not task.cancelled() and not isinstance(task.exception(), QuotaExceeded):
                self.running.append(task.result())

    async def expire(self) -> None:
        self.redis.expire()

    @rule(tokens=st.integers(0, 500), within=st.sampled_from([0.5, 5]))
    def asks(self, tokens: int, within: float):
        """`within`: less time than Redis takes, or more."""

        async def ask() -> None:
            asked = self.quotas.reserve("acme", self.ALLOWANCE, tokens, within * REDIS_S, REQUEST)
            self.asking.append(asyncio.create_task(asked))

        self.do(ask())

    @rule(seconds=st.sampled_from([0.0, REDIS_S, 6 * REDIS_S, 3.0, 2 * LEASE_S]))
    def time_passes(self, seconds: float):
        self.do(asyncio.sleep(seconds))

    @precondition(lambda self: self.asking)
    @rule(data=st.data())
    def leaves(self, data: st.DataObject):
        self.asking[data.draw(st.integers(0, len(self.asking) - 1))].cancel()
        self.do(asyncio.sleep(0))

    @precondition(lambda self: self.running)
    @rule(data=st.data(), cost=st.integers(0, 900))
    def ends(self, data: st.DataObject, cost: int):
        self.running.pop(data.draw(st.integers(0, len(self.running) - 1))).settle(cost)
        self.cost += cost
        self.do(asyncio.sleep(0))

    @rule(when=st.sampled_from(["before", "after"]))
    def the_next_pipeline_is_lost(self, when: str):
        self.state.loses, self.away = when, True

    @precondition(lambda self: not self.state.up)
    @rule()
    def redis_comes_back(self):
        self.do(self.state.come_back())

    @invariant()
    def what_runs_counts_here(self):
        account = self.quotas.local._accounts.get("acme")
        assert (account.in_flight if account else 0) == len(self.running) == len(self.quotas._running)

    @invariant()
    def while_redis_is_there_it_decides(self):
        assert self.away or len([each for each in self.running if not each.local_reason]) <= 1

    def teardown(self) -> None:
        self.state.loses = ""
        self.do(self.state.come_back())
        self.do(asyncio.sleep(1))
        for reservation in self.running:
            reservation.settle(0)
        self.running.clear()
        self.do(asyncio.sleep(1))
        assert not self.asking
        self.do(self.expire())
        assert (self.redis.leases, self.quotas._running, self.quotas._ends) == ({}, {}, {})
        assert self.away or self.redis.spent == self.cost
        self.carrying.cancel()
        self.do(asyncio.wait({self.carrying}))
        assert not asyncio.all_tasks(self.loop)
        asyncio.set_event_loop(None)
        self.loop.close()


SharedQuotasMachine.TestCase.settings = SEEDED
TestSharedQuotas = SharedQuotasMachine.TestCase


@pytest.mark.paused
async def test_a_slot_is_held_for_as_long_as_its_request_runs() -> None:
    redis = ScriptedRedis()
    quotas = SharedQuotas(FlakyState(redis), LEASE_S, clock=loop_clock)  # type: ignore[arg-type]
    carrying = asyncio.create_task(quotas.run())
    reservation = await quotas.reserve("acme", Allowance(concurrency=1), 1, within_s=1)
    for _ in range(5):
        await asyncio.sleep(LEASE_S)
        redis.expire()
        assert redis.leases
    reservation.settle(1)
    await asyncio.sleep(1)
    assert not redis.leases
    carrying.cancel()
    await asyncio.wait({carrying})
