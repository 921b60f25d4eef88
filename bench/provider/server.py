"""The server: what it counts, how it behaves, and the answers. `http1` and `http2` put them on the wire."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Literal, Self

from bench.provider import events
from bench.provider.faults import Died, reset
from bench.provider.http1 import serve_http1

_CLOSING_S = 1.0

Protocol = Literal["http1", "http2"]


@dataclass(frozen=True, slots=True)
class Behaviour:
    """How one answer goes."""

    tokens: int = 4
    first_ms: float = 0
    each_ms: float = 0
    dies_after: int | None = None  # tokens; the connection is reset then. 0: before anything was sent
    after_done: Literal["end", "silence", "flood"] = "end"  # of the body


@dataclass(slots=True)
class Counts:
    """The connections and requests so far."""

    accepted: int = 0  # connections
    resumed: int = 0  # of those, whose TLS session was an earlier one's
    asked: int = 0  # answers begun
    stopped: int = 0  # of those, given up by the caller


@dataclass
class SimulatedProvider:
    """`async with SimulatedProvider("http2", tls) as provider:`; its API is at `provider.url`."""

    protocol: Protocol = "http1"
    tls: ssl.SSLContext | None = None
    behaviour: Behaviour = field(default_factory=Behaviour)
    upcoming: list[Behaviour] = field(default_factory=list)  # of the next answers, before `behaviour` is used again
    counts: Counts = field(default_factory=Counts)
    port: int = 0  # 0: any

    def __post_init__(self) -> None:
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.answering = 0  # answers under way
        if self.tls:
            self.tls.set_alpn_protocols(["h2"] if self.protocol == "http2" else ["http/1.1"])

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port, ssl=self.tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._server.close()
        self.close_connections()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}/v1"

    @property
    def open(self) -> int:
        """Connections, now."""
        return len(self._writers)

    def close_connections(self, by_reset: bool = False) -> None:
        """All there are: with a goodbye (FIN), or by RST."""
        for writer in tuple(self._writers):
            reset(writer) if by_reset else writer.close()

    async def answer(self, api: events.Api = events.CHAT) -> AsyncGenerator[bytes, None]:
        """The body of the next answer, event by event. Raises `Died`."""
        behaviour = self.upcoming.pop(0) if self.upcoming else self.behaviour
        self.counts.asked += 1
        self.answering += 1
        try:
            async with aclosing(self._events(behaviour, api)) as text:
                async for event in text:
                    yield event
            yield api.last
            while behaviour.after_done != "end":
                await asyncio.sleep(3600 if behaviour.after_done == "silence" else 0)
                yield b": more\n\n" * 1_000
        finally:
            self.answering -= 1

    async def _events(self, behaviour: Behaviour, api: events.Api) -> AsyncGenerator[bytes, None]:
        try:
            await asyncio.sleep(behaviour.first_ms / 1000)
            for event in api.first:
                yield event
            for number in range(behaviour.tokens):
                if number == behaviour.dies_after:
                    raise Died
                if number and behaviour.each_ms:
                    await asyncio.sleep(behaviour.each_ms / 1000)
                yield api.token
            for event in api.end(behaviour.tokens):
                yield event
        except (asyncio.CancelledError, GeneratorExit):
            self.counts.stopped += 1
            raise

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)  # here: a task that is cancelled before its first step runs nothing
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.counts.accepted += 1
        tls = writer.get_extra_info("ssl_object")
        self.counts.resumed += bool(tls and tls.session_reused)
        try:
            if self.protocol == "http2":
                from bench.provider.http2 import serve_http2  # h2 is a package of the tests, not of the extra `proxy`

                await serve_http2(self.answer, reader, writer)
            else:
                await serve_http1(self.answer, reader, writer)
        except Died:
            reset(writer)
        except (OSError, asyncio.IncompleteReadError):
            pass  # the caller has gone
        finally:
            self._writers.discard(writer)
            writer.close()
            await _closed(writer)


async def _closed(writer: asyncio.StreamWriter) -> None:
    """Return when the connection is closed: over TLS the other side has a last word, which need not come."""
    try:
        async with asyncio.timeout(_CLOSING_S):
            await writer.wait_closed()
    except (OSError, TimeoutError):
        writer.transport.abort()
        await asyncio.sleep(0)
