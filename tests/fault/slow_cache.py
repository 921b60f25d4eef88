"""A simulated CacheService that keeps everything, and stores nothing while it is `frozen`.

In the test's own process, behind the services' real error boundary and on a real port.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from hedgerow.cache.v1 import cache_pb2 as pb
from services.runtime.rpc.boundary import Call
from tests.fault.faulty_llm import serving

_SERVICE = pb.DESCRIPTOR.services_by_name["CacheService"]


class SlowCache:
    """The servicer. Its key of a question is the last message's text."""

    def __init__(self) -> None:
        self.address = ""
        self.answers: dict[str, pb.Answer] = {}
        self.looked_up: list[str] = []
        self._go = asyncio.Event()
        self._go.set()

    def freeze(self) -> None:
        """Stores wait from now on."""
        self._go.clear()

    def thaw(self) -> None:
        self._go.set()

    async def Lookup(self, request: pb.LookupRequest, call: Call) -> pb.LookupResponse:
        key = _key(request.question)
        self.looked_up.append(key)
        if answer := self.answers.get(key):
            return pb.LookupResponse(verdict=pb.VERDICT_EXACT, answer=answer, key=key, ttl_ms=600_000)
        return pb.LookupResponse(verdict=pb.VERDICT_MISS, key=key)

    async def Store(self, request: pb.StoreRequest, call: Call) -> pb.StoreResponse:
        await self._go.wait()
        key = _key(request.question)
        self.answers[key] = request.answer
        return pb.StoreResponse(key=key, ttl_ms=600_000)

    async def WatchInvalidations(
        self, request: pb.WatchInvalidationsRequest, call: Call
    ) -> AsyncIterator[pb.WatchInvalidationsResponse]:
        yield pb.WatchInvalidationsResponse()
        await asyncio.Event().wait()


def _key(question: pb.Question) -> str:
    return f"{question.tenant} {question.messages[-1].content[:40]}"


@asynccontextmanager
async def slow_cache() -> AsyncIterator[SlowCache]:
    """One that serves; its `address` says where."""
    async with serving(_SERVICE, cache := SlowCache()) as address:
        cache.address = address
        yield cache
