"""Prometheus metrics of a process and its probes, over HTTP on threads of their own: a scrape needs no event loop.

`/readyz` and `/livez` are for probes of a kubelet, which has no client certificate: with `tls_dir` the gRPC port
refuses callers without a certificate of the mesh, such as Kubernetes' gRPC probes. The event loop that serves calls
answers both pages, so a blocked loop fails them. They contain a status only.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import CancelledError
from http import HTTPStatus
from threading import Thread
from typing import TYPE_CHECKING
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer

from services.runtime.process.config import is_local_host, is_loopback
from services.runtime.process.health import Health

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

_log = logging.getLogger(__name__)
_STOPS_S = 0.1  # interval at which the server checks whether to stop
READY, LIVE = "/readyz", "/livez"
_LOOP_S = 0.9  # below the second that a probe waits by default
_STUCK = "the event loop did not answer"


class ProbePages:
    """Both pages, for use on other threads; `health` belongs to the event loop `loop`."""

    def __init__(self, health: Health, loop: asyncio.AbstractEventLoop, loop_s: float = _LOOP_S):
        self.health = health  # replaced on `loop` when another service becomes the first of the process
        self._loop, self._loop_s = loop, loop_s

    def before(self, others: WSGIApplication) -> WSGIApplication:
        """A WSGI application of both pages; `others` answers other paths."""

        def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
            path = environ.get("PATH_INFO", "")
            if path not in (READY, LIVE):
                return others(environ, start_response)
            status, text = self._ask(self._ready() if path == READY else self._live())
            start_response(f"{status.value} {status.phrase}", [("content-type", "text/plain")])
            return [f"{text}\n".encode()]

        return answer

    async def _ready(self) -> tuple[HTTPStatus, str]:
        if self.health.serving:
            return HTTPStatus.OK, "SERVING"
        return HTTPStatus.SERVICE_UNAVAILABLE, "NOT_SERVING"

    async def _live(self) -> tuple[HTTPStatus, str]:
        return HTTPStatus.OK, "live"

    def _ask(self, question: Coroutine[None, None, tuple[HTTPStatus, str]]) -> tuple[HTTPStatus, str]:
        """The answer of the event loop, or an error status if the loop is blocked or closed."""
        try:
            asked = asyncio.run_coroutine_threadsafe(question, self._loop)
        except RuntimeError:  # closed
            question.close()
            return HTTPStatus.SERVICE_UNAVAILABLE, _STUCK
        try:
            return asked.result(self._loop_s)
        except (TimeoutError, CancelledError):
            asked.cancel()
            return HTTPStatus.SERVICE_UNAVAILABLE, _STUCK


class _Handler(WSGIRequestHandler):
    timeout = 10  # seconds that a connection may be silent: each has a thread

    def log_message(self, format: str, *args: object) -> None:
        """Log no scrapes."""


def serve(address: str, pages: ProbePages) -> Callable[[], None]:
    """Serve the metrics and the `pages` of probes at `host:port`, until the returned function is called.

    Ends the process with 1 when it cannot listen at the port.
    """
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    try:
        (family, *_), *_ = socket.getaddrinfo(host or None, int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        kind: type[WSGIServer] = type("Server", (ThreadingWSGIServer,), {"address_family": family})
        server = make_server(host, int(port), app(pages, loopback=is_loopback(address)), kind, _Handler)
    except OSError as error:
        _log.error("metrics_address: cannot listen at %s: %s", address, error.strerror)
        raise SystemExit(1) from None
    thread = Thread(target=server.serve_forever, args=(_STOPS_S,), name="metrics", daemon=True)
    thread.start()

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return stop


def app(pages: ProbePages, *, loopback: bool) -> WSGIApplication:
    """The metrics and the `pages` of probes.

    On loopback they refuse a page whose own name has been resolved to this machine since it was loaded (DNS rebinding).
    """
    metrics: WSGIApplication = pages.before(make_wsgi_app())

    def local(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if is_local_host(environ.get("HTTP_HOST", "")):
            return metrics(environ, start_response)
        start_response("403 Forbidden", [("content-type", "text/plain")])
        return [b"host: localhost or an address\n"]

    return local if loopback else metrics
