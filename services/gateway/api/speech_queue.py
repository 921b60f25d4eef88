"""Speech on its way to the audio service: bounded in bytes, for each conversation and for all of a tenant's together. A
faster client is held back: its stream is not read, so gRPC's flow control stops it. Nothing is lost.
"""

from __future__ import annotations

import asyncio
from collections import deque

_MESSAGE_BYTES = 128  # about what keeping one costs, however little it says


class ConversationBytes:
    """The bytes of one tenant's conversations that wait; `most` may."""

    def __init__(self, most: int):
        self.most, self.waiting = most, 0
        self._listeners: list[asyncio.Event] = []

    def add(self, size: int) -> None:
        """Add `size` to the waiting bytes; it may be negative."""
        self.waiting += size
        for changed in self._listeners:
            changed.set()

    async def changes(self) -> None:
        """Return when something has changed."""
        self._listeners.append(changed := asyncio.Event())
        try:
            await changed.wait()
        finally:
            self._listeners.remove(changed)


class Spoken:
    """The queue of a conversation. `most`: bytes that may wait. A larger message may wait alone, and if none waits one
    always may, so that every conversation can continue. `ended`: no more comes."""

    def __init__(self, most: int, tally: ConversationBytes):
        self._most, self._tally = most, tally
        self._messages: deque[bytes] = deque()
        self._waiting = 0
        self.ended = False
        self._news = asyncio.Event()

    async def put(self, audio: bytes) -> None:
        """Returns when there was room."""
        size = len(audio) + _MESSAGE_BYTES
        while self._messages and (self._waiting + size > self._most or self._tally.waiting + size > self._tally.most):
            await self._tally.changes()
        self._messages.append(audio)
        self._count(size)
        self._news.set()

    async def get(self) -> bytes | None:
        """The next; None after the last."""
        while not self._messages:
            if self.ended:
                return None
            self._news.clear()
            await self._news.wait()
        audio = self._messages.popleft()
        self._count(-len(audio) - _MESSAGE_BYTES)
        return audio

    def end(self) -> None:
        """End the input. Waiting audio can still be read."""
        self.ended = True
        self._news.set()

    def clear(self) -> None:
        """Drop the waiting audio: it has no reader any more."""
        self._messages.clear()
        self._count(-self._waiting)

    def _count(self, size: int) -> None:
        self._waiting += size
        self._tally.add(size)
