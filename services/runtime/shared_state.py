"""State that several processes share, on Redis, and what a service does while Redis is away: without it, at once.

A call that fails, or takes longer than `timeout_s`, takes the whole connection for lost. From then on nothing waits for
it any more: every call fails in microseconds, and the service uses what it has in its own memory. Meanwhile `run` asks
for Redis again every now and then; when it answers, those who joined with `on_return` hear of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Any, TypeVar

from prometheus_client import Gauge
from pydantic import Field
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

T = TypeVar("T")
RedisUrl = Annotated[
    str,
    Field(description="Redis that holds what replicas share, redis://host:port/db. Empty: each keeps its own."),
]
PREFIX = "hedgerow:"  # of every key
_ASK_EVERY_S = 0.2
_UP = Gauge("hedgerow_shared_state_up", "Whether Redis answers: 1, or 0 while each process uses its own memory.")
_log = logging.getLogger(__name__)


class SharedStateLost(Exception):
    """Redis does not answer. Nothing is known of what the call has done."""


class SharedState:
    """A connection to Redis that is either there or not, and never in between. `run()` must be running."""

    def __init__(self, client: Redis, timeout_s: float):
        self._client, self._timeout_s = client, timeout_s
        self._up = False
        self._returns: list[Callable[[], Awaitable[None]]] = []
        self._lost = asyncio.Event()

    @property
    def up(self) -> bool:
        """Whether the last call, or the last ping since it failed, was answered."""
        return self._up

    def on_return(self, hear: Callable[[], Awaitable[None]]) -> None:
        """Have `hear` awaited each time Redis is there (again), the first time included, before `up` says so."""
        self._returns.append(hear)

    async def ask(self, call: Callable[[Redis], Awaitable[T]]) -> T:
        """`await call(client)`, within the time limit. Raises `SharedStateLost`, at once while Redis is away."""
        if not self._up:
            raise SharedStateLost("Redis does not answer")
        return await self.try_to(call)

    async def try_to(self, call: Callable[[Redis], Awaitable[T]]) -> T:
        """`ask` also while Redis counts as away: for those who hear of its return."""
        try:
            async with asyncio.timeout(self._timeout_s):
                return await call(self._client)
        except (RedisError, OSError, TimeoutError) as error:
            self._lose(error)
            raise SharedStateLost(f"Redis: {type(error).__name__}") from None

    async def follow(self, call: Callable[[Redis], Awaitable[T]], within_s: float) -> T:
        """A call that may wait on the server's side for as long as `within_s`. Raises `SharedStateLost`."""
        if not self._up:
            raise SharedStateLost("Redis does not answer")
        try:
            async with asyncio.timeout(within_s + self._timeout_s):
                return await call(self._client)
        except (RedisError, OSError, TimeoutError) as error:
            self._lose(error)
            raise SharedStateLost(f"Redis: {type(error).__name__}") from None

    async def run(self) -> None:
        """Notice when Redis returns, until cancelled."""
        while True:
            if not self._up:
                await self._try_again()
            self._lost.clear()
            if self._up:
                await self._lost.wait()
            await asyncio.sleep(_ASK_EVERY_S)

    async def _try_again(self) -> None:
        try:
            await self.try_to(lambda client: client.ping())
            for hear in self._returns:
                await hear()
        except SharedStateLost:
            return
        self._up = True
        _UP.set(1)
        _log.info("Redis is there")

    def _lose(self, error: BaseException) -> None:
        if self._up:
            _log.warning("Redis does not answer (%s); each process uses its own memory until it does", error)
        self._up = False
        _UP.set(0)
        self._lost.set()


@asynccontextmanager
async def connected(url: str, timeout_s: float = 0.25) -> AsyncIterator[SharedState]:
    """A `SharedState` that is kept up inside. It may not be `up` yet: nothing waits for Redis."""
    client: Any = Redis.from_url(
        url, retry=Retry(NoBackoff(), 0), socket_connect_timeout=timeout_s, socket_keepalive=True
    )
    state = SharedState(client, timeout_s)
    running = asyncio.create_task(state.run())
    try:
        yield state
    finally:
        running.cancel()
        await asyncio.wait({running})
        await client.aclose()
