"""Simulated callers without a credential.

They open so many streams on each of so many connections, say so, and keep them all open until they are stopped. Streams
that the server ends are opened again, all of them within a second. Raw HTTP/2, because no gRPC library sends headers
without a body. Their kind:

- `watches`: `grpc.health.v1.Health/Watch`, asked for in order
- `headers`: a question's headers, and nothing after them
- `bodies`: a question whose body comes a byte a second
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import ConnectionTerminated, Event, PingAckReceived, StreamEnded, StreamReset

from tests.fault.apart import apart

_WATCH, _GENERATE = "/grpc.health.v1.Health/Watch", "/hedgerow.gateway.v1.GatewayService/Generate"
_EMPTY = bytes(5)  # a whole message, as gRPC frames it
_BEGUN = b"\0" + (1_000).to_bytes(4)  # the beginning of one of a thousand bytes
_TICKS = 20  # a second
_AGAIN_S = 1.0  # until a connection that was closed is made again
_PING = b"all here"


class Stranger(asyncio.Protocol):
    """One connection. `here` is set once the other side has taken in all of its streams."""

    def __init__(self, kind: str, streams: int, key: str = ""):
        self._kind, self._streams, self._key = kind, streams, key
        self._h2 = H2Connection(H2Configuration(header_encoding="utf-8"))
        self._open: set[int] = set()
        self._ticks = 0
        self.here, self.gone = asyncio.Event(), asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._h2.initiate_connection()
        self._fill(self._streams)
        self._h2.ping(_PING)
        self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        self.gone.set()

    def data_received(self, data: bytes) -> None:
        for event in self._h2.receive_data(data):
            self._meet(event)
        self._send()

    def _fill(self, at_most: int) -> None:
        """Open the streams that are missing, or so many of them."""
        for _ in range(min(at_most, self._streams - len(self._open))):
            stream = self._h2.get_next_available_stream_id()
            self._open.add(stream)
            self._h2.send_headers(stream, self._headers())
            if self._kind == "watches":
                self._h2.send_data(stream, _EMPTY, end_stream=True)
            elif self._kind == "bodies":
                self._h2.send_data(stream, _BEGUN)

    def tick(self) -> None:
        """A twentieth of a second has passed."""
        self._ticks += 1
        if self._kind == "bodies" and self._ticks % _TICKS == 0:
            for stream in self._open:
                self._h2.send_data(stream, b"\0")
        self._fill(-(-self._streams // _TICKS))
        self._send()

    def _headers(self) -> list[tuple[str, str]]:
        path = _WATCH if self._kind == "watches" else _GENERATE
        own = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "mesh")]
        key = [("authorization", f"Bearer {self._key}")] if self._key else []
        return [*own, ("content-type", "application/grpc"), ("te", "trailers"), *key]

    def _meet(self, event: Event) -> None:
        match event:
            case PingAckReceived(ping_data=data) if data == _PING:
                self.here.set()
            case StreamEnded(stream_id=stream) if self._kind == "watches":
                self._open.discard(stream)
            case StreamReset(stream_id=stream):  # also of a server that has answered before it read the request
                self._open.discard(stream)
            case ConnectionTerminated():
                self._transport.close()

    def _send(self) -> None:
        self._transport.write(self._h2.data_to_send())


async def _stay(address: str, kind: str, streams: int, key: str, here: asyncio.Semaphore) -> None:
    """One connection, opened again whenever it has ended."""
    host, _, port = address.rpartition(":")
    while True:
        _, stranger = await asyncio.get_running_loop().create_connection(
            lambda: Stranger(kind, streams, key), host, int(port)
        )
        await _either(stranger.here, stranger.gone)
        here.release()
        while not stranger.gone.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stranger.gone.wait(), 1 / _TICKS)
            if not stranger.gone.is_set():
                stranger.tick()
        await asyncio.sleep(_AGAIN_S)


async def _either(*events: asyncio.Event) -> None:
    waiting = [asyncio.create_task(event.wait()) for event in events]
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    for task in waiting:
        task.cancel()


def strangers(
    address: str, kind: str, connections: int = 11, streams: int = 100, key: str = ""
) -> AbstractAsyncContextManager[list[str]]:
    """Keeps strangers connected inside the block."""
    return apart(_strangers, address, kind, connections, streams, key)


async def _strangers(address: str, kind: str, connections: int, streams: int, key: str) -> AsyncIterator[str]:
    here = asyncio.Semaphore(0)
    async with asyncio.TaskGroup() as group:
        for _ in range(connections):
            group.create_task(_stay(address, kind, streams, key, here))
        for _ in range(connections):
            await here.acquire()
        yield "here"
