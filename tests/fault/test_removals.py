"""Removals from the cache while an answer is on its way to it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from hedgerow.cache.v1 import cache_pb2, cache_pb2_grpc
from hedgerow.channel import open_channel
from hedgerow.gateway.v1 import gateway_pb2 as pb
from tests.fault.asking import Asker, Outcome
from tests.fault.faulty_llm import Behaviour
from tests.fault.mesh import Mesh
from tests.waiting import until

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(60)]
_TEXT = "Was it removed?"


@asynccontextmanager
async def _cache(mesh: Mesh) -> AsyncIterator[Any]:
    async with open_channel(mesh.cache.spec.address) as channel:
        yield cache_pb2_grpc.CacheServiceStub(channel)


async def _kept(caller: Asker) -> Outcome:
    """Ask until the answer is in the cache."""
    return await until(lambda: caller.ask(_TEXT), 10, holds=lambda outcome: outcome.final.cache.key)


@pytest.mark.parametrize("by", ["tenant", "key"])
async def test_an_answer_that_was_begun_before_an_invalidation_never_comes_back(mesh: Mesh, by: str):
    key = (await _kept(mesh.caller)).final.cache.key
    removal = cache_pb2.InvalidateRequest(key=key) if by == "key" else cache_pb2.InvalidateRequest(tenant="local")
    async with _cache(mesh) as cache:
        await cache.Invalidate(removal)
        mesh.llm.reset()
        mesh.llm.behaviour = Behaviour(tokens=10, each_ms=20, text="old ")
        asked = mesh.caller.start(_TEXT)
        await asked.first_text()
        await cache.Invalidate(removal)
        assert (await asked.end()).ok
        mesh.llm.behaviour = Behaviour(text="new ")
        again = await mesh.caller.ask(_TEXT)
        assert (again.final.cache.verdict, "old" in again.text) == (pb.CACHE_VERDICT_MISS, False)
        found = await until(lambda: mesh.caller.ask(_TEXT), 10, holds=_is_a_hit)  # stored since the removal
        assert "old" not in found.text


def _is_a_hit(outcome: Outcome) -> bool:
    return outcome.final.cache.verdict == pb.CACHE_VERDICT_EXACT
