"""The HTTP server of a gateway process: from its socket to its last answer."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email.utils import formatdate
from functools import partial

from starlette.types import ASGIApp
from uvicorn.config import Config
from uvicorn.server import ServerState

from services.gateway.config import GatewaySettings
from services.gateway.http.connection import Connection

_BACKLOG = 2_048
_DATE_S = 1.0  # how exact the `date` header is
_LAST_WORDS_S = 0.5  # for answers that are cut off to say so
_log = logging.getLogger(__name__)


def bind(settings: GatewaySettings) -> socket.socket | None:
    """The socket of `http_address`, which refuses connections for now; None without one. Ends the process with 1 when
    it cannot be had."""
    if not settings.http_address:
        return None
    host, _, port = settings.http_address.rpartition(":")
    try:
        family, kind, *_, place = socket.getaddrinfo(
            host.strip("[]") or None, int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, kind)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if settings.processes > 1:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        bound.bind(place)
    except (OSError, ValueError):
        _log.error("http_address: %s cannot be had; another process may have it", settings.http_address)
        raise SystemExit(1) from None
    return bound


class HttpServer:
    """A `serve.Door`. `leaving`: whether the process is about to stop."""

    def __init__(self) -> None:
        self.leaving = False
        self._state = ServerState()
        self._server: asyncio.Server | None = None

    @asynccontextmanager
    async def serving(self, app: ASGIApp, bound: socket.socket, settings: GatewaySettings) -> AsyncIterator[None]:
        """Serve `app` inside."""
        limits = settings.http
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
        config.timeout_keep_alive = limits.keep_alive_ms / 1000  # type: ignore[assignment]  # a timer takes both
        config.load()
        make = partial(Connection, limits, config, self._state)
        self._server = await asyncio.get_running_loop().create_server(make, sock=bound, backlog=_BACKLOG)
        host, _, _ = settings.http_address.rpartition(":")
        _log.info("http on %s:%d", host, bound.getsockname()[1])
        dating = asyncio.create_task(self._date())
        try:
            yield
        finally:
            dating.cancel()
            await self.stop(0)

    def leave(self) -> None:
        """Health says 503 from now on."""
        self.leaving = True

    async def stop(self, grace_s: float) -> None:
        """Take no more requests; those in flight have so long, and are then cut off, which their clients are told."""
        if self._server:
            self._server.close()
        for connection in list(self._state.connections):
            connection.shutdown()
        await self._ended(grace_s)
        for task in list(self._state.tasks):
            task.cancel()
        await self._ended(_LAST_WORDS_S)
        for connection in list(self._state.connections):
            connection.transport.abort()

    async def _ended(self, within_s: float) -> None:
        """Return when no request is in flight, after `within_s` at the latest."""
        deadline = time.monotonic() + within_s
        while self._state.tasks and (left_s := deadline - time.monotonic()) > 0:
            await asyncio.wait(self._state.tasks, timeout=left_s)

    async def _date(self) -> None:
        while True:
            self._state.default_headers = [(b"date", formatdate(usegmt=True).encode())]
            await asyncio.sleep(_DATE_S)
