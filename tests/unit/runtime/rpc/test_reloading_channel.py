"""A channel that is renewed, over scripted channels."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from services.runtime.rpc import reloading_channel
from services.runtime.rpc.reloading_channel import ReloadingChannel

IDLE, CONNECTING, READY, FAILED, OVER = (
    grpc.ChannelConnectivity.IDLE,
    grpc.ChannelConnectivity.CONNECTING,
    grpc.ChannelConnectivity.READY,
    grpc.ChannelConnectivity.TRANSIENT_FAILURE,
    grpc.ChannelConnectivity.SHUTDOWN,
)
METHODS = ["unary_unary", "unary_stream", "stream_unary", "stream_stream"]


class Scripted:
    """A channel whose state is set by hand. Its methods answer (channel's number, method, path, arguments)."""

    def __init__(self, number: int, state: grpc.ChannelConnectivity):
        self.number, self.state = number, state
        self.graces: list[float | None] = []
        self.may_close = asyncio.Event()
        self._changed = asyncio.Condition()

    async def become(self, state: grpc.ChannelConnectivity) -> None:
        async with self._changed:
            self.state = state
            self._changed.notify_all()

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        if try_to_connect and self.state is IDLE:
            self.state = CONNECTING
        return self.state

    async def wait_for_state_change(self, last: grpc.ChannelConnectivity) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: self.state is not last)

    async def channel_ready(self) -> None:
        while self.get_state(True) is not READY:
            await self.wait_for_state_change(self.state)

    async def close(self, grace: float | None = None) -> None:
        self.graces.append(grace)
        if grace:
            await self.may_close.wait()
        self.state = OVER

    def __getattr__(self, method: str) -> Any:
        if method not in METHODS:
            raise AttributeError(method)
        return lambda path: lambda *args: (self.number, method, path, args)


class Line:
    """A renewed channel, and all the channels it has had."""

    def __init__(self, *states: grpc.ChannelConnectivity):
        self._states = iter(states)
        self.opened: list[Scripted] = []
        self.closed: list[ReloadingChannel] = []
        self.channel = ReloadingChannel(self._open, self.closed.append)

    def _open(self) -> Any:
        self.opened.append(Scripted(len(self.opened), next(self._states)))
        return self.opened[-1]


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.mark.parametrize("method", METHODS)
async def test_calls_go_to_the_channel_of_the_moment(method: str) -> None:
    line = Line(READY, READY)
    call = getattr(line.channel, method)("/a/B")
    assert call(1, 2) == (0, method, "/a/B", (1, 2))
    await line.channel.renew()
    assert call(3) == (1, method, "/a/B", (3,))
    await line.channel.close()


async def test_the_old_channel_takes_calls_until_the_new_one_is_connected() -> None:
    line = Line(READY, CONNECTING)
    call = line.channel.unary_unary("/a/B")
    renewing = asyncio.create_task(line.channel.renew())
    await settle()
    assert call()[0] == 0
    await line.opened[1].become(READY)
    await renewing
    assert call()[0] == 1
    await line.channel.close()


async def test_a_channel_that_was_never_connected_is_replaced_at_once() -> None:
    line = Line(IDLE, IDLE)
    await line.channel.renew()
    assert line.channel.current is line.opened[1]
    assert line.opened[1].state is IDLE
    await line.channel.close()


async def test_a_new_channel_that_does_not_connect_is_taken_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reloading_channel, "_CONNECT_S", 0.01)
    line = Line(READY, FAILED)
    await line.channel.renew()
    assert line.channel.get_state() is FAILED
    await line.channel.close()


async def test_the_old_channel_is_closed_when_its_last_call_has_ended() -> None:
    line = Line(READY, READY)
    await line.channel.renew()
    await settle()
    assert line.opened[0].graces == [float("inf")]
    assert line.opened[0].state is READY
    line.opened[0].may_close.set()
    await settle()
    assert line.opened[0].state is OVER
    await line.channel.close()


async def test_closing_closes_all_remaining_channels() -> None:
    line = Line(READY, READY, READY)
    await line.channel.renew()
    await line.channel.renew()
    await settle()
    await line.channel.close()
    assert [channel.state for channel in line.opened] == [OVER] * 3
    assert [channel.graces[-1] for channel in line.opened] == [None] * 3
    assert line.closed == [line.channel]
    await line.channel.close()  # once more does nothing
    assert len(line.closed) == 1


async def test_a_channel_closed_while_it_is_renewed_opens_nothing_for_good() -> None:
    line = Line(READY, CONNECTING)
    renewing = asyncio.create_task(line.channel.renew())
    await settle()
    await line.channel.close()
    await line.opened[1].become(READY)
    await renewing
    assert [channel.state for channel in line.opened] == [OVER] * 2


async def test_a_cancelled_renewal_keeps_the_old_channel() -> None:
    line = Line(READY, CONNECTING)
    renewing = asyncio.create_task(line.channel.renew())
    await settle()
    renewing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await renewing
    assert line.channel.current is line.opened[0]
    assert line.opened[1].state is OVER
    await line.channel.close()


async def test_a_waiter_for_a_change_gets_it_on_the_new_channel() -> None:
    line = Line(READY, READY)
    waiting = asyncio.create_task(line.channel.wait_for_state_change(READY))
    await settle()
    await line.channel.renew()
    await settle()
    assert not waiting.done()  # ready before, ready now
    await line.opened[1].become(FAILED)
    await asyncio.wait_for(waiting, 5)
    await line.channel.close()


async def test_a_waiter_for_a_change_gets_one_that_was_undone_at_once() -> None:
    line = Line(READY)
    waiting = asyncio.create_task(line.channel.wait_for_state_change(READY))
    await settle()

    async def changed(last: grpc.ChannelConnectivity) -> None:
        """gRPC reports that the backend has gone, and another one serves by now."""

    line.opened[0].wait_for_state_change = changed  # type: ignore[method-assign]
    again = asyncio.create_task(line.channel.wait_for_state_change(READY))
    await asyncio.wait_for(again, 5)
    assert not waiting.done()
    waiting.cancel()
    await line.channel.close()


async def test_a_waiter_for_a_change_gets_a_switch_that_is_one() -> None:
    line = Line(IDLE, FAILED)
    waiting = asyncio.create_task(line.channel.wait_for_state_change(IDLE))
    await settle()
    await line.channel.renew()
    await asyncio.wait_for(waiting, 5)
    await line.channel.close()


async def test_waiting_on_a_closed_channel_is_an_error_like_on_any_other() -> None:
    line = Line(IDLE)
    await line.channel.close()

    async def refuse(last: grpc.ChannelConnectivity) -> None:
        raise grpc.aio.UsageError("Channel is closed.")

    line.opened[0].wait_for_state_change = refuse  # type: ignore[method-assign]
    with pytest.raises(grpc.aio.UsageError):
        await line.channel.wait_for_state_change(OVER)


async def test_ready_is_ready_across_a_switch() -> None:
    line = Line(CONNECTING, CONNECTING)
    ready = asyncio.create_task(line.channel.channel_ready())
    await settle()
    await line.channel.renew()
    await line.opened[1].become(READY)
    await asyncio.wait_for(ready, 5)
    await line.channel.close()
