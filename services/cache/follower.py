"""Keeps memory the same as the shared entries: everything at first, then one change after the other, in Redis's order.

The changes of this process come the same way, so memory goes through the same order of changes as that of every other
replica, and all end alike. Who missed one (the stream was cut, Redis lost it or began anew) reads everything again.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, Protocol

from services.cache import redis_entries
from services.cache.entries import Entry
from services.cache.memory import Memory
from services.cache.redis_entries import OPERATIONS, Ask, News, Stored, Writer
from services.cache.removals import Removals
from services.cache.vectors import Vector
from services.cache.watch import Removal
from services.runtime.shared_state import SharedState, SharedStateLost

_WAIT_MS = 500  # for news; then the position is compared
_AT_ONCE = 1_000  # news, and keys, in one reply
_READ = 32  # entries in one reply: of the largest size, 16 MiB


class Missed(Exception):
    """Redis holds a change that this process did not hear of, or no longer holds one that it did."""


class Ours(Protocol):
    """This process's own changes, which the news may not have reached yet."""

    def heard(self, news: News) -> Callable[[], None]:
        """The news is applied; what is returned is called when that is settled too."""

    def stored(self, news: News) -> Stored | None:
        """What was put, where it is known here."""

    def removed_since(self, news: News) -> bool:
        """Whether this process has removed what the news is about, later than the news."""

    def decides(self, key: str, tenant: str) -> bool:
        """Whether Redis does not know yet what became of an entry."""


