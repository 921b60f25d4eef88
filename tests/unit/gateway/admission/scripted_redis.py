"""A Redis that answers as the scripts of quotas do, and a connection to it that may be lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from services.gateway.admission.quota_scripts import RENEW, RESERVE, SETTLE
from services.gateway.admission.shared_quotas import _SHA
from services.runtime.shared_state import SharedStateLost
from tests.clock import loop_clock

REDIS_S = 0.01


class ScriptedRedis:
    """Answers a pipeline after 10 ms, as the scripts do for one tenant that has one slot; `leases` are its."""

    def __init__(self) -> None:
        self.leases: dict[str, float] = {}  # when each ends, by id
        self.spent = 0
        self._calls: list[tuple[Any, ...]] = []
        self.execute: Callable[[], Awaitable[list[Any]]] | None = None  # of a pipeline

    def pipeline(self, transaction: bool) -> ScriptedRedis:
        pipeline = ScriptedRedis()
        pipeline.leases, pipeline.execute = self.leases, self._execute_of(pipeline)
        return pipeline

    def evalsha(self, sha: str, keys: int, *arguments: Any) -> None:
        self._calls.append((sha, *arguments[keys:]))

    def _execute_of(self, pipeline: ScriptedRedis) -> Callable[[], Awaitable[list[Any]]]:
        async def execute(raise_on_error: bool) -> list[Any]:
            await asyncio.sleep(REDIS_S)
            return [self._do(*call) for call in pipeline._calls]

        return execute

    def expire(self) -> None:
        for request_id in [each for each, ends in self.leases.items() if ends <= loop_clock()]:
            del self.leases[request_id]

    def _do(self, sha: str, *arguments: Any) -> Any:
        self.expire()
        if sha == _SHA[RENEW]:
            self.leases |= dict.fromkeys(arguments[1:], loop_clock() + arguments[0])
        if sha == _SHA[RESERVE]:
            if self.leases:
                return [b"concurrency", b"0", b"1"]
            self.leases[arguments[0]] = loop_clock() + arguments[1]
            self.spent += arguments[2]
            return [b"", b"0", b"0"]
        if sha == _SHA[SETTLE]:
            for request_id, over, unleased in zip(*(arguments[first::3] for first in (2, 3, 4)), strict=True):
                if self.leases.pop(request_id, None) is not None or unleased:
                    self.spent -= over
        return None


class FlakyState:
    """As `SharedState`; the next pipeline may be lost on its way there, or on its way back."""

    def __init__(self, redis: ScriptedRedis):
        self.up, self.loses, self._redis, self._returns = True, "", redis, 0
        self._callbacks: list[Callable[[], Awaitable[None]]] = []

    def on_return(self, callback: Callable[[], Awaitable[None]]) -> None:
        self._callbacks.append(callback)

    async def try_to(self, call: Callable[[Any], Awaitable[Any]]) -> None:
        await asyncio.sleep(0)

    async def ask(self, call: Callable[[Any], Awaitable[Any]]) -> Any:
        if not self.up:
            raise SharedStateLost("away")
        loses, self.loses, returns = self.loses, "", self._returns
        if loses != "before":
            reply = await call(self._redis)
        if loses:
            self.up = self.up and self._returns > returns  # one that began before says nothing of now
            raise SharedStateLost(f"lost {loses} it was done")
        return reply

    async def come_back(self) -> None:
        for callback in self._callbacks:
            await callback()
        self.up, self._returns = True, self._returns + 1
