"""Sends requests to a provider over pooled connections, of HTTP/1.1 or HTTP/2, with a limit on concurrent requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress

from services.llm.errors import BadEngineSettings
from services.llm.providers.config import ProviderSettings
from services.llm.providers.transport.http1 import Http1
from services.llm.providers.transport.reply import ProviderReply, ReplyLimits
from services.llm.providers.transport.wire import Broken, Lost, NotConnected, Options, Wire, WireReply
from services.runtime.deadline import Deadline

# A body that does not end soon after the last event costs the provider its connection.
_DRAIN_S, _DRAIN_BYTES = 0.5, 64 * 1024
# How long a request waits for a connection whose answer has just ended, before opening another.
_ABOUT_TO_END_S = 0.005


def open_wire(group: str, own: ProviderSettings, url: str) -> Wire:
    """The wire to a provider, as its settings say. Raises BadEngineSettings; `group` names the settings."""
    options = Options(
        max_connections=own.max_connections,
        connect_s=own.connect_timeout_ms / 1000,
        read_s=own.read_timeout_ms / 1000,
        idle_s=own.idle_timeout_ms / 1000,
        ca_file=own.ca_file,
    )
    try:
        if own.http_version == "1.1":
            return Http1(url, options)
        from services.llm.providers.transport.http2 import Http2  # not every process needs it

        return Http2(options)
    except (OSError, RuntimeError) as error:
        raise BadEngineSettings(f"{group}.ca_file: must hold certificates as PEM ({type(error).__name__})") from None


class ProviderClient:
    """A client of one provider. `headers` are sent with every request."""

    def __init__(self, wire: Wire, headers: Mapping[str, str], max_requests: int, limits: ReplyLimits):
        self._wire, self._headers, self._limits = wire, headers, limits
        self.used_at = float("-inf")  # when a request or an answer was last seen, on the loop's clock
        self._slots = asyncio.Semaphore(max_requests)
        self._draining: set[asyncio.Task[None]] = set()
        self._about_to_end: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def request(
        self, method: str, url: str, deadline: Deadline, body: bytes = b"", **headers: str
    ) -> AsyncIterator[ProviderReply]:
        """Send a request. Raises Broken, and TimeoutError at the deadline.

        Leaving the block ends the provider's answer, unless `reply.complete` was set: then the rest of the body is read
        in the background, so that the connection can be reused.
        """
        left, loop = deadline.remaining(), asyncio.get_running_loop()
        self.used_at = loop.time()
        async with asyncio.timeout(left if left < float("inf") else None):
            await self._acquire_slot()
            try:
                wired = await self._send(method, url, {**self._headers, **headers}, body)
            except BaseException:
                self._slots.release()
                raise
            reply = ProviderReply(wired, self._limits)
            try:
                yield reply
            finally:
                self.used_at = loop.time()
                await self._leave(reply, wired)

    async def close(self) -> None:
        for task in self._draining:
            task.cancel()
        await asyncio.gather(*self._draining, return_exceptions=True)
        await self._wire.close()

    async def _acquire_slot(self) -> None:
        if self._about_to_end:
            await asyncio.wait(self._about_to_end, timeout=_ABOUT_TO_END_S)
        await self._slots.acquire()

    async def _send(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> WireReply:
        """Send, and repeat once, on a new connection, if a pooled one has died. Not on other pooled ones: the request
        itself may be what ends each."""
        on_new = False
        while True:
            try:
                return await self._wire.send(method, url, headers, body, on_new=on_new)
            except NotConnected as failed:  # nothing was sent
                if not failed.kept:
                    raise
            except Lost as lost:
                if on_new or not lost.kept:
                    raise
                on_new = True

    async def _leave(self, reply: ProviderReply, wired: WireReply) -> None:
        if reply.complete and not wired.ended:
            self._drain_behind(wired)
            return
        self._slots.release()
        if not wired.ended:
            await wired.drop()

    def _drain_behind(self, wired: WireReply) -> None:
        task = asyncio.create_task(self._drain(wired))
        for tasks in (self._draining, self._about_to_end):
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        asyncio.get_running_loop().call_later(_ABOUT_TO_END_S, self._about_to_end.discard, task)

    async def _drain(self, wired: WireReply) -> None:
        left = _DRAIN_BYTES
        try:
            with suppress(Broken, TimeoutError):
                async with asyncio.timeout(_DRAIN_S):
                    while left > 0 and not wired.ended:
                        left -= len(await wired.read())
        finally:
            self._slots.release()
            if not wired.ended:
                await wired.drop()
