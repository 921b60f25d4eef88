"""Whether a backend is starting, by what its own health says (`grpc.health.v1`).

Our services listen before their models are loaded, and their health is NOT_SERVING until then. Starting is no failure:
the breaker hears nothing of it, and calls that have nowhere else to go wait (`generation/fallback.py`). A backend
that has never been reached counts as starting, too, but not for ever: its address may be wrong.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc
from grpc_health.v1 import health_pb2

from services.gateway.policies.shared_breaker import SharedBreaker
from services.gateway.upstream.calls import reachable
from services.runtime.deadline import until_set

_AGAIN_S = 0.2  # to the next question, where health was not answered
_SERVED = (health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.SERVICE_UNKNOWN)


class Notice:
    """Wakes all that wait for a change."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Event] = set()

    def tell(self) -> None:
        """Something has changed."""
        for event in self._waiting:
            event.set()

    @contextmanager
    def listening(self) -> Iterator[asyncio.Event]:
        """An event that is set at each change, until the block is left."""
        self._waiting.add(event := asyncio.Event())
        try:
            yield event
        finally:
            self._waiting.discard(event)


class Start:
    """How far the start of one backend is. `starting`: calls to it would be refused now, because it loads. `served`: it
    has been seen serving. Both change only while `follow` runs."""

    def __init__(self, notice: Notice, breaker: SharedBreaker | None = None):
        self.starting = self.served = False
        self._notice, self._breaker, self._refused = notice, breaker, asyncio.Event()
        self._followed = self._reached = self._expected = False

    def refused(self) -> None:
        """A call was refused because the backend is starting: health is asked again."""
        if self._followed:
            self._become(starting=True)
            self._refused.set()

    async def follow(self, channel: grpc.aio.Channel, unreached_s: float) -> None:
        """Ask for the health of each new connection's process, until it is SERVING. Never returns.

        Until it has been reached for the first time, the backend counts as starting for `unreached_s`.
        """
        self._followed, self._expected = True, unreached_s > 0
        self._become(starting=self._expected)
        timer = asyncio.get_running_loop().call_later(unreached_s, self._is_away)
        try:
            while True:
                await reachable(channel)
                if not await self._serves(channel, timer):
                    if self._reached or not self._expected:
                        self._become(starting=False)
                    await asyncio.sleep(_AGAIN_S)
                    continue
                timer.cancel()
                self.started()
                self._refused.clear()
                await until_set(self._refused, channel.wait_for_state_change(channel.get_state()))
        finally:
            timer.cancel()

    async def _serves(self, channel: grpc.aio.Channel, timer: asyncio.TimerHandle) -> bool:
        """Wait until health is SERVING; False where it can no longer be asked. A backend without health serves."""
        watch: Any = channel.unary_stream(
            "/grpc.health.v1.Health/Watch",
            request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
            response_deserializer=health_pb2.HealthCheckResponse.FromString,
        )
        call = watch(health_pb2.HealthCheckRequest())
        try:
            async for reply in call:
                if reply.status in _SERVED:
                    return True
                self._reached = True
                timer.cancel()
                self._become(starting=True)
        except grpc.aio.AioRpcError as error:
            return error.code() is grpc.StatusCode.UNIMPLEMENTED
        finally:
            call.cancel()
        return False

    def started(self) -> None:
        """The backend serves. The breaker forgets the calls that were made before."""
        if self._breaker and (self.starting or not self.served):
            self._breaker.started()
        self._reached = True
        if not self.served or self.starting:
            self.served, self.starting = True, False
            self._notice.tell()

    def _is_away(self) -> None:
        self._expected = False
        self._become(starting=False)

    def _become(self, *, starting: bool) -> None:
        if starting != self.starting:
            self.starting = starting
            self._notice.tell()
