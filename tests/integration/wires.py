"""One request by HTTP/1.1 or HTTP/2, written and left by hand: client libraries do not say when they let go.

By HTTP/1.1 to leave is to close the connection, by HTTP/2 to reset the stream on a connection that stays.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Protocol

from h2 import events
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.exceptions import ProtocolError

_MOST = 65_536


class Asked(Protocol):
    """A request that was sent."""

    async def until(self, mark: bytes) -> None:
        """Read until the reply has had `mark`. Raises `ConnectionError` where it ends before."""

    async def leave(self) -> None:
        """Have nothing more to do with it."""


class Wire(Protocol):
    """Sends a POST to host:port, which is left at the end at the latest."""

    def __call__(
        self, address: str, path: str, headers: Mapping[str, str], content: bytes
    ) -> AbstractAsyncContextManager[Asked]: ...


@asynccontextmanager
async def http1(address: str, path: str, headers: Mapping[str, str], content: bytes) -> AsyncIterator[Asked]:
    """A `Wire`."""
    reader, writer = await _connected(address)
    all_headers = {"host": address, "content-length": str(len(content)), **headers}
    lines = [f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in all_headers.items())]
    writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + content)
    asked = _Http1(reader, writer)
    try:
        yield asked
    finally:
        await asked.leave()


class _Http1:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        self._reader, self._writer, self._read = reader, writer, b""

    async def until(self, mark: bytes) -> None:
        while mark not in self._read:
            self._read += await _some(self._reader)

    async def leave(self) -> None:
        self._writer.close()
        with suppress(ConnectionError):
            await self._writer.wait_closed()


@asynccontextmanager
async def http2(address: str, path: str, headers: Mapping[str, str], content: bytes) -> AsyncIterator[Asked]:
    """A `Wire`, in plaintext to servers that are known to speak it."""
    reader, writer = await _connected(address)
    asked = _Http2(reader, writer)
    head = {":method": "POST", ":scheme": "http", ":authority": address, ":path": path, **headers}
    asked.send({**head, "content-length": str(len(content))}, content)
    try:
        yield asked
    finally:
        await asked.leave()
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


class _Http2:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        self._reader, self._writer, self._read = reader, writer, b""
        self._h2 = H2Connection(H2Configuration(header_encoding=None))
        self._h2.initiate_connection()
        self._stream = self._h2.get_next_available_stream_id()
        self._left = False

    def send(self, headers: Mapping[str, str], content: bytes) -> None:
        """`content` fits into a window and a frame."""
        self._h2.send_headers(self._stream, list(headers.items()))
        self._h2.send_data(self._stream, content, end_stream=True)
        self._flush()

    async def until(self, mark: bytes) -> None:
        while mark not in self._read:
            for event in self._h2.receive_data(await _some(self._reader)):
                match event:
                    case events.DataReceived(data=bytes(data), flow_controlled_length=int(length)):
                        self._read += data
                        self._h2.acknowledge_received_data(length, self._stream)
                    case events.StreamEnded() | events.StreamReset() | events.ConnectionTerminated():
                        if mark not in self._read:
                            raise ConnectionError(f"it ended: {self._read[-300:]!r}")
                    case _:
                        pass
            self._flush()

    async def leave(self) -> None:
        if not self._left:
            self._left = True
            with suppress(ProtocolError):  # it has ended
                self._h2.reset_stream(self._stream, ErrorCodes.CANCEL)
            self._flush()

    def _flush(self) -> None:
        self._writer.write(self._h2.data_to_send())


async def _connected(address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = address.rpartition(":")
    return await asyncio.open_connection(host, int(port))


async def _some(reader: asyncio.StreamReader) -> bytes:
    data = await reader.read(_MOST)
    if not data:
        raise ConnectionError("the connection ended")
    return data
