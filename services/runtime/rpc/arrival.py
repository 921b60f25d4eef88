"""The request of a call on its way in, where strangers call: a servicer that has an `arriving` method bounds what is
held of it before the call is admitted.

Nothing says how large a message will be. Until it is read, gRPC holds no more of it than its window; from then on it
holds all that comes. So a message has room for a window when its reading begins, and most messages are whole then. One
that is not whole soon needs room for the largest that may come, or its call is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol

from services.runtime.errors import Exhausted
from services.runtime.policy.waiting_bytes import Held

WINDOW_BYTES = 262_144  # that a stream may send before it is read
_ROOM_S = 1.0  # to wait for room for a window
_SOON_S, _TRIES = 0.02, 5  # a busy event loop learns late that a message is whole, so more than one turn passes
_FULL = "no free memory"
Read = Callable[[], Awaitable[bytes]]


class Arrival(Protocol):
    """One call's request, in bytes."""

    async def one(self, read: Read) -> bytes:
        """The message of a call with one request."""

    def all(self, messages: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """The messages of a call with a stream of requests."""

    def admitted(self) -> None:
        """The call is admitted, or over."""


class _Free:
    """Arrivals without limits."""

    async def one(self, read: Read) -> bytes:
        return await read()

    def all(self, messages: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        return messages

    def admitted(self) -> None:
        pass


FREE: Arrival = _Free()


class Reading:
    """A message that is being read: `held` is what it has room for, and `most_bytes` the largest that may come."""

    def __init__(self, held: Held, most_bytes: int):
        self.held, self._most_bytes = held, most_bytes
        self._full: Exhausted | None = None

    async def message(self, read: Read) -> bytes:
        """The message, for whose bytes there is room; there is none held where none comes. Raises `Exhausted`."""
        try:
            await self.held.take_in_time(min(WINDOW_BYTES, self._most_bytes), _ROOM_S)
            raw = await self._soon(read)
            self.held.keep(len(raw))
        except BaseException:
            self.held.give_back()
            raise
        return raw

    async def _soon(self, read: Read) -> bytes:
        task = asyncio.current_task()
        assert task is not None
        self._look_later(task, _TRIES)
        try:
            return await read()
        except asyncio.CancelledError as error:
            if self._full is None or error.args != (_FULL,) or task.uncancel():
                raise
            raise self._full from None
        finally:
            self._timer.cancel()

    def _look_later(self, task: asyncio.Task[object], tries: int) -> None:
        self._timer = asyncio.get_running_loop().call_later(_SOON_S, self._grow, task, tries - 1)

    def _grow(self, task: asyncio.Task[object], tries: int) -> None:
        """Take more memory for a message that is not complete yet."""
        try:
            self.held.keep(self._most_bytes)
        except Exhausted as full:
            if tries:
                self._look_later(task, tries)
            else:
                self._full = full
                task.cancel(_FULL)
