"""An answer as a client reads it: message by message."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable

from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.api.idempotency import SendChoice


async def sent_by(give: Callable[[SendChoice], Awaitable[object]]) -> AsyncGenerator[pb.GenerateResponse, None]:
    """The messages of `give`. It goes on when the next message is asked for; closing this is leaving."""
    came: asyncio.Queue[pb.GenerateResponse | None] = asyncio.Queue()
    wanted = asyncio.Event()

    async def send(message: pb.GenerateResponse, _: int | None = None, /) -> None:
        wanted.clear()
        came.put_nowait(message)
        await wanted.wait()

    giving = asyncio.ensure_future(give(send))
    giving.add_done_callback(lambda _: came.put_nowait(None))
    try:
        while (message := await came.get()) is not None:
            yield message
            wanted.set()
        await giving
    finally:
        giving.cancel()
        await asyncio.wait({giving})
