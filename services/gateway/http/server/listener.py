"""The HTTP server of a gateway process: from its socket to its last answer."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from email.utils import formatdate
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

from starlette.types import ASGIApp
from uvicorn.config import Config

from services.gateway.config import GatewaySettings
from services.gateway.http.server.connection import MOVES_S, Connection, ConnectionsState
from services.gateway.http.server.exchange import SKIMMED_S
from services.gateway.settings.http import HttpSettings
from services.runtime.security import tls

_BACKLOG = 2_048
_DATE_S = 1.0  # how exact the `date` header is
_LAST_WORDS_S = SKIMMED_S + 0.5  # for answers that are cut off to say so, also to a client that still sends its body
# Of the servers of this process that take over from each other, the latest one last. At the same address, the next one
# takes connections from the same queue, so none is reset.
_sockets: WeakValueDictionary[str, socket.socket] = WeakValueDictionary()
_log = logging.getLogger(__name__)


def bind(settings: GatewaySettings) -> socket.socket | None:
    """The socket of `http_address`, which refuses connections for now; None without one. Ends the process with 1 when
    it cannot listen there."""
    if not settings.http_address:
        return None
    before = _sockets.pop(settings.http_address, None) if settings.overlaps else None
    bound = before.dup() if before and before.fileno() >= 0 else _bind(settings)
    if settings.overlaps:
        _sockets[settings.http_address] = bound
    return bound


def _bind(settings: GatewaySettings) -> socket.socket:
    host, _, port = settings.http_address.rpartition(":")
    try:
        family, kind, *_, bind_address = socket.getaddrinfo(
            host.strip("[]") or None, int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, kind)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if settings.processes > 1 or settings.overlaps:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        bound.bind(bind_address)
    except (OSError, ValueError):
        _log.error("http_address: cannot listen at %s; another process may use it", settings.http_address)
        raise SystemExit(1) from None
    return bound


class HttpServer:
    """An `ExtraServer` of the process."""

    def __init__(self, limits: HttpSettings) -> None:
        self._limits, self._state = limits, ConnectionsState(limits)
        self._bound: socket.socket | None = None
        self._has_others = False
        self._server: asyncio.Server | None = None
        self._make: Callable[[], Connection]  # one for each connection
        self._tls: dict[str, Any] = {}  # for each connection

    @asynccontextmanager
    async def serving(self, app: ASGIApp, bound: socket.socket, settings: GatewaySettings) -> AsyncIterator[None]:
        """Serve `app` inside."""
        logging.getLogger("uvicorn").setLevel("ERROR")  # it warns of what any stranger may send
        config = Config(
            app,
            lifespan="off",
            interface="asgi3",
            ws="none",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
        )
        config.timeout_keep_alive = self._limits.keep_alive_ms / 1000  # type: ignore[assignment]  # a timer takes both
        config.load()
        folder = tls.Folder(settings.tls_dir) if settings.tls_dir else None
        self._has_others = settings.overlaps or settings.processes > 1
        self._bound, self._make = bound, partial(Connection, self._limits, config, self._state)
        await self._listen(folder)
        host, _, _ = settings.http_address.rpartition(":")
        _log.info("http on %s:%d", host, bound.getsockname()[1])
        work = [asyncio.create_task(self._date())]
        if folder:
            work.append(asyncio.create_task(self._renew(folder)))
        try:
            yield
        finally:
            for each in work:
                each.cancel()
            await self.stop(0)

    @property
    def leaving(self) -> bool:
        """Whether the process is about to stop."""
        return self._state.leaving

    def leave(self) -> None:
        """Stop accepting: health becomes 503, and each answer ends its connection, so that clients connect elsewhere.
        If another server of this process takes over, it gets new connections at once."""
        self._state.leaving = True
        if self._is_followed:
            self._take_waiting()
            self._close()

    @property
    def _is_followed(self) -> bool:
        latest = next(reversed(list(_sockets.values())), self._bound)
        return self._bound is not None and latest is not self._bound

    def _take_waiting(self) -> None:
        """Take the connections that wait in the queue: the kernel resets them where no other server has it."""
        if not (self._bound and self._server) or self._bound.fileno() < 0:
            return
        self._bound.setblocking(False)
        with suppress(OSError):  # none waits, or this process has no descriptor more
            while True:
                connection, _ = self._bound.accept()
                taking = asyncio.create_task(self._take(connection))
                self._state.tasks.add(taking)
                taking.add_done_callback(self._state.tasks.discard)

    async def _take(self, connection: socket.socket) -> None:
        with suppress(OSError):  # also of TLS
            await asyncio.get_running_loop().connect_accepted_socket(self._make, connection, **self._tls)

    def _close(self) -> None:
        if self._server and self._bound:
            self._server.close()
            self._bound.close()

    async def stop(self, grace_s: float) -> None:
        """Take no more requests. Those in flight have `grace_s`; then they end with an error.
        Where others may have the port, a request that a client has just sent on its open connection is answered."""
        self._take_waiting()
        self._close()
        if self._has_others and (self._state.connections or self._state.tasks):
            await asyncio.sleep(min(MOVES_S, grace_s))
        for connection in list(self._state.connections):
            connection.shutdown()
        await self._ended(grace_s)
        for task in list(self._state.tasks):
            task.cancel()
        await self._ended(_LAST_WORDS_S)
        for connection in list(self._state.connections):
            connection.transport.abort()

    async def _listen(self, folder: tls.Folder | None) -> None:
        """Take connections in place of the listener before; with a `folder` by mutual TLS, with its current files."""
        if self._bound is None:
            return
        if folder:
            handshake_s = self._limits.header_ms / 1000  # it comes before headers, and has no slot yet
            self._tls = {"ssl": tls.server_context(folder), "ssl_handshake_timeout": handshake_s}
        before, loop, own = self._server, asyncio.get_running_loop(), self._bound.dup()
        self._server = await loop.create_server(self._make, sock=own, backlog=_BACKLOG, **self._tls)
        if before:
            before.close()

    async def _renew(self, folder: tls.Folder) -> None:
        """New connections meet the certificate that is current."""
        async for _ in folder.changes():
            try:
                await self._listen(folder)
            except OSError as error:  # ssl's are among them: the files have changed once more
                _log.error("http keeps its old certificate: %r", error)

    async def _ended(self, within_s: float) -> None:
        """Return when no request is in flight, after `within_s` at the latest."""
        deadline = time.monotonic() + within_s
        while self._state.tasks and (left_s := deadline - time.monotonic()) > 0:
            await asyncio.wait(self._state.tasks, timeout=left_s)

    async def _date(self) -> None:
        while True:
            self._state.default_headers = [(b"date", formatdate(usegmt=True).encode())]
            await asyncio.sleep(_DATE_S)
