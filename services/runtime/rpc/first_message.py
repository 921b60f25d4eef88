"""The first message of a call, which need not come: headers alone begin a call, and hold its place.

So where strangers call, handlers are registered as if every request were a stream: gRPC then hands a call over with its
headers, a caller without permission is refused by those alone, and other callers' messages have a time to arrive. A
handler for one request would be called only when it is there, be it never. Behind the gateway only our own services
call, and a call is spared the turn of the event loop that this costs.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import grpc

from services.runtime.errors import InvalidInput, TooLate

DEFAULT_MS = 30_000
_LATE = "first message"


async def message(context: Any, within_s: float) -> bytes:
    """The one message of a call, from its `grpc.aio.ServicerContext` over bytes. Raises `TooLate`, and `InvalidInput`
    where there is none."""
    task, timer = _timed(within_s)
    try:
        raw = await context.read()
    except asyncio.CancelledError as error:
        raise _cause(error, task, within_s) from None
    finally:
        timer.cancel()
    if raw is grpc.aio.EOF:
        raise InvalidInput("request", "one message", "none")
    return bytes(raw)


async def messages(requests: AsyncIterator[bytes], within_s: float) -> AsyncGenerator[bytes, None]:
    """All messages of a call, the first within its time. Raises `TooLate`."""
    task, timer = _timed(within_s)
    try:
        first = await anext(requests, None)
    except asyncio.CancelledError as error:
        raise _cause(error, task, within_s) from None
    finally:
        timer.cancel()
    if first is not None:
        yield first
        async for raw in requests:
            yield raw


async def whole_reads(requests: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """The same messages. A read that nothing waits for any more goes on to its end, which is that of the call at the
    latest: gRPC keeps for good a message that comes after its read was cancelled (grpcio 1.85)."""
    while True:
        reading = asyncio.ensure_future(anext(requests, None))
        reading.add_done_callback(_retrieve)
        await asyncio.wait({reading})
        if (raw := reading.result()) is None:
            return
        yield raw


def _retrieve(reading: asyncio.Future[bytes | None]) -> None:
    """Fetch its error: a call that is over ends a read without a reader."""
    if not reading.cancelled():
        reading.exception()


def _timed(within_s: float) -> tuple[asyncio.Task[Any], asyncio.TimerHandle]:
    """What `asyncio.timeout` does, for half of its 13 µs: every call of the mesh passes here."""
    task = asyncio.current_task()
    assert task is not None
    return task, asyncio.get_running_loop().call_later(within_s, task.cancel, _LATE)


def _cause(error: asyncio.CancelledError, task: asyncio.Task[Any], within_s: float) -> BaseException:
    """Why the task was cancelled: its time was over, or another task cancelled it."""
    if error.args != (_LATE,) or task.uncancel():
        return error
    return TooLate(f"request: its first message whole within {within_s:g} s, got less")
