"""Whether a backend is starting, by its connection and by its own health (`grpc.health.v1`).

Our services listen before their models are loaded, and their health is NOT_SERVING until then. Starting is no failure:
the breaker hears nothing of it, and calls that have nowhere else to go wait (`generation/start_wait.py`). A backend
that has no connection counts as starting, too: it was never reached, or it ended and a supervisor starts it again.
That is not for ever: its address may be wrong, or it may be gone for good.

An llm service whose provider cannot be reached refuses a call as STARTING. From then on the health of its service, not
of its process, is asked, and the backend is lost until that is SERVING.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc
from grpc_health.v1 import health_pb2

from hedgerow.llm.v1 import llm_pb2
from services.gateway.policies.tenant_aware_breaker import TenantAwareBreaker
from services.gateway.upstream.calls import reachable
from services.runtime.deadline import until_set

_LLM = llm_pb2.DESCRIPTOR.services_by_name["LLMService"].full_name
_AGAIN_S = 0.2  # to the next question, where health was not answered
_SERVED = (health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.SERVICE_UNKNOWN)


class Notice:
    """Wakes all that wait for a change."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Event] = set()

    def notify(self) -> None:
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
    """How far the start of one backend is. `starting`: it takes no calls now, and is expected to. `lost`: that is so
    because its connection is lost. `served`: it has been seen serving. They change only while `follow` runs."""

    def __init__(self, notice: Notice, breaker: TenantAwareBreaker | None = None):
        self.starting = self.served = self.lost = False
        self._notice, self._breaker, self._refused = notice, breaker, asyncio.Event()
        self._followed = self._reached = False
        self._timer: asyncio.TimerHandle | None = None

    def refused(self) -> bool:
        """A call was refused because the backend is starting: health is asked again. Returns whether the backend is
        still expected."""
        if self._followed and not self._refused.is_set():
            self._become(starting=True)
            self._refused.set()
        return self.starting or not self._followed

    async def follow(self, channel: grpc.aio.Channel, unreached_s: float) -> None:
        """Ask for the health of each new connection's process, until it is SERVING. Never returns.

        While it has no connection, the backend counts as starting for `unreached_s`: from now on, and from each loss.
        """
        self._followed = True
        self._expect(unreached_s)
        try:
            while True:
                await reachable(channel)
                if not await self._serves(channel):
                    if self._reached:
                        self._lose(unreached_s)
                    self._refused.clear()
                    await asyncio.sleep(_AGAIN_S)
                    continue
                self.started()
                self._refused.clear()
                await until_set(self._refused, channel.wait_for_state_change(channel.get_state()))
                self._lose(unreached_s)
        finally:
            self._expect_no_more()

    async def _serves(self, channel: grpc.aio.Channel) -> bool:
        """Wait until health is SERVING; False where it can no longer be asked. A backend without health serves."""
        watch: Any = channel.unary_stream(
            "/grpc.health.v1.Health/Watch",
            request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
            response_deserializer=health_pb2.HealthCheckResponse.FromString,
        )
        refused = self._refused.is_set()
        call = watch(health_pb2.HealthCheckRequest(service=_LLM if refused else ""))
        try:
            async for reply in call:
                if reply.status in _SERVED:
                    return True
                if not refused:
                    self._has_been_reached()
                    self._become(starting=True)
        except grpc.aio.AioRpcError as error:
            return error.code() is grpc.StatusCode.UNIMPLEMENTED
        finally:
            call.cancel()
        return False

    def started(self) -> None:
        """The backend serves. The breaker forgets the calls that were made before."""
        self._has_been_reached()
        if self.starting or not self.served:
            if self._breaker:
                self._breaker.started()
            self.served, self.starting = True, False
            self._notice.notify()

    def _has_been_reached(self) -> None:
        self._reached, self.lost = True, False
        self._expect_no_more()

    def _lose(self, unreached_s: float) -> None:
        self._reached, self.lost = False, True
        self._expect(unreached_s)

    def _expect(self, within_s: float) -> None:
        """The backend counts as starting for `within_s`, unless it is reached before."""
        self._expect_no_more()
        if within_s > 0:
            self._timer = asyncio.get_running_loop().call_later(within_s, self._become_away)
        self._become(starting=within_s > 0)

    def _expect_no_more(self) -> None:
        if self._timer:
            self._timer.cancel()

    def _become_away(self) -> None:
        self.lost = False
        self._become(starting=False)

    def _become(self, *, starting: bool) -> None:
        if starting != self.starting:
            self.starting = starting
            self._notice.notify()
