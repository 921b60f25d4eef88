"""Calls that have arrived and that the process has not begun: gRPC drops them at limits of its own."""

from __future__ import annotations

from collections import Counter

import grpc

from tests.unit.runtime.served import served

_CHECK = "/grpc.health.v1.Health/Check"
_CALLS = 2_000  # by default gRPC drops some from 1,000 on


async def _ended(number: int, **settings: int) -> Counter[grpc.StatusCode]:
    """How calls end that a client starts in one turn of the event loop, so that all of them wait for the server."""
    async with served([], {}, max_concurrent_streams=number, **settings) as (channel, _):
        check = channel.unary_unary(_CHECK)
        calls = [check(b"", timeout=60) for _ in range(number)]
        return Counter([await call.code() for call in calls])


async def test_each_of_thousands_of_calls_at_once_is_answered() -> None:
    assert await _ended(_CALLS) == {grpc.StatusCode.OK: _CALLS}


async def test_no_more_calls_wait_than_may() -> None:
    ended = await _ended(500, max_waiting_calls=100)
    assert set(ended) == {grpc.StatusCode.OK, grpc.StatusCode.CANCELLED}
