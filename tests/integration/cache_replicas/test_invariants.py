"""What holds of replicas whatever happens in whichever order: steps that hypothesis finds, on a real Redis."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from services.cache.errors import Conflict, NotRemoved
from services.cache.keyed_question import KeyedQuestion
from services.cache.redis_scripts import CHANGES
from services.cache.tombstones import Removal
from tests.integration.cache_replicas.replicas import Replica, kept, replica, up_to_date
from tests.redis import RedisProcess
from tests.unit.cache.conftest import identity
from tests.waiting import until

_REPLICAS = 2
_QUESTIONS = [identity(f"what is {number}", tenant=tenant) for number in range(2) for tenant in ("acme", "globex")]
_STEPS = (
    "begin",
    "store",
    "store",
    "remove",
    "remove tenant",
    "look up",
    "look up",
    "cut off",
    "cut the stream",
    "back",
)
_CLOCKS = (*_STEPS, *["store"] * 2, *["clock jumps"] * 4)
_JUMPS_MS = (0, 7_200_000, -7_200_000, 50)
Step = tuple[str, int, int]  # what, by which replica, about which question


@dataclass
class History:
    """The steps so far, and what follows from them."""

    redis: RedisProcess
    replicas: list[Replica]
    ahead_ms: list[int]  # by which each replica's clock is wrong
    epochs: dict[int, int] = field(default_factory=dict)  # by when an answer was begun
    begun: dict[bytes, int] = field(default_factory=dict)  # answers by when they were begun
    removed: list[tuple[int, int, Removal]] = field(default_factory=list)  # when, under which sequence number, what
    now: int = 0

    async def do(self, step: Step) -> None:
        what, number, about = step
        one, question = self.replicas[number % _REPLICAS], _QUESTIONS[about]
        self.now += 1
        match what:
            case "begin":
                self.epochs[self.now] = one.answers.epoch
            case "store":
                await self.store(one, question)
            case "remove":
                await self.remove(one, Removal(key=question.key))
            case "remove tenant":
                await self.remove(one, Removal(tenant=question.tenant))
            case "look up":
                await self.look_up(one, question)
            case "cut off":
                one.state.lose("the test says so")
            case "cut the stream":
                async with self.redis.client() as client:
                    await client.xtrim(CHANGES, maxlen=0, approximate=False)
            case "clock jumps":
                self.ahead_ms[number % _REPLICAS] = _JUMPS_MS[about]
                one.answers.sweep()
            case "back":
                await until(lambda: one.state.up)

    async def store(self, one: Replica, question: KeyedQuestion) -> None:
        """An answer that was begun at the first `begin` that was not used, or just now."""
        began = next(iter(self.epochs), self.now)
        answer = b"%d" % self.now
        self.begun[answer] = began
        with suppress(Conflict):
            await one.keep(question, answer, epoch=self.epochs.pop(began, 0))

    async def remove(self, one: Replica, removal: Removal) -> None:
        with suppress(NotRemoved):  # it may be done or not
            await one.answers.remove(removal)
            self.removed.append((self.now, one.store.sequence, removal))

    async def look_up(self, one: Replica, question: KeyedQuestion) -> None:
        found = await one.look_up(question)
        if found.entry and not found.local:
            assert not self.gone(question, found.entry.answer, one.store.sequence)

    def gone(self, question: KeyedQuestion, answer: bytes, sequence: int) -> bool:
        """Whether a replica with the changes up to `sequence` knows that an answer was removed after it was begun."""
        return any(
            self.begun[answer] < when and at <= sequence and removal.covers(question.key, question.tenant)
            for when, at, removal in self.removed
        )


async def _live_through(redis: RedisProcess, steps: list[Step]) -> None:
    async with redis.client() as client:
        await client.flushall()
    async with AsyncExitStack() as stack:
        ahead_ms = [0] * _REPLICAS
        replicas = [
            await stack.enter_async_context(replica(redis.url, ahead_ms=partial(ahead_ms.__getitem__, number)))
            for number in range(_REPLICAS)
        ]
        history = History(redis, replicas, ahead_ms)
        for step in steps:
            await history.do(step)
        ahead_ms[:] = [0] * _REPLICAS  # every clock is right in the end
        await up_to_date(*replicas)
        left = await kept(redis)
        for one in replicas:
            one.answers.sweep()  # as every second
            if "clock jumps" in {what for what, _, _ in steps}:
                await until(lambda one=one: one.holds() == left or one.memory.overflowed)
                assert one.holds().items() <= left.items(), "replicas hold entries that Redis does not have"
            else:
                assert one.holds() == left, "replicas converge"
            for question in _QUESTIONS:
                await history.look_up(one, question)
                if question.key in left:
                    assert (await one.look_up(question)).entry, "an entry of Redis is not found"


@pytest.mark.parametrize(
    ("kinds", "least", "search"),
    [
        (_STEPS, 5, {"max_examples": 40}),
        (_CLOCKS, 10, {"max_examples": 20, "derandomize": True, "phases": [Phase.generate]}),
    ],
    ids=["right clocks", "jumping clocks"],
)
async def test_no_removed_entry_is_served_as_shared_all_others_are_found_and_replicas_converge(
    redis: RedisProcess, kinds: Sequence[str], least: int, search: dict[str, Any]
) -> None:
    step = st.tuples(st.sampled_from(kinds), st.integers(0, _REPLICAS - 1), st.integers(0, len(_QUESTIONS) - 1))

    @settings(deadline=None, database=None, suppress_health_check=list(HealthCheck), **search)
    @given(st.lists(step, min_size=least, max_size=30))
    def holds(steps: list[Step]) -> None:
        asyncio.run(_live_through(redis, steps))

    await asyncio.to_thread(holds)
