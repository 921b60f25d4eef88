"""State that several processes share, on Redis, and what a service does while Redis is down: without it, at once.

A call that fails, or takes longer than `timeout_s`, takes the whole connection for lost. From then on nothing waits for
it any more: every call fails in microseconds, and the service uses what it has in its own memory; callbacks of
`on_loss` are called. Meanwhile `run` asks for Redis again every now and then; when it answers, callbacks of
`on_return` bring their part up to date, and only then does `up` say so.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from prometheus_client import Gauge
from pydantic import AfterValidator, Field

from services.runtime.line_limit import LineLimit
from services.runtime.security.secrets import AS_SHOWN, Url

if TYPE_CHECKING:  # its client is a sixth of what a gateway imports, and most have no Redis
    from redis.asyncio import Redis

T = TypeVar("T")


def _usable(url: Url) -> Url:
    """Raises ValueError for what is no address of a Redis, with a text that says nothing of it."""
    try:
        if url:
            from redis.asyncio.connection import parse_url

            options = parse_url(url.get_secret_value())
            if options.keys() & set(_OTHER_REPLIES):
                raise ValueError
    except ValueError:
        refused = " and ".join(_OTHER_REPLIES)
        raise ValueError(f"redis://host:port/db, rediss://… or unix://…, without the options {refused}") from None
    return url


RedisUrl = Annotated[
    Url,
    Field(description="Redis that replicas share, redis://host:port/db. Empty: none."),
    AfterValidator(_usable),
    AS_SHOWN,
]
PREFIX = "hedgerow:"  # of every key
OWN_MEMORY = "each process uses its own memory"
_ASK_EVERY_S = 0.2
_OTHER_REPLIES = ("protocol", "decode_responses")  # options of a URL that change the replies of Redis' client
_REFUSALS = ("WRONGTYPE", "OOM", "MISCONF", "NOREPLICAS")  # codes of errors
_log = logging.getLogger(__name__)
_states = list["SharedState"]()  # of this process


@cache
def _measure() -> None:
    """Add the metric, in processes that have a Redis alone: 0 would be an outage."""
    up = Gauge("hedgerow_shared_state_up", "1 while Redis answers on every connection of the process, else 0.")
    up.set_function(lambda: all(state.up for state in list(_states)))  # a scrape is on another thread


class SharedStateLost(Exception):
    """Redis does not answer. The effect of the call is unknown."""


class SharedState:
    """A connection to Redis that is either there or not, and never in between. `run()` must be running."""

    def __init__(self, client: Redis, timeout_s: float, without: str = OWN_MEMORY):
        self._client, self._timeout_s, self._without = client, timeout_s, without
        self._up = False
        self._returns: list[Callable[[], Awaitable[None]]] = []
        self._losses: list[Callable[[], None]] = []
        self._lost, self._there, self._tried = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._lines, self._loss_is_said = LineLimit(), True
        self._time = 0  # how often Redis was lost: a call that began before the last time says nothing about now

    @property
    def up(self) -> bool:
        """Whether the last call, or the last ping since it failed, was answered."""
        return self._up

    def on_return(self, listener: Callable[[], Awaitable[None]]) -> None:
        """Have `listener` awaited each time Redis answers (again), the first time included, before `up` says so."""
        self._returns.append(listener)

    def on_loss(self, listener: Callable[[], None]) -> None:
        """Have `listener` called each time Redis is lost, once `up` says so."""
        self._losses.append(listener)

    async def tried(self) -> None:
        """Return after the first attempt to reach Redis."""
        await self._tried.wait()

    async def back(self) -> None:
        """Return when Redis answers."""
        await self._there.wait()

    def lose(self, why: str) -> None:
        """Take Redis for lost, and begin again: what is known of it may be wrong. Nothing where it is lost already."""
        if self._up:
            self._lose(SharedStateLost(why))

    async def ask(self, call: Callable[[Redis], Awaitable[T]]) -> T:
        """`await call(client)`, within the time limit. Raises `SharedStateLost`, at once while Redis is down."""
        if not self._up:
            raise SharedStateLost("Redis does not answer")
        return await self.try_to(call)

    async def try_to(self, call: Callable[[Redis], Awaitable[T]]) -> T:
        """`ask` also while Redis counts as down: for callbacks of its return."""
        return await self._within(self._timeout_s, call)

    async def follow(self, call: Callable[[Redis], Awaitable[T]], within_s: float) -> T:
        """A call that may wait on the server's side for as long as `within_s`. Raises `SharedStateLost`."""
        if not self._up:
            raise SharedStateLost("Redis does not answer")
        return await self._within(within_s + self._timeout_s, call)

    async def transfer(self, call: Callable[[Redis], Awaitable[T]], within_s: float) -> T:
        """A call that moves megabytes, which takes `within_s` beside the usual time. Raises `TimeoutError` for one that
        takes longer while Redis answers others, because transfers share a network; else `SharedStateLost`."""
        if not self._up:
            raise SharedStateLost("Redis does not answer")
        try:
            async with asyncio.timeout(within_s + self._timeout_s):
                return await self._within(None, call)
        except TimeoutError:
            await self.ask(_ping)
            raise

    async def run(self) -> None:
        """Notice when Redis returns, until cancelled."""
        while True:
            if not self._up:
                await self._try_again()
            self._lost.clear()
            if self._up:
                await self._lost.wait()
            await asyncio.sleep(_ASK_EVERY_S)

    async def _within(self, seconds: float | None, call: Callable[[Redis], Awaitable[T]]) -> T:
        from redis.exceptions import RedisError

        time = self._time
        try:
            async with asyncio.timeout(seconds):
                return await call(self._client)
        except (RedisError, OSError, TimeoutError) as error:
            if time == self._time:
                self._lose(error)
            raise SharedStateLost(f"Redis: {type(error).__name__}") from None

    async def _try_again(self) -> None:
        try:
            await self.try_to(_connect_again)
            for listener in self._returns:
                await listener()
        except SharedStateLost:
            return
        except Exception:  # a fault of a callback; without this Redis would never be asked again
            _log.exception("a callback after the return of Redis failed; it is repeated")
            return
        finally:
            self._tried.set()
        self._up = True
        self._there.set()
        if self._loss_is_said:
            _log.info("Redis answers again")

    def _lose(self, error: BaseException) -> None:
        from redis.exceptions import ResponseError

        was_up, self._up = self._up, False
        refused = isinstance(error, ResponseError)  # as by one that is full, which answers each ping between
        news = was_up or not self._tried.is_set() or not (self._loss_is_said or refused)
        self._time += 1
        self._there.clear()
        self._lost.set()
        if news:
            self._loss_is_said = not refused or self._lines.take() is not None
        if news and self._loss_is_said:
            cause = str(error) or type(error).__name__
            _log.warning("Redis does not answer (%s); until it does, %s", cause, self._without)
        if was_up:
            for listener in self._losses:
                listener()