class Follower:
    """Follows the changes while Redis is up. `position`: of the last change memory knows. `turn`: how often Redis was
    lost; what was begun in another turn says nothing about now. `removals`: those that were heard of."""

    def __init__(self, state: SharedState, memory: Memory, redis: Writer, ours: Ours):
        self._state, self._memory, self._redis, self._ours = state, memory, redis, ours
        self._process = ""
        self.position = self.turn = 0
        self.removals = Removals()

    async def run(self) -> None:
        """Follow until cancelled."""
        while True:
            await self._state.back()
            try:
                await self._follow()
            except Missed as problem:
                self._state.lose(f"changes were missed: {problem}")
            except SharedStateLost:
                continue

    def lost(self) -> None:
        """Redis was lost: leave memory alone until `catch_up`."""
        self.turn += 1

    async def catch_up(self, afresh: bool) -> None:
        """Bring memory up to date: with the changes since `position`, or `afresh` with everything."""
        process = await self._state.try_to(redis_entries.process)
        await self._state.try_to(self._redis.measure)
        if afresh or process != self._process or not await self._continue():
            await self._reload()
        self._process = process

    async def _follow(self) -> None:
        turn = self.turn
        news = partial(redis_entries.news, after=self.position, count=_AT_ONCE, wait_ms=_WAIT_MS)
        heard: Sequence[News] = await self._state.follow(news, _WAIT_MS / 1000)
        self._check(turn)
        heard = heard or await self._unheard(self._state.ask)
        self._check(turn)
        await self._apply(heard, self._state.ask)

    def _check(self, turn: int) -> None:
        if turn != self.turn:
            raise SharedStateLost("Redis was lost meanwhile")

    async def _unheard(self, ask: Ask[Any]) -> Sequence[News]:
        """The changes since `position`, which are all there are. Raises `Missed`."""
        if await ask(redis_entries.position) == self.position:
            return []
        news: Sequence[News] = await ask(partial(redis_entries.news, after=self.position, count=_AT_ONCE, wait_ms=None))
        if not news:
            raise Missed("the last one known is not there")
        return news

    async def _continue(self) -> bool:
        """Apply what was changed since `position`; False where some of it is not there any more."""
        try:
            while news := await self._unheard(self._state.try_to):
                await self._apply(news, self._state.try_to)
        except Missed:
            return False
        return True

    async def _apply(self, news: Sequence[News], ask: Ask[Any]) -> None:
        turn = self.turn
        self._none_missed(news)
        for some in _by(_READ, news):
            keys = [each.what for each in some if each.op == "put" and not self._ours.stored(each)]
            read = await ask(partial(self._redis.read, keys=keys)) if keys else []
            self._check(turn)
            stored = dict(zip(keys, read, strict=True))
            settle = [self._apply_one(each, stored.get(each.what)) for each in some]
            await self._memory.settled()
            for done in settle:
                done()
            self._check(turn)

    def _none_missed(self, news: Sequence[News]) -> None:
        last = self.position
        for each in news:
            if each.before != last:
                raise Missed(f"{each.position} comes after {each.before}, and {last} was the last one known")
            if each.op not in OPERATIONS:
                raise Missed(f"{each.op} is nothing this version knows")
            last = each.position

    def _apply_one(self, news: News, stored: Stored | None) -> Callable[[], None]:
        if news.op == "put":
            self._put(news, self._ours.stored(news) or stored)
        elif not self._ours.removed_since(news):  # else it was removed here when that was asked for
            if news.op == "delete":
                self._memory.remove(news.what)
            else:
                self._memory.remove_tenant(news.tenant)
        self.position = news.position
        if news.removing:
            self.removals.note(news.removing, news.position)
        return self._ours.heard(news)

    def _put(self, news: News, stored: Stored | None) -> None:
        if news.entries:  # whatever is held here: somebody may have a copy of it from another replica
            self._memory.watchers.publish(Removal(key=news.what))
        if self._ours.removed_since(news):
            return
        if stored:
            self._memory.learn(*stored, self._redis.now_ms(), told=bool(news.entries))
        else:  # it has ended since, or its removal comes next
            self._memory.forget([news.what])

    async def _reload(self) -> None:
        """Have memory hold what Redis holds: all of it, or what was used last where there is not room for all."""
        ask = self._state.try_to
        at = await ask(redis_entries.position)
        self._memory.overflowed = False
        stored = await self._stored(ask)
        kept = {entry.key for entry, _ in stored}
        self._memory.forget(
            [entry.key for entry in self._memory.entries if entry.key not in kept and not self._ours_is(entry)]
        )
        for some in _by(_READ, stored[::-1]):  # the most recently used last
            for entry, vector in some:
                if not self._ours_is(entry):
                    self._memory.learn(entry, vector, self._redis.now_ms())
            await self._memory.settled()
        self.removals.forget(max(self.position, at))  # Redis may have begun anew
        self.position = at
        self._memory.stats.reloads += 1

    def _ours_is(self, entry: Entry) -> bool:
        return self._ours.decides(entry.key, entry.tenant)

    async def _stored(self, ask: Ask[Any]) -> list[Stored]:
        """The entries for which there is room, each tenant's most recently used first.

        Whose share is the smallest so far is read on next, so that every tenant comes to its fair share, or to
        all it has (progressive filling: Bertsekas and Gallager, Data Networks, 1992, section 6.5.2).
        """
        stored: dict[str, Stored] = {}  # while it is read the order may change
        room, most = self._memory.entries.max_bytes, self._memory.entries.max_entries
        there = await ask(redis_entries.tenants)
        filling = sorted((0.0, tenant, 0) for tenant in there)  # a heap: share so far, tenant, keys so far
        while filling and room > 0 and len(stored) < most:
            share, tenant, start = heapq.heappop(filling)
            count = min(_READ, max(1, (most - len(stored)) // (len(filling) + 1)))
            keys = await ask(partial(redis_entries.recent, tenant=tenant, start=start, count=count))
            found = [each for each in await ask(partial(self._redis.read, keys=keys)) if each]
            stored |= {entry.key: self._known(entry, vector) for entry, vector in found}
            taken = sum(entry.size for entry, _ in found)
            room -= taken
            if start + len(keys) < there[tenant] and keys:
                share += max(len(keys) / most, taken / self._memory.entries.max_bytes)
                heapq.heappush(filling, (share, tenant, start + len(keys)))
        self._memory.overflowed = bool(filling)
        return list(stored.values())

    def _known(self, entry: Entry, vector: Vector | None) -> Stored:
        """Where memory has it already, nothing is held twice."""
        held = self._memory.same(entry)
        return (held, None) if held else (entry, vector)


def _by(count: int, items: Sequence[Any]) -> Iterator[list[Any]]:
    rest = iter(items)
    while part := list(islice(rest, count)):
        yield part
