"""Items that arrive together are passed on together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping
from typing import Any

import pytest

from services.llm.answer import Answer, More
from services.llm.providers.coalescing import chunks_of, portions, together

pytestmark = pytest.mark.paused


async def numbers(*groups: list[int], pause: asyncio.Event) -> AsyncGenerator[int, None]:
    for group in groups:
        for number in group:
            yield number
        await pause.wait()
        pause.clear()


async def test_items_that_arrive_without_a_pause_make_one_batch() -> None:
    pause = asyncio.Event()
    batches = together(numbers([1, 2, 3], [4], pause=pause))
    assert await anext(batches) == [1, 2, 3]
    pause.set()
    assert await anext(batches) == [4]
    pause.set()
    assert [batch async for batch in batches] == []


async def test_items_before_an_error_are_passed_on_first() -> None:
    async def broken() -> AsyncGenerator[int, None]:
        yield 1
        raise ValueError("broken")

    batches = together(broken())
    assert await anext(batches) == [1]
    with pytest.raises(ValueError, match="broken"):
        await anext(batches)


@pytest.mark.parametrize("pause_s", [3600.0, 0.0], ids=["the source waits", "1,024 items wait"])
async def test_closing_it_closes_the_source(pause_s: float) -> None:
    closed = asyncio.Event()

    async def endless() -> AsyncGenerator[int, None]:
        try:
            while True:
                yield 1
                await asyncio.sleep(pause_s)
        finally:
            closed.set()

    batches = together(endless())
    await anext(batches)
    for _ in range(5_000):
        await asyncio.sleep(0)
    await batches.aclose()
    assert closed.is_set()


async def test_a_source_is_not_read_on_while_many_items_wait() -> None:
    read = list[int]()

    async def flood() -> AsyncGenerator[int, None]:
        for number in range(5_000):
            read.append(number)
            yield number

    batches = together(flood())
    assert await anext(batches) == [*range(1_024)]
    for _ in range(100):
        await asyncio.sleep(0)
    assert len(read) <= 2 * 1_024
    assert [number async for batch in batches for number in batch] == [*range(1_024, 5_000)]


def test_empty_texts_make_portions_too() -> None:
    assert max(map(len, portions([""] * 1_000, 640))) == 11


async def test_floods_of_events_are_read_in_one_portion_for_each_turn_of_the_event_loop() -> None:
    """However many answers arrive faster than they are read, other work has its turn after about one portion."""
    lengths = list[int]()  # events read since other work had its turn

    class Counting(Answer):
        def is_last(self, event: str) -> bool:
            return False

        def split(self, body: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
            yield body

        def read(self, event: str, more: More) -> None:
            lengths[-1] += 1
            more.text.append(event)

    async def flood() -> AsyncGenerator[str]:
        for _ in range(3_000):
            yield "x" * 1_000

    async def answer() -> int:
        return sum([chunk.tokens async for chunk in chunks_of(flood(), Counting())])

    async def other_work() -> None:
        while True:
            lengths.append(0)
            await asyncio.sleep(0)

    working = asyncio.create_task(other_work())
    await asyncio.sleep(0)
    assert await asyncio.gather(*(answer() for _ in range(20))) == [3_000] * 20
    working.cancel()
    portion = 16
    begun = 20 * portion  # each answer's first portion is read as soon as it comes
    assert sum(length > 4 * portion for length in lengths) <= 3 * 20
    assert max(lengths) <= begun
