"""A request that a provider refuses for a part that it can do without is repeated once, without that part."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import aclosing

from services.llm.engine import Chunk, Request
from services.llm.errors import RequestRefused
from services.runtime.deadline import Deadline

Generate = Callable[[Request, Deadline], AsyncGenerator[Chunk, None]]
Repair = Callable[[RequestRefused], Awaitable[Request | None]]


async def repeated(
    generate: Generate, request: Request, deadline: Deadline, repair: Repair
) -> AsyncGenerator[Chunk, None]:
    """The answer to a request, or to the one that `repair` makes of a refused one; None where it makes none."""
    try:
        async with aclosing(generate(request, deadline)) as chunks:
            async for chunk in chunks:
                yield chunk
        return
    except RequestRefused as refused:
        repaired = await repair(refused)
        if repaired is None:
            raise
    async with aclosing(generate(repaired, deadline)) as chunks:
        async for chunk in chunks:
            yield chunk


def is_one_of(refused: RequestRefused, known: Iterable[Iterable[str]]) -> bool:
    """Whether a refusal has all words of one of the `known` ones."""
    said = refused.message.lower()
    return any(all(word in said for word in words) for words in known)
