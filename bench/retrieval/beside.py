"""What an ingest costs those who look answers up: lookups of new questions, alone and beside it, in turns."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

from bench.retrieval.questions import pages, questions
from bench.stats import percentiles
from hedgerow import AsyncCollectionClient
from hedgerow.cache.v1 import cache_pb2, cache_pb2_grpc
from hedgerow.channel import open_channel
from hedgerow.chat.v1 import chat_pb2

ROUNDS, LOOKUPS = 15, 100  # lookups of each kind in each round
_STORED = 20


async def measure(address: str, client: AsyncCollectionClient, progress: Callable[[str], None]) -> dict[str, object]:
    """Milliseconds of a lookup, alone and beside an ingest. About a minute."""
    async with open_channel(address) as channel:
        cache: Any = cache_pb2_grpc.CacheServiceStub(channel)  # type: ignore[no-untyped-call]
        numbers = count()
        for _ in range(_STORED):
            answer = cache_pb2.Answer(text="So it is.", finish_reason=chat_pb2.FINISH_REASON_STOP)
            await cache.Store(cache_pb2.StoreRequest(question=_question(next(numbers)), answer=answer))
        times: dict[str, list[float]] = {"alone": [], "beside": []}
        ingested = 0
        await _look_up(cache, numbers)
        for number in range(ROUNDS):
            times["alone"] += await _look_up(cache, numbers)
            async with _ingesting(client) as snippets:
                times["beside"] += await _look_up(cache, numbers)
            ingested += sum(snippets)
            progress(f"retrieval: lookups beside an ingest, round {number + 1} of {ROUNDS}")
    return {**_result(times), "lookups": ROUNDS * LOOKUPS, "snippets_beside": ingested}


def _result(times: Mapping[str, list[float]]) -> dict[str, object]:
    return {f"{name}_ms": percentiles(values) for name, values in times.items()}


@asynccontextmanager
async def _ingesting(client: AsyncCollectionClient) -> AsyncIterator[list[int]]:
    """Documents are put all the time, in a collection that nobody has: how many snippets each had."""
    snippets: list[int] = []

    async def put() -> None:
        for source, text in pages().items():
            snippets.append((await client.put("beside", source, text)).snippets)

    putting = asyncio.create_task(put())
    try:
        while not snippets and not putting.done():  # the first one is in
            await asyncio.sleep(0.01)
        yield snippets
    finally:
        putting.cancel()
        await asyncio.wait([putting])
        await client.drop("beside")


async def _look_up(cache: Any, numbers: count[int]) -> list[float]:
    times = []
    for _ in range(LOOKUPS):
        request = cache_pb2.LookupRequest(question=_question(next(numbers)), min_similarity=1 - 1e-6)
        started = time.perf_counter()
        await cache.Lookup(request)
        times.append((time.perf_counter() - started) * 1000)
    return times


def _question(number: int) -> cache_pb2.Question:
    """One that was never asked."""
    asked = questions()[number % len(questions())].text
    message = chat_pb2.Message(role=chat_pb2.ROLE_USER, content=f"{asked} ({number})")
    return cache_pb2.Question(tenant="local", model_class="fast", messages=[message])
