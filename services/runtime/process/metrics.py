"""Prometheus metrics of a process and its probes, over HTTP on threads of their own: a scrape needs no event loop."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterable
from threading import Thread
from typing import TYPE_CHECKING
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer

from services.runtime.process.config import is_local_host, is_loopback
from services.runtime.process.probe_pages import ProbePages

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

_log = logging.getLogger(__name__)
_STOPS_S = 0.1  # interval at which the server checks whether to stop


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
