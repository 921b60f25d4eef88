"""The first message of a call, which need not come: headers alone begin a call, and hold its slot.

So where strangers call, handlers are registered as if every request were a stream: gRPC then hands a call over with its
headers, a caller without permission is refused by those alone, and other callers' messages have a time to arrive. A
handler for one request would be called only when it is there, be it never. Behind the gateway only our own services
call, and a call is spared the turn of the event loop that this costs.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable
from typing import Any, TypeVar

import grpc

from services.runtime.deadline import set_within
from services.runtime.errors import InvalidInput, TooLate
from services.runtime.futures import retrieve

DEFAULT_MS = 30_000
T = TypeVar("T")


async def message(context: Any, within_s: float) -> bytes:
    """The message of a call with one request, from its `grpc.aio.ServicerContext` over bytes. Raises `TooLate`, and
    `InvalidInput` if there is none."""
    raw = await _whole(context.read(), within_s)
    if raw is grpc.aio.EOF:
        raise InvalidInput("request", "one message", "none")
    return bytes(raw)


async def messages(requests: AsyncIterator[bytes], within_s: float | None = None) -> AsyncGenerator[bytes, None]:
    """All messages of a call, the first within `within_s` seconds. Raises `TooLate`."""
    while (raw := await _whole(anext(requests, None), within_s)) is not None:
        within_s = None
        yield raw


async def _whole(read: Awaitable[T], within_s: float | None) -> T:
    """The result of a read. Raises `TooLate`. A read that nothing waits for any more, because its caller has left or is
    late, goes on to its end, which is that of the call at the latest: of one that is cancelled gRPC keeps 590 bytes for
    good, and its message (grpcio 1.85)."""
    reading = asyncio.ensure_future(read)
    reading.add_done_callback(retrieve)
    done = asyncio.Event()
    reading.add_done_callback(lambda _: done.set())
    await set_within(done, math.inf if within_s is None else within_s)
    if not reading.done():
        raise TooLate(f"request: its first message whole within {within_s:g} s, got less")
    return reading.result()
