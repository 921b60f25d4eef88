"""Calls to Redis that are cancelled, while they wait for their turn or for Redis."""

from __future__ import annotations

import asyncio

import pytest

from services.gateway.http.stored_responses import redis_store
from services.gateway.http.stored_responses.redis_store import RedisResponses
from services.gateway.http.stored_responses.store import Owner
from tests.cancelling import Work, cancelled_at_every_await

SIZE = 5


class SlowState:
    """Answers each call after a second."""

    async def transfer(self, call: object, within_s: float) -> int:
        await asyncio.sleep(1)
        return SIZE


@cancelled_at_every_await(awaits=2)
async def test_a_cancelled_call_leaves_its_turn_to_others(monkeypatch: pytest.MonkeyPatch) -> Work:
    monkeypatch.setattr(redis_store, "_CALLS", 1)
    store = RedisResponses(SlowState(), 1_000, 1_000)  # type: ignore[arg-type]
    first = asyncio.create_task(store.size(Owner("acme"), "resp_1"))
    await asyncio.sleep(0)
    yield store.size(Owner("umbra"), "resp_2")
    await first
    async with asyncio.timeout(10):
        assert await store.size(Owner("umbra"), "resp_3") == SIZE
