from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.gateway.api.speech_queue import ConversationBytes, Spoken

pytestmark = pytest.mark.paused

KEPT = 128  # bytes that a message costs beside its own


async def putting(spoken: Spoken, *sizes: int) -> list[asyncio.Task[None]]:
    """A task for each message, all of which are in or wait."""
    tasks = [asyncio.create_task(spoken.put(bytes(size))) for size in sizes]
    for _ in range(5):
        await asyncio.sleep(0)
    return tasks


async def done(tasks: list[asyncio.Task[None]]) -> int:
    for _ in range(5):
        await asyncio.sleep(0)
    return sum(task.done() for task in tasks)


async def test_a_conversation_holds_as_many_bytes_as_it_may_and_goes_on_when_they_are_taken():
    spoken = Spoken(1_000, ConversationBytes(10_000))
    tasks = await putting(spoken, 372, 372, 372)
    assert await done(tasks) == 2
    assert await spoken.get() == bytes(372)
    assert await done(tasks) == 3


async def test_a_message_larger_than_that_waits_alone():
    spoken = Spoken(1_000, ConversationBytes(10_000))
    tasks = await putting(spoken, 5_000, 1)
    assert await done(tasks) == 1
    await spoken.get()
    assert await done(tasks) == 2


async def test_messages_without_audio_cost_something_too():
    spoken = Spoken(10 * KEPT, ConversationBytes(10_000))
    tasks = await putting(spoken, *[0] * 100)
    assert await done(tasks) == 10
    for task in tasks:
        task.cancel()


async def test_all_conversations_of_a_tenant_have_their_bytes_together_and_each_goes_on():
    tally = ConversationBytes(1_000)
    one, other = Spoken(1_000, tally), Spoken(1_000, tally)
    first = await putting(one, 872)
    second = await putting(other, 100, 100)  # the first of an empty one always has room
    assert (await done(first), await done(second)) == (1, 1)
    await one.get()
    assert await done(second) == 2


async def test_bytes_of_a_cleared_conversation_are_not_counted():
    tally = ConversationBytes(1_000)
    one, other = Spoken(1_000, tally), Spoken(1_000, tally)
    await putting(one, 500, 100)
    tasks = await putting(other, 10, 300)
    assert await done(tasks) == 1
    one.clear()
    assert await done(tasks) == 2
    other.clear()
    assert tally.waiting == 0


@given(st.lists(st.integers(0, 600), max_size=40))
def test_everything_arrives_in_order_within_the_bounds(sizes):
    async def scenario() -> list[int]:
        tally = ConversationBytes(1_000)
        spoken, arrived, most = Spoken(500, tally), list[int](), 0

        async def put_all() -> None:
            for size in sizes:
                await spoken.put(bytes(size))
            spoken.end()

        task = asyncio.create_task(put_all())
        while (audio := await spoken.get()) is not None:
            arrived.append(len(audio))
            most = max(most, tally.waiting)
        await task
        assert most <= 500 + KEPT + 600
        assert tally.waiting == 0
        return arrived

    assert asyncio.run(scenario()) == sizes
