"""A simulated bad network: a TCP proxy on loopback that mistreats what passes through it.

Toxics and their names are Toxiproxy's (https://github.com/Shopify/toxiproxy#toxics): latency, timeout, slicer,
limit_data. They are switched while connections are open, for each direction alone. They are written again here because
tests must switch them from their own event loop within a millisecond, without a process.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, Self, TypeAlias

Direction: TypeAlias = Literal["upstream", "downstream"]  # towards the server; towards the client
_READ_BYTES = 65_536
_POLL_S = 0.005
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER on, for no time: close sends RST in place of FIN


@dataclass(frozen=True, slots=True)
class Latency:
    """Everything arrives later, by `latency_ms`."""

    latency_ms: float


@dataclass(frozen=True, slots=True)
class Timeout:
    """A black hole: nothing passes.

    Bytes are held back until the toxic is removed, as TCP would send them again. (Toxiproxy drops them, which no
    network does to a connection that stays open: its two ends would lose the framing.)
    """


@dataclass(frozen=True, slots=True)
class Slicer:
    """Data is cut into segments of `average_bytes`, `delay_us` apart."""

    average_bytes: int
    delay_us: float = 0


@dataclass(frozen=True, slots=True)
class LimitData:
    """After `limit_bytes` more the connection is reset (RST), in the middle of whatever it is in."""

    limit_bytes: int


Toxic: TypeAlias = Latency | Timeout | Slicer | LimitData


class FaultProxy:
    """`async with FaultProxy("127.0.0.1:50051") as proxy`: connect to `proxy.address` in place of the target.

    It opens a connection of its own to the target for each it takes. Leaving it resets them all.
    """

    def __init__(self, target: str):
        self.target = target
        self.address = ""
        self._toxics: dict[Direction, list[Toxic]] = {"upstream": [], "downstream": []}
        self._connections: set[_Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, backlog=2_048)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._server.close()
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def add(self, toxic: Toxic, *directions: Direction) -> None:
        """Mistreat these directions, or both, from now on, on open connections and on new ones."""
        for direction in directions or ("upstream", "downstream"):
            self._toxics[direction].append(toxic)

    def heal(self) -> None:
        """Remove all toxics; connections stay."""
        for toxics in self._toxics.values():
            toxics.clear()

    def cut(self) -> None:
        """Reset every connection, as when the machine at either end goes away."""
        for connection in tuple(self._connections):
            connection.close(reset=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._join(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: writer.close())  # also of one that is cancelled before its first step

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = self.target.rpartition(":")
        try:
            there, back = await asyncio.open_connection(host, int(port))
        except OSError:
            _close(writer, reset=True)
            return
        connection = _Connection(writer, back)
        self._connections.add(connection)
        try:
            links = (
                _Link(reader, back, connection, self._toxics["upstream"]),
                _Link(there, writer, connection, self._toxics["downstream"]),
            )
            await asyncio.gather(*(link.run() for link in links))
        finally:
            self._connections.discard(connection)
            connection.close()


class _Connection:
    """A client's connection and the one to the target that belongs to it."""

    def __init__(self, *writers: asyncio.StreamWriter):
        self._writers = writers

    def close(self, reset: bool = False) -> None:
        for writer in self._writers:
            _close(writer, reset)


class _Link:
    """One direction of one connection. Reading and writing are two tasks, so that latency costs no bandwidth."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        connection: _Connection,
        toxics: list[Toxic],
    ):
        self._reader, self._writer, self._connection, self._toxics = reader, writer, connection, toxics
        self._queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(64)
        self._passed: dict[LimitData, int] = {}

    async def run(self) -> None:
        """Until either side closes."""
        with suppress(OSError):
            reading = asyncio.create_task(self._read())
            try:
                await self._write()
            finally:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)

    async def _read(self) -> None:
        data = b"more"
        while data:
            try:
                data = await self._reader.read(_READ_BYTES)
            except OSError:  # reset by the peer: the other side is notified by our own reset
                self._connection.close(reset=True)
                data = b""
            await self._queue.put((time.monotonic(), data))

    async def _write(self) -> None:
        while True:
            arrived, data = await self._queue.get()
            await self._delay(arrived)
            if not data:
                if not any(isinstance(toxic, Timeout) for toxic in self._toxics):
                    self._connection.close()
                return
            for segment in self._segments(data):
                await self._send(segment)

    async def _delay(self, arrived: float) -> None:
        latency_ms = sum(toxic.latency_ms for toxic in self._toxics if isinstance(toxic, Latency))
        wait_s = arrived + latency_ms / 1000 - time.monotonic()
        if wait_s > 0:
            await asyncio.sleep(wait_s)

    def _segments(self, data: bytes) -> Iterator[bytes]:
        size = min((toxic.average_bytes for toxic in self._toxics if isinstance(toxic, Slicer)), default=len(data))
        return (data[start : start + size] for start in range(0, len(data), size))

    async def _send(self, segment: bytes) -> None:
        ends = False
        while any(isinstance(toxic, Timeout) for toxic in self._toxics) and not self._writer.is_closing():
            await asyncio.sleep(_POLL_S)
        for toxic in tuple(self._toxics):
            match toxic:
                case Slicer(delay_us=delay_us) if delay_us:
                    await asyncio.sleep(delay_us / 1_000_000)
                case LimitData(limit_bytes=limit):
                    passed = self._passed.get(toxic, 0)
                    self._passed[toxic] = passed + len(segment)
                    if passed + len(segment) > limit:
                        segment, ends = segment[: max(0, limit - passed)], True
        self._writer.write(segment)
        await self._writer.drain()
        if ends:
            self._connection.close(reset=True)


def _close(writer: asyncio.StreamWriter, reset: bool = False) -> None:
    if not reset:
        writer.close()
        return
    with suppress(OSError):  # it is gone already
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    writer.transport.abort()
