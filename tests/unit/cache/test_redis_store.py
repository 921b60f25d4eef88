"""Writes to a shared Redis and their order, without a Redis."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from services.cache.keyed_question import KeyedQuestion
from services.cache.redis_entries import RedisEntries, Written
from services.cache.redis_store import RedisStore
from services.cache.tombstones import Removal
from services.runtime.deadline import Deadline
from tests.clock import loop_clock, on_paused_loop
from tests.unit.cache.conftest import identity, memory


class CountingState:
    """Answers at once, and counts the round trips."""

    up = True

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []

    def on_return(self, listener: Callable[[], Awaitable[None]]) -> None:
        pass

    def on_loss(self, listener: Callable[[], None]) -> None:
        pass

    async def ask(self, call: Any) -> list[Any]:
        self.asked.append(call.keywords)
        (items,) = call.keywords.values()
        return [None if "keys" in call.keywords else Written(0, 0) for _ in items]


async def test_a_redis_that_does_not_say_its_limit_has_none() -> None:
    class Silent:
        async def info(self, section: str) -> dict[str, object]:
            return {}

        async def eval(self, *given: object) -> bytes:
            return b"7"

    redis = RedisEntries("engine", 0, lambda: 0)
    assert await redis.begin(Silent()) == 7  # type: ignore[arg-type]
    assert redis.max_bytes == 0


@pytest.mark.parametrize(("answer_bytes", "turns"), [(500_000, range(8, 12)), (1_000, range(2))])
async def test_other_calls_go_on_while_a_page_of_large_entries_is_decrypted(answer_bytes: int, turns: range) -> None:
    row = [b"acme", b"p", b"what", b"x" * answer_bytes, b"9", b"0", b"engine", b"", None, b"1"]

    class OnePage:
        def pipeline(self, transaction: bool) -> OnePage:
            return self

        def hmget(self, name: str, fields: object) -> None:
            pass

        async def execute(self, raise_on_error: bool) -> list[list[bytes | None]]:
            return [row] * 32

    went_on = 0

    async def other() -> None:
        nonlocal went_on
        while True:
            await asyncio.sleep(0)
            went_on += 1

    beside = asyncio.create_task(other())
    page = await RedisEntries("engine", 0, lambda: 0).read(OnePage(), [f"{key}" for key in range(32)])  # type: ignore[arg-type]
    beside.cancel()
    assert len([each for each in page if each]) == 32
    assert went_on in turns


def test_the_first_read_of_redis_goes_at_once_and_later_ones_together() -> None:
    async def main() -> None:
        held, state, began = memory(), CountingState(), loop_clock()
        store = RedisStore(state, held, "engine", 0, lambda: 0)  # type: ignore[arg-type]
        await store._fetched(identity("a"), Deadline.never())
        await store._writes.submit(Removal(key="a"))
        assert state.asked == [{"keys": [identity("a").key]}, {"changes": [Removal(key="a")]}]
        await asyncio.gather(*(store._fetched(identity(f"{each}"), Deadline.never()) for each in range(40)))
        assert [len(asked["keys"]) for asked in state.asked[2:]] == [32, 8]
        assert loop_clock() == began
        await store.close()
        held.close()

    on_paused_loop(main())


@pytest.mark.parametrize("call", ["fetch", "remove"])
def test_a_tenants_call_waits_for_one_round_trip_of_anothers_flood(call: str) -> None:
    async def main() -> None:
        held, state = memory(), CountingState()
        held.overflowed = True
        store = RedisStore(state, held, "engine", 0, lambda: 0)  # type: ignore[arg-type]

        async def ask(question: KeyedQuestion) -> None:
            if call == "fetch":
                await store.fetch(question, Deadline.never())
            else:
                await store.remove(Removal(question.key, question.tenant))

        mine = identity("mine", tenant="globex")
        await asyncio.gather(*(ask(identity(f"{each}")) for each in range(100)), ask(mine))
        with_mine = [mine.key in str(asked) for asked in state.asked]
        assert with_mine == [False, True, False, False]
        await store.close()
        held.close()

    on_paused_loop(main())
