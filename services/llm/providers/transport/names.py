"""Addresses of hosts, known before a connection needs them.

A lookup takes a round trip or several, and a burst that needs more connections than are kept would wait for it. So a
name that was asked for once is asked for again in good time, beside all requests.
"""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

AGAIN_S = 30.0  # after an answer, or a failure
USABLE_S = 90.0  # an answer that cannot be had again counts that long
_Name = tuple[str, int, socket.AddressFamily]


@dataclass(slots=True)
class _Known:
    addresses: list[ResolveResult]
    since: float  # on the loop's clock
    turn: int = 0  # each connection begins with another address


class FreshNames(AbstractResolver):
    """Answers from memory, which is renewed until `close`. `inner` resolves; by default the machine's resolver."""

    def __init__(self, inner: AbstractResolver | None = None):
        self._inner = inner or aiohttp.DefaultResolver()
        self._known: dict[_Name, _Known] = {}
        self._asking: dict[_Name, asyncio.Task[list[ResolveResult]]] = {}
        self._timers: dict[_Name, asyncio.TimerHandle] = {}
        self._closed = False

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """The addresses of `host`. Raises OSError."""
        name = host, port, family
        known = self._known.get(name)
        if known is None or known.since + USABLE_S <= asyncio.get_running_loop().time():
            return await asyncio.shield(self._ask(name))
        known.turn = (known.turn + 1) % len(known.addresses)
        return known.addresses[known.turn :] + known.addresses[: known.turn]

    def forget(self, before: float) -> bool:
        """Forget addresses that were resolved before `before` (on the loop's clock), because none answered: the next
        connection resolves again. Returns whether there were any."""
        old = [name for name, known in self._known.items() if known.since < before]
        for name in old:
            del self._known[name]
        return bool(old)

    async def close(self) -> None:
        self._closed, asking = True, list(self._asking.values())
        for timer in self._timers.values():
            timer.cancel()
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
        await self._inner.close()

    def _ask(self, name: _Name) -> asyncio.Task[list[ResolveResult]]:
        """Resolve a name, with one request at a time for each."""
        if name not in self._asking:
            self._asking[name] = asyncio.create_task(self._learn(name))
            self._asking[name].add_done_callback(lambda task: task.cancelled() or task.exception())
        return self._asking[name]

    async def _learn(self, name: _Name) -> list[ResolveResult]:
        loop = asyncio.get_running_loop()
        try:
            addresses = await self._inner.resolve(*name)
            if addresses:
                self._known[name] = _Known(addresses, loop.time())
            return addresses
        finally:
            self._asking.pop(name, None)
            if timer := self._timers.pop(name, None):  # of a question before the name was forgotten
                timer.cancel()
            if name in self._known and not self._closed:  # a name that never was is not asked for again
                self._timers[name] = loop.call_later(AGAIN_S, self._ask, name)
