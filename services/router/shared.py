"""Shares observations between routers: each router adds those of its gateways to a stream on Redis, and reads those of
the other routers from it.

A gateway reports to one router only. With the stream all routers' tables agree, and a new router reads the whole
window, so that it knows as much as the others. Ages are computed from the entries' ids, which contain Redis' time.

A router uses its own observations at once and skips them in the stream. While Redis is down it has only those; other
routers never get the observations of that time.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from google.protobuf.message import DecodeError
from prometheus_client import Counter

from hedgerow.router.v1 import router_pb2 as pb
from services.runtime.errors import InvalidInput
from services.runtime.shared_state import PREFIX, SharedState, SharedStateLost

if TYPE_CHECKING:
    from redis.asyncio import Redis

KEY = f"{PREFIX}router:observations"
_GATHER_S = 0.05  # interval in which observations are sent together
_MOST_GATHERED = 10_000  # observations
_MOST_ENTRIES = 100_000  # in the stream, so that a long window does not fill Redis
_PAGE = 500  # entries
_WAIT_S = 1.0  # for the next entry
_FROM, _BATCH = b"from", b"batch"
_MERGED = Counter("hedgerow_router_merged", "Observations of other routers that this one merged.")
_DROPPED = Counter("hedgerow_router_merge_dropped", "Observations lost between routers.")
_log = logging.getLogger(__name__)
Entry = tuple[bytes, dict[bytes, bytes]]


class SharedObservations:
    """This router's connection to the stream. `run()` must be running. `take(request, age_s)` adds an observation to
    the table."""

    def __init__(self, state: SharedState, window_s: float, take: Callable[[pb.ObserveRequest, float], object]):
        self._state, self._window_s, self._take = state, window_s, take
        self._me = secrets.token_hex(8).encode()
        self._pending, self._unsent = pb.ObserveRequest(), asyncio.Event()
        self._last = b"0"  # id of the last read entry

    def publish(self, request: pb.ObserveRequest) -> None:
        """Send a gateway's observations to the other routers."""
        room = max(0, _MOST_GATHERED - len(self._pending.observations))
        self._pending.observations.extend(request.observations[:room])
        _DROPPED.inc(max(0, len(request.observations) - room))
        self._unsent.set()

    async def catch_up(self) -> None:
        """Read all unread entries of the window. Raises `SharedStateLost`."""
        await self._state.try_to(self._limit_position)
        while entries := await self._state.try_to(self._page):
            self._merge(entries, await self._state.try_to(_now_ms))

    async def run(self) -> None:
        """Send and receive, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keep_sending())
            group.create_task(self._keep_receiving())

    async def _keep_sending(self) -> None:
        while True:
            await self._unsent.wait()
            await asyncio.sleep(_GATHER_S)
            self._unsent.clear()
            pending, self._pending = self._pending, pb.ObserveRequest()
            try:
                await self._state.ask(partial(self._add, batch=pending.SerializeToString()))
            except SharedStateLost:
                _DROPPED.inc(len(pending.observations))

    async def _keep_receiving(self) -> None:
        while True:
            await self._state.back()
            with suppress(SharedStateLost):
                await self._receive()

    async def _receive(self) -> None:
        """Merge new entries, until Redis is down."""
        await self._state.ask(self._limit_position)
        while True:
            entries = await self._state.follow(self._next, _WAIT_S)
            if entries:
                self._merge(entries, await self._state.ask(_now_ms))

    async def _add(self, client: Redis, batch: bytes) -> None:
        """Add an entry, and delete those older than the window."""
        oldest = await _now_ms(client) - int(self._window_s * 1000)
        pipeline: Any = client.pipeline(transaction=False)
        pipeline.xadd(KEY, {_FROM: self._me, _BATCH: batch}, maxlen=_MOST_ENTRIES)
        pipeline.xtrim(KEY, minid=max(oldest, 0))
        pipeline.pexpire(KEY, int(self._window_s * 1000) + 1000)
        await pipeline.execute()

    async def _limit_position(self, client: Redis) -> None:
        """Move the read position into the window, and not after the last entry: a new Redis whose clock is behind the
        old one's numbers its entries below the old position, and they would never be read. One that goes on with the
        entries of the old one numbers them above these, whatever its clock says."""
        now_ms = await _now_ms(client)
        last = await cast(Any, client).xrevrange(KEY, count=1)
        oldest_ms, newest_ms = now_ms - int(self._window_s * 1000), _ms(last[0][0]) if last else now_ms
        if not oldest_ms <= _ms(self._last) <= newest_ms:
            self._last = b"%d" % max(0, min(_ms(self._last), newest_ms), oldest_ms)

    async def _page(self, client: Redis) -> Sequence[Entry]:
        return cast(Sequence[Entry], await cast(Any, client).xrange(KEY, b"(" + self._last, count=_PAGE))

    async def _next(self, client: Redis) -> Sequence[Entry]:
        block_ms = int(_WAIT_S * 1000)
        found = await cast(Any, client).xread({KEY: self._last}, count=_PAGE, block=block_ms)
        return [entry for _, entries in found for entry in entries] if found else []

    def _merge(self, entries: Sequence[Entry], now_ms: int) -> None:
        for number, fields in entries:
            self._last = number
            if fields.get(_FROM) != self._me:
                self._merge_one(fields, max(0, now_ms - _ms(number)) / 1000)

    def _merge_one(self, fields: dict[bytes, bytes], age_s: float) -> None:
        try:
            request = pb.ObserveRequest.FromString(fields[_BATCH])
            self._take(request, age_s)
        except (KeyError, DecodeError, InvalidInput) as problem:  # from another version, or not from a router
            _DROPPED.inc()
            _log.warning("%s: an entry that cannot be read (%s)", KEY, type(problem).__name__)
        else:
            _MERGED.inc(len(request.observations))


def _ms(number: bytes) -> int:
    """The time in the id of an entry, in Unix milliseconds."""
    return int(number.partition(b"-")[0])


async def _now_ms(client: Redis) -> int:
    seconds, microseconds = await cast(Any, client).time()
    return int(seconds) * 1000 + int(microseconds) // 1000
