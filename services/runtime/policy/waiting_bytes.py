"""A bound on the bytes of requests that wait: for the embedder, for the disk, for Redis, for being admitted.

A tenant may hold as much as is free, so one alone gets half of the capacity, and the next tenant finds some.
Source: Choudhury and Hahne, Dynamic queue length thresholds for shared-memory packet switches, IEEE/ACM ToN 1998.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager

from services.runtime.errors import Exhausted

_COME_BACK_S = 1.0
_Waiters = dict[asyncio.Future[bool], int]  # of one tenant, the first first: whether it has its bytes, and how many


class WaitingBytes:
    """`max_bytes` for all tenants together. Refusals are a `refusal`, and name `held`."""

    def __init__(self, max_bytes: int, refusal: type[Exhausted] = Exhausted, held: str = "requests that wait"):
        self._max_bytes, self._taken, self._refused, self._what = max_bytes, 0, refusal, held
        self._held: dict[str, int] = {}
        self._waiters: OrderedDict[str, _Waiters] = OrderedDict()  # the tenant whose turn is next first

    @contextmanager
    def hold(self, tenant: str, size: int) -> Iterator[None]:
        """Hold `size` bytes for a request while the block runs. Raises `Exhausted`."""
        self.take(tenant, size)
        try:
            yield
        finally:
            self.give_back(tenant, size)

    def take(self, tenant: str, size: int) -> None:
        """Hold `size` bytes for a request until `give_back`. Raises `Exhausted`."""
        if not self._fits(tenant, size):
            raise self._refusal(tenant, size)
        self._add(tenant, size)

    async def take_in_time(self, tenant: str, size: int, within_s: float) -> None:
        """`take`, as soon as there is room: tenants in turn, and of a tenant the first first. Raises `Exhausted` where
        there is none within `within_s` seconds."""
        if tenant not in self._waiters and self._fits(tenant, size):
            self._add(tenant, size)
        elif not await self._granted(tenant, size, within_s):
            raise self._refusal(tenant, size)

    def give_back(self, tenant: str, size: int) -> None:
        self._taken -= size
        self._held[tenant] -= size
        if not self._held[tenant]:
            del self._held[tenant]
        if self._waiters:
            self._let_in()

    async def _granted(self, tenant: str, size: int, within_s: float) -> bool:
        """Wait for `size` bytes, which are taken then."""
        loop = asyncio.get_running_loop()
        granted: asyncio.Future[bool] = loop.create_future()
        self._waiters.setdefault(tenant, {})[granted] = size
        timer = loop.call_later(within_s, self._give_up, tenant, granted)
        try:
            return await granted
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled() and granted.result():
                self.give_back(tenant, size)
            else:
                self._leave(tenant, granted)
                self._let_in()
            raise
        finally:
            timer.cancel()

    def _give_up(self, tenant: str, granted: asyncio.Future[bool]) -> None:
        if not granted.done():
            granted.set_result(False)
            self._leave(tenant, granted)
            self._let_in()  # what stood behind it may be smaller

    def _let_in(self) -> None:
        """Grant free bytes to waiting requests."""
        passed = 0
        while passed < len(self._waiters):
            tenant, waiters = next(iter(self._waiters.items()))
            self._waiters.move_to_end(tenant)
            granted, size = next(iter(waiters.items()))
            if granted.done():  # cancelled, and has not run since
                self._leave(tenant, granted)
            elif self._fits(tenant, size):
                passed = 0
                self._add(tenant, size)
                self._leave(tenant, granted)
                granted.set_result(True)
            else:
                passed += 1

    def _leave(self, tenant: str, granted: asyncio.Future[bool]) -> None:
        waiters = self._waiters.get(tenant, {})
        waiters.pop(granted, None)
        if not waiters:
            self._waiters.pop(tenant, None)

    def _fits(self, tenant: str, size: int) -> bool:
        return self._held.get(tenant, 0) + size <= self._max_bytes - self._taken

    def _add(self, tenant: str, size: int) -> None:
        self._taken += size
        self._held[tenant] = self._held.get(tenant, 0) + size

    def _refusal(self, tenant: str, size: int) -> Exhausted:
        held, free = self._held.get(tenant, 0), self._max_bytes - self._taken
        return self._refused(
            f"{self._what}: {held} bytes of this tenant, {free} bytes free, and one more has {size} bytes",
            retry_delay_s=_COME_BACK_S,
        )


class Held:
    """The bytes that one request holds."""

    def __init__(self, waiting: WaitingBytes, tenant: str):
        self._waiting, self._tenant, self._bytes = waiting, tenant, 0

    @property
    def size(self) -> int:
        """How many bytes it holds."""
        return self._bytes

    def take(self, size: int) -> None:
        """Hold `size` bytes more. Raises `Exhausted`."""
        self._waiting.take(self._tenant, size)
        self._bytes += size

    async def take_in_time(self, size: int, within_s: float) -> None:
        """Hold `size` bytes more, within `within_s` seconds. Raises `Exhausted`."""
        await self._waiting.take_in_time(self._tenant, size, within_s)
        self._bytes += size

    def keep(self, size: int) -> None:
        """Hold exactly `size` bytes from now on. Raises `Exhausted`."""
        if size > self._bytes:
            self.take(size - self._bytes)
        elif over := self._bytes - size:
            self._bytes = size
            self._waiting.give_back(self._tenant, over)

    def give_back(self) -> None:
        """Hold none."""
        self.keep(0)
