"""Which of the calls that have come begins next: tenants take turns, so a flood of one does not hold up the others.

gRPC and uvicorn hand calls over in the order in which they came, gRPC one in some five turns of the event loop. To hand
a call over takes a tenth of the time to begin it. So calls first wait here, and one begins in each turn. In a flood,
before a second call of one tenant begins, there is time for others to be handed over, which may be another tenant's.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque

from services.runtime.deadline import Clock

_USUAL_PER_S, _BURST, _MOST_BURST = 150.0, 8.0, 20.0  # calls; a flood is more than so many at once
_HANDED_OVER = 4  # calls, for one that begins in a flood
_TURNS, _PAUSE_S = 12, 0.0003  # of the event loop, and seconds, in which gRPC hands over a call if it has one
_ALONE_S = 10.0  # a tenant without another one for so long has no time to lose
_MOST = 8_192  # calls here, each 4 KB more than in gRPC; beyond, one begins in each turn of the event loop


class StartOrder:
    """The calls of one event loop that wait to begin."""

    def __init__(self, clock: Clock = time.monotonic):
        self._clock = clock
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}  # by tenant, the next one first
        self._count = self._came = 0  # calls that wait, and that have come for the next one that begins
        self._began = ""  # the tenant of the last call that began
        self._newest = ""  # and of the last that came
        self._came_at = self._alone_from = 0.0
        self._burst = 0.0
        self._turns, self._moved_at = 0, 0.0  # since a call came or began

    async def turn(self, tenant: str) -> None:
        """Return when a call of `tenant` may begin. A call that is cancelled before that takes no turn."""
        loop = asyncio.get_running_loop()
        begins = loop.create_future()
        self._waiting.setdefault(tenant, deque()).append(begins)
        self._note(tenant)
        if self._count == 1:
            loop.call_soon(self._run, loop)
        await begins

    def _note(self, tenant: str) -> None:
        """A call has come."""
        now = self._clock()
        self._burst = min(max(self._burst - (now - self._came_at) * _USUAL_PER_S, 0.0) + 1, _MOST_BURST)
        if tenant != self._newest:
            self._newest, self._alone_from = tenant, now + _ALONE_S
        self._count += 1
        self._came += 1
        self._turns, self._moved_at, self._came_at = 0, now, now

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin a call in this turn of the event loop, if one may begin, and come again while any waits."""
        self._turns += 1
        if self._may_begin():
            self._begin()
        if self._count:
            loop.call_soon(self._run, loop)

    def _may_begin(self) -> bool:
        """Whether the next call may begin now; otherwise another tenant's may be about to come."""
        if self._burst < _BURST or self._came >= _HANDED_OVER or self._count >= _MOST:
            return True
        now = self._clock()
        paused = self._turns >= _TURNS and now >= self._moved_at + _PAUSE_S
        return paused or now >= self._alone_from or self._next_tenant() != self._began

    def _next_tenant(self) -> str:
        """The first tenant that is not the last one's, if there is one."""
        return next((tenant for tenant in self._waiting if tenant != self._began), self._began)

    def _begin(self) -> None:
        """Begin the next call that has not been cancelled."""
        while self._waiting:
            tenant = self._next_tenant()
            calls = self._waiting[tenant]
            begins = calls.popleft()
            self._count -= 1
            live = not begins.done()
            if not calls:
                del self._waiting[tenant]
            elif live:
                self._waiting[tenant] = self._waiting.pop(tenant)  # behind the others
            if live:
                begins.set_result(None)
                self._began, self._came = tenant, max(self._came - _HANDED_OVER, 0)
                self._turns, self._moved_at = 0, self._clock()
                return
