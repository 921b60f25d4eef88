"""Items that arrive together are passed on together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from services.llm.providers.coalescing import together

pytestmark = pytest.mark.paused


async def numbers(*groups: list[int], pause: asyncio.Event) -> AsyncIterator[int]:
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


async def test_what_came_before_an_error_is_handed_on_first() -> None:
    async def broken() -> AsyncIterator[int]:
        yield 1
        raise ValueError("broken")

    batches = together(broken())
    assert await anext(batches) == [1]
    with pytest.raises(ValueError, match="broken"):
        await anext(batches)


async def test_closing_it_closes_the_source() -> None:
    closed = asyncio.Event()

    async def endless() -> AsyncIterator[int]:
        try:
            while True:
                yield 1
                await asyncio.sleep(3600)
        finally:
            closed.set()

    batches = together(endless())
    await anext(batches)
    await batches.aclose()
    assert closed.is_set()
