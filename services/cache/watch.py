"""Notifies watchers of every removal, without waiting for any of them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager

from services.cache.errors import FellBehind
from services.cache.tombstones import Removal


class Watchers:
    """All watchers. Each may be at most `limit` removals behind."""

    def __init__(self, limit: int):
        self._limit = limit
        self._watchers: set[_Watcher] = set()
        self._closed = False
        self._in_force = asyncio.Event()
        self._in_force.set()

    async def in_force(self) -> None:
        """Return when every removal is heard of here, or never will be: before that a watch is worth nothing."""
        await self._in_force.wait()

    def pause(self) -> None:
        """Removals may be missed from now on: end every watch, so that all copies go."""
        self._in_force.clear()
        for watcher in self._watchers:
            watcher.end()

    def resume(self) -> None:
        """Every removal is heard of again."""
        self._in_force.set()

    @contextmanager
    def watch(self) -> Iterator[AsyncGenerator[Removal, None]]:
        """The removals from now on. They end when `close` is called, and with `FellBehind` when read too slowly."""
        watcher = _Watcher(self._limit)
        self._watchers.add(watcher)
        if self._closed:
            watcher.end()
        try:
            yield watcher.removals()
        finally:
            self._watchers.discard(watcher)

    def publish(self, removal: Removal) -> None:
        for watcher in self._watchers:
            watcher.put(removal)

    def close(self) -> None:
        """End every watch, and those to come."""
        self._closed = True
        self._in_force.set()
        for watcher in self._watchers:
            watcher.end()


class _Watcher:
    def __init__(self, limit: int):
        self._limit = limit
        self._waiting: deque[Removal] = deque()
        self._news = asyncio.Event()
        self._ended = self._behind = False

    def put(self, removal: Removal) -> None:
        if len(self._waiting) == self._limit:
            self._behind = True
            self._waiting.clear()
        if not self._behind:
            self._waiting.append(removal)
        self._news.set()

    def end(self) -> None:
        self._ended = True
        self._news.set()

    async def removals(self) -> AsyncGenerator[Removal, None]:
        while True:
            await self._news.wait()
            self._news.clear()
            while self._waiting:
                yield self._waiting.popleft()
            if self._behind:
                raise FellBehind(f"more than {self._limit} removals behind")
            if self._ended:
                return
