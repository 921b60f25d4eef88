"""A request that a provider refuses for a part that it can do without is repeated once, without that part."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from services.llm.engine import Chunk, Original, Request
from services.llm.errors import RequestRefused
from services.runtime.aside import aside, size_in
from services.runtime.deadline import Deadline
from services.runtime.strict_json import compact

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


async def with_body(request: Request, own: Original, change: Callable[[dict[str, Any]], Mapping[str, Any]]) -> Request:
    """The request with the original body that `change` makes of the JSON of its `own`."""

    def changed() -> bytes:
        return compact(change(json.loads(own.body)))

    return replace(request, original=replace(own, body=await aside(request.tenant, size_in(own.body), changed)))


def is_one_of(refused: RequestRefused, known: Iterable[Iterable[str]]) -> bool:
    """Whether a refusal has all words of one of the `known` ones."""
    said = refused.message.lower()
    return any(all(word in said for word in words) for words in known)
