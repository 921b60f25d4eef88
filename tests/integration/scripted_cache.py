"""A scripted cache service: it knows no answer, and every text is alike to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from hedgerow.cache.v1 import cache_pb2 as pb
from hedgerow.cache.v1 import cache_pb2_grpc
from tests.integration.scripted import Hold, Scripted, serving

VECTOR = (0.5, 0.25, 0.0)


class ScriptedCache(Scripted, cache_pb2_grpc.CacheServiceServicer):
    """Every text's vector is the same. With `hold`, the reply waits until that is released."""

    hold: Hold | None = None

    async def Embed(self, request: pb.EmbedRequest, context: Any) -> pb.EmbedResponse:
        vectors = [pb.Embedding(values=VECTOR) for _ in request.texts]
        self.script = [*([self.hold] if self.hold else []), pb.EmbedResponse(model="scripted", embeddings=vectors)]
        return await self.reply(request, context)  # type: ignore[no-any-return]

    async def Lookup(self, request: pb.LookupRequest, context: Any) -> pb.LookupResponse:
        return pb.LookupResponse(verdict=pb.VERDICT_MISS)

    async def Store(self, request: pb.StoreRequest, context: Any) -> pb.StoreResponse:
        return pb.StoreResponse(skipped=True)

    async def Invalidate(self, request: pb.InvalidateRequest, context: Any) -> pb.InvalidateResponse:
        return pb.InvalidateResponse()

    async def ReportVerdict(self, request: pb.ReportVerdictRequest, context: Any) -> pb.ReportVerdictResponse:
        return pb.ReportVerdictResponse()

    async def GetStats(self, request: pb.GetStatsRequest, context: Any) -> pb.GetStatsResponse:
        return pb.GetStatsResponse()

    async def WatchInvalidations(
        self, request: pb.WatchInvalidationsRequest, context: Any
    ) -> AsyncIterator[pb.WatchInvalidationsResponse]:
        yield pb.WatchInvalidationsResponse()
        await asyncio.Event().wait()


@asynccontextmanager
async def serve_cache() -> AsyncIterator[ScriptedCache]:
    """On a free loopback port; its `target` says which."""
    async with serving(ScriptedCache(), cache_pb2_grpc.add_CacheServiceServicer_to_server) as cache:
        yield cache