def is_refused(reply: object) -> bool:
    """Whether a reply of a pipeline is an error of one command, and Redis answers others: what has the name of its key
    is no value of ours, or writes have no room, no disk or no replica. Raises an error of any other kind."""
    if not isinstance(reply, Exception):
        return False
    said = f"{getattr(reply, 'status_code', '')} {reply}"  # the client takes the code of some errors out of their text
    if not any(code in said for code in _REFUSALS):
        raise reply
    return True


async def _connect_again(client: Redis) -> None:
    """Ping on a new connection: pooled ones may belong to a Redis that is down, and each would count as another
    loss."""
    await client.connection_pool.disconnect(inuse_connections=False)
    await _ping(client)


async def _ping(client: Redis) -> None:
    await client.ping()


@asynccontextmanager
async def connected(url: Url, timeout_s: float, without: str = OWN_MEMORY) -> AsyncIterator[SharedState]:
    """A `SharedState` that runs inside the block. It may not be `up` yet. `without`: what happens while it is not."""
    from redis.asyncio import Redis
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff

    client: Any = Redis.from_url(
        url.get_secret_value(),
        retry=Retry(NoBackoff(), 0),
        # With one of its own the client sends inside `asyncio.wait_for`, which in Python 3.11 swallows a cancellation
        # that comes when it is just done: a task that was cancelled would go on for ever.
        socket_timeout=None,
        socket_connect_timeout=timeout_s,
        socket_keepalive=True,
    )
    state = SharedState(client, timeout_s, without)
    running = asyncio.create_task(state.run())
    _states.append(state)
    try:
        _measure()
        yield state
    finally:
        _states.remove(state)
        running.cancel()
        await asyncio.wait({running})
        await client.aclose()
