"""Cancels unary calls in one of four ways, and prints how many bytes of each stay allocated.

python -m tests.integration.cancelling_calls by_cancel

In a process of its own: other tests keep what their tasks and loops have left, and so does gRPC of loops that are gone.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import grpc

from hedgerow._base_aio import AsyncServiceClient
from hedgerow._peer import Peer
from services.gateway.upstream.calls import Pending

_AT_ONCE, _BEFORE, _CALLS = 20, 200, 1_000
_STILL = 10  # looks that find no less


class _MallInfo(ctypes.Structure):
    """As glibc has it: `struct mallinfo2`."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    ]


def allocated() -> int:
    """Bytes that were given out, and not given back."""
    gc.collect()
    mallinfo = ctypes.CDLL(None).mallinfo2
    mallinfo.restype = _MallInfo
    return int(mallinfo().uordblks)


async def settled() -> int:
    """`allocated` once gRPC's threads and the calls' tasks have given back what they are about to."""
    least, times = allocated(), 0
    while times < _STILL:
        await asyncio.sleep(0.05)
        now = allocated()
        least, times = min(least, now), 0 if now < least else times + 1
    return least


async def by_cancel(calls: list[Pending]) -> None:
    waiting = [asyncio.ensure_future(each.reply()) for each in calls]
    await asyncio.sleep(0)
    for each in calls:
        each.cancel()
    await asyncio.wait(waiting)
    assert all(each.cancelled() for each in waiting)


async def by_who_waits(calls: list[Pending]) -> None:
    waiting = [asyncio.ensure_future(each.reply()) for each in calls]
    for _ in range(3):  # until gRPC's core has the calls
        await asyncio.sleep(0)
    for each in waiting:
        each.cancel()
    await asyncio.wait(waiting)
    assert all(each.cancelled() for each in waiting)


async def before_it_began(calls: list[Pending]) -> None:
    for each in calls:
        each.cancel()
        with suppress(asyncio.CancelledError):
            await each.reply()
            raise AssertionError("a cancelled call returned a reply")


async def by_who_waits_in_the_sdk(calls: list[SdkCall]) -> None:
    await by_who_waits(calls)  # type: ignore[arg-type]  # it has a `reply`, too


WAYS: Mapping[str, Callable[[list[Any]], Any]] = {
    way.__name__: way for way in (by_cancel, by_who_waits, before_it_began, by_who_waits_in_the_sdk)
}


@dataclass
class SdkCall:
    """One of `AsyncServiceClient`'s."""

    method: Any

    async def reply(self) -> object:
        client = AsyncServiceClient(Peer("127.0.0.1:1", "key"), lambda _: None)
        return await client._call(self.method, b"x" * 100, 60)


async def kept_bytes(leave: Callable[[list[Any]], Any]) -> float:
    """The bytes that each cancelled call leaves, with no server at the address."""
    async with grpc.aio.insecure_channel("127.0.0.1:1") as channel:
        call: Any = partial(channel.unary_unary("/test.Silent/Ask"), wait_for_ready=True)

        def start() -> Pending | SdkCall:
            if leave is by_who_waits_in_the_sdk:
                return SdkCall(call)
            return Pending(call(b"x" * 100, timeout=60, metadata=(("a", "b"),)), "nobody")

        async def run(number: int) -> int:
            for _ in range(number // _AT_ONCE):
                await leave([start() for _ in range(_AT_ONCE)])
            return await settled()

        before = await run(_BEFORE)
        return (await run(_CALLS) - before) / _CALLS


if __name__ == "__main__":
    print(asyncio.run(kept_bytes(WAYS[sys.argv[1]])))
