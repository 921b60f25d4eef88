"""Items that arrive together are handed on together, so that a slow reader costs fewer messages and not more delay."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from typing import TypeVar

from services.llm.answer import Answer
from services.llm.engine import Chunk
from services.runtime.aside import give_way

T = TypeVar("T")
_MOST_WAITING = 1_024  # items that wait for the reader; meanwhile their source is not read on
_AT_ONCE = 16 * 1024  # characters of events that are read before the event loop turns to other work: about 1 ms
_OF_EACH = 64  # characters that a text costs beside its own


async def together(items: AsyncGenerator[T, None]) -> AsyncGenerator[list[T], None]:
    """Batches of the items that have arrived since the last one, `_MOST_WAITING` at most. Raises what `items` raises,
    once the rest is handed on. Closing it closes `items`."""
    waiting: list[T] = []
    arrived, taken = asyncio.Event(), asyncio.Event()

    async def read() -> None:
        async with aclosing(items):  # else it stays open where this task is cancelled between two items
            async for item in items:
                waiting.append(item)
                arrived.set()
                if len(waiting) >= _MOST_WAITING:
                    taken.clear()
                    await taken.wait()

    reading = asyncio.create_task(read())
    reading.add_done_callback(lambda _: arrived.set())
    try:
        while waiting or not reading.done():
            await arrived.wait()
            if waiting:
                batch, waiting[:] = list(waiting), []
                taken.set()
                yield batch
            if not waiting and not reading.done():
                arrived.clear()
        reading.result()
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)


def portions(texts: Sequence[str], most: int) -> Iterator[list[str]]:
    """The texts in batches of about `most` characters: the last text of a batch may exceed it. An empty text counts as
    some characters."""
    portion, characters = list[str](), 0
    for text in texts:
        portion.append(text)
        characters += len(text) + _OF_EACH
        if characters > most:
            yield portion
            portion, characters = [], 0
    if portion:
        yield portion


async def chunks_of(events: AsyncGenerator[str, None], answer: Answer) -> AsyncGenerator[Chunk, None]:
    """The content of the events, until one of them cannot be trusted. Of a flood, one answer at a time
    reads one portion in a turn of the event loop: however many there are, other callers wait for one portion."""
    async with aclosing(together(events)) as batches:
        async for batch in batches:
            for index, portion in enumerate(portions(batch, _AT_ONCE)):
                if index:
                    await give_way()
                if chunk := answer.add(portion):
                    yield chunk
            if answer.broken:
                return
