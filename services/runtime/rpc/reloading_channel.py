"""A channel that is opened again, for example with another certificate, and whose calls do not notice.

gRPC for Python reads a client's certificate once, when a channel is opened. Here the new channel is connected first;
then it takes the calls that begin, while those that have begun finish on the old one, however long they take: an open
channel was authenticated when it was opened. A call costs one comparison more.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any, Self

import grpc

_CONNECT_S = 5.0  # for the new connection, where there is an old one to go on with
Make = Callable[[grpc.aio.Channel], Any]


class ReloadingChannel(grpc.aio.Channel):
    """A channel from `connect`, and at each `renew` another one. `closed` hears when it is closed, as a whole."""

    def __init__(self, connect: Callable[[], grpc.aio.Channel], closed: Callable[[ReloadingChannel], None]):
        self._connect, self._closed = connect, closed
        self.current = connect()
        self._switched = asyncio.Event()  # of `current`
        self._over = False
        self._retiring: dict[asyncio.Task[None], grpc.aio.Channel] = {}

    async def renew(self) -> None:
        """Use a new channel, once it is connected or the time for that is over."""
        fresh = self._connect()
        if self.current.get_state() is grpc.ChannelConnectivity.READY:
            try:
                async with asyncio.timeout(_CONNECT_S):
                    await fresh.channel_ready()
            except TimeoutError:
                pass  # what is current must not outlive its certificate for this
            except BaseException:
                await fresh.close()
                raise
        if self._over:  # closed meanwhile
            await fresh.close()
            return
        old, self.current = self.current, fresh
        self._switched.set()
        self._switched = asyncio.Event()
        task = asyncio.create_task(old.close(math.inf))
        self._retiring[task] = old
        task.add_done_callback(self._retiring.pop)

    async def close(self, grace: float | None = None) -> None:
        """Close it, and what is left of those before it; calls in flight have `grace` seconds to end."""
        if self._over:
            return
        self._over = True
        self._closed(self)
        retiring = dict(self._retiring)
        for task in retiring:
            task.cancel()
        if retiring:
            await asyncio.wait(retiring)
        await asyncio.gather(*(channel.close(grace) for channel in (self.current, *retiring.values())))

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        return self.current.get_state(try_to_connect)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        while self.get_state() is last_observed_state:
            changed = asyncio.create_task(self.current.wait_for_state_change(last_observed_state))
            switched = asyncio.create_task(_set(self._switched))
            try:
                await asyncio.wait({changed, switched}, return_when=asyncio.FIRST_COMPLETED)
                if changed.done():
                    changed.result()  # raises where the channel is closed
                    return  # also where it has changed back since
            finally:
                for task in (changed, switched):
                    task.cancel()
                await asyncio.wait({changed, switched})

    async def channel_ready(self) -> None:
        while (state := self.get_state(try_to_connect=True)) is not grpc.ChannelConnectivity.READY:
            await self.wait_for_state_change(state)

    def unary_unary(self, *args: Any, **kwargs: Any) -> Any:
        return _Method(self, lambda channel: channel.unary_unary(*args, **kwargs))

    def unary_stream(self, *args: Any, **kwargs: Any) -> Any:
        return _Method(self, lambda channel: channel.unary_stream(*args, **kwargs))

    def stream_unary(self, *args: Any, **kwargs: Any) -> Any:
        return _Method(self, lambda channel: channel.stream_unary(*args, **kwargs))

    def stream_stream(self, *args: Any, **kwargs: Any) -> Any:
        return _Method(self, lambda channel: channel.stream_stream(*args, **kwargs))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()


class _Method:
    """An RPC on the channel that is current when it is called."""

    __slots__ = ("_call", "_channel", "_make", "_of")

    def __init__(self, of: ReloadingChannel, make: Make):
        self._of, self._make = of, make
        self._channel, self._call = of.current, make(of.current)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._channel is not self._of.current:
            self._channel = self._of.current
            self._call = self._make(self._channel)
        return self._call(*args, **kwargs)


async def _set(event: asyncio.Event) -> None:
    await event.wait()
