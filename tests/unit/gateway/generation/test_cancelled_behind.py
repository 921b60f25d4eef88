"""Batches, and stores behind an answer: a cancelled one, at whichever await, keeps no turn and loses no other
answer."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from typing import Any

import pytest

from hedgerow.cache.v1 import cache_pb2
from hedgerow.chat.v1 import chat_pb2
from services.gateway.answer.stages.cache.write_behind import WriteBehind
from services.gateway.output_validation.forms import Checked, Forms
from services.gateway.output_validation.mismatch import Unchecked
from services.gateway.policies.batch_admission import BatchAdmission
from services.runtime.deadline import Deadline
from services.runtime.errors import Unavailable
from tests.cancelling import Work, cancelled_at_every_await
from tests.clock import loop_clock
from tests.unit.gateway.answer.stages.cache.test_write_behind import Scene as Behind
from tests.unit.gateway.api.test_batch import Scene as Batch
from tests.unit.gateway.api.test_batch import item


@pytest.mark.parametrize("placed", [False, True])
@cancelled_at_every_await(awaits=3)
async def test_a_cancelled_batch_leaves_nothing_behind(placed: bool) -> Work:
    batch = Batch(placed)

    async def work() -> None:
        async with aclosing(batch.batch.results([item(attempt=int(number == 1)) for number in range(6)])) as results:
            async for _ in results:
                pass

    yield work()
    assert (batch.running, batch.batch._pace._free._value) == (0, 4)
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.parametrize("within_s", [60.0, 1.0, 0.5])
@cancelled_at_every_await()
async def test_a_cancelled_wait_for_a_turn_of_a_batch_leaves_nothing_behind(within_s: float) -> Work:
    pace = BatchAdmission(1)
    other = await pace.turn(Deadline.never(loop_clock))
    asyncio.get_running_loop().call_later(1.0, other.end)

    async def work() -> None:
        try:
            turn = await pace.turn(Deadline.after(within_s, loop_clock))
        except TimeoutError:
            raise Unavailable("late") from None
        try:
            await asyncio.sleep(1)
        finally:
            turn.end()

    yield work()
    other.end()
    assert pace._free._value == 1


class SlowCache:
    """Takes 10 ms for each, and one storer at a time gets through."""

    def __init__(self) -> None:
        self.stored: list[str] = []

    async def store(self, request: cache_pb2.StoreRequest, timeout_s: float) -> cache_pb2.StoreResponse:
        await asyncio.sleep(0.01)
        if request.question.model_class == "broken":
            raise Unavailable("gone")
        self.stored.append(request.question.model_class)
        await asyncio.sleep(0.01)
        return cache_pb2.StoreResponse(key="key", ttl_ms=60_000)


@cancelled_at_every_await()
async def test_a_cancelled_writer_to_the_cache_loses_one_store_alone() -> Work:
    """Cancelling the writer loses only the store under way; it continues where it is started again."""
    names = [*(f"q{number}" for number in range(12)), "broken"]
    behind, cache = Behind(), SlowCache()
    writing = WriteBehind(cache, None, behind.near)
    behind.write_behind = writing
    for name in names:
        behind.store(name)

    async def work() -> None:
        try:
            async with asyncio.timeout(1):
                await writing._keep_storing(cache)
        except TimeoutError:
            raise Unavailable("all is stored") from None

    yield work()
    assert writing._stored_now == {}
    assert all(writing._waiting.get(place) for place in writing._queue)
    left = {question.decode() for _, question in writing._queue}
    assert left.isdisjoint(cache.stored)
    again = asyncio.create_task(writing.run())
    await writing.settle(60)
    assert left <= {*cache.stored, "broken"}
    assert writing._idle.is_set()
    assert (writing._waiting.bytes, len(writing._queue)) == (0, 0)
    again.cancel()
    await asyncio.wait({again})


@pytest.mark.parametrize("within_s", [60.0, 0.1, 0.05])
@pytest.mark.parametrize("found", [None, Unchecked("too much")])
@cancelled_at_every_await()
async def test_a_cancelled_check_of_a_format_leaves_nothing_behind(found: Unchecked | None, within_s: float) -> Work:
    def beside(*_: Any) -> asyncio.Future[Checked]:
        done: asyncio.Future[Checked] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(0.1, done.set_result, Checked(found, 0.1))
        return done

    forms = Forms(beside=beside)
    wanted = chat_pb2.ResponseFormat(json_object=True)
    other = asyncio.create_task(forms.mismatch("other", 1, wanted, "{}", 60))

    async def work() -> None:
        with suppress(Unchecked):
            await forms.mismatch("acme", 1, wanted, "{}", within_s)

    yield work()
    await asyncio.sleep(1)
    await asyncio.gather(other, return_exceptions=True)
    assert (forms._slots._running, len(forms._slots.waiting)) == (0, 0)
