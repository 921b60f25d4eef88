"""A connection of the gateway's HTTP server without a socket: bytes go in, and what an application saw comes out."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, cast

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.config import Config

from services.gateway.http.server.connection import Connection, ConnectionsState
from services.gateway.settings.http import HttpSettings

_TURNS = 12  # of the loop, until everything that can go on has gone on


class Request(NamedTuple):
    """A request as the application saw it. `whole`: its body came to its end."""

    line: str
    body: bytes = b""
    whole: bool = True


class Application:
    """Notes each request, and answers it with its path as soon as it is read and `answers` is set."""

    def __init__(self) -> None:
        self.served: list[Request] = []
        self.scopes: list[Scope] = []
        self.answers = asyncio.Event()
        self.answers.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scopes.append(scope)
        body, more, whole = b"", True, True
        while more and whole:
            message = await receive()
            whole = message["type"] != "http.disconnect"
            body, more = body + message.get("body", b""), message.get("more_body", False)
        self.served.append(Request(f"{scope['method']} {scope['path']}", body, whole))
        await self.answers.wait()
        said = scope["path"].encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(said))]})
        await send({"type": "http.response.body", "body": said})


class _Transport(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written, self.closing, self.aborted, self.paused = bytearray(), False, False, False
        self.unsent = 0  # bytes that the client has not read
        self.full: Callable[[], None] | None = None  # is called where a client that does not read is sent many
        self.received: socket.socket | None = None  # has what has come and is not read

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self.closing:
            self.written += data
        if self.full and len(data) > 65_536:
            self.full()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self.received if name == "socket" else super().get_extra_info(name, default)

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True

    def abort(self) -> None:
        self.closing = self.aborted = True

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False


class Wire:
    """One connection to `application`. Use inside of a running loop."""

    def __init__(self, application: ASGIApp, limits: HttpSettings | None = None):
        logging.getLogger("uvicorn").setLevel("CRITICAL")  # as the server has it, which warns of nothing
        self.transport = _Transport()
        config = Config(application, lifespan="off", interface="asgi3", ws="none", log_config=None, access_log=False)
        config.load()
        limits = limits or HttpSettings()
        self.state = ConnectionsState(limits)
        self.connection = Connection(limits, config, self.state)
        self.connection.connection_made(self.transport)
        self._coming = deque[bytes]()

    async def send(self, *pieces: bytes) -> None:
        """Each piece is one read of the server's, which reads no more while it has paused."""
        self._coming.extend(pieces)
        await _all_goes_on()
        while self._coming and not self.transport.paused and not self.transport.closing:
            self.connection.data_received(self._coming.popleft())
            await _all_goes_on()

    def reads_nothing(self) -> None:
        """The client reads no more until `connection.resume_writing`."""
        self.transport.full = self.connection.pause_writing

    async def end(self) -> None:
        """The client has gone."""
        self.transport.closing = True
        self.connection.connection_lost(None)
        await _all_goes_on()
        tasks = list(cast("set[asyncio.Task[Any]]", self.state.tasks))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def statuses(self) -> list[int]:
        """The statuses of the answers so far."""
        lines = bytes(self.transport.written).split(b"HTTP/1.1 ")[1:]
        return [int(line[:3]) for line in lines]


async def _all_goes_on() -> None:
    for _ in range(_TURNS):
        await asyncio.sleep(0)
