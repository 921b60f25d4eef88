"""One route as an ASGI application: the boundary at which every exception becomes a response.

The order, outermost first, is that of gRPC's boundary: trace → errors → metrics → identity → turn → body → route.

A browser sends a page's requests from its user's machine, so a page of another site can reach a gateway that only this
machine can reach. If callers need no credential, such pages are refused. The browser sends the page's origin in
`Origin` and `Sec-Fetch-Site`, unless the page's own name has been resolved to the gateway's address since the page was
loaded (DNS rebinding); then that name is in `Host`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

from opentelemetry.trace import StatusCode
from prometheus_client import Histogram
from starlette.types import Receive, Scope, Send

from hedgerow.identities import GATEWAY, SERVICES
from services.gateway.admission.intake import DEFAULT_LIMITS, Intake
from services.gateway.api.servicer import GatewayServicer
from services.gateway.http.errors import ErrorResponse, error_response
from services.gateway.http.server.client_watch import Left
from services.gateway.http.server.connection import PROVEN
from services.gateway.http.server.exchange import Bounds, Exchange
from services.gateway.settings.http import HttpSettings
from services.runtime import telemetry
from services.runtime.errors import CallerRefused, Forbidden, Unavailable, shorten
from services.runtime.process.config import is_local_host

_SECONDS = Histogram(
    "hedgerow_http_seconds", "Time to serve a request by HTTP, to its last byte.", ["route", "status"],
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, *telemetry.LONG_S),
)  # fmt: skip
_seconds = cache(_SECONDS.labels)  # `labels` takes a lock and formats its values each time
_LEFT = 499  # nginx's status for a client that left
_ELSEWHERE = ("cross-site", "same-site")
Serve = Callable[[Exchange], Awaitable[None]]
Shape = Callable[[ErrorResponse], Any]  # the body of an error


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One route as an ASGI application. `open_`: it needs no credential. If callers authenticate by certificate, other
    routes admit only the gateway's callers."""

    route: str
    serve: Serve
    shape: Shape
    servicer: GatewayServicer
    limits: HttpSettings
    mutual: bool  # whether callers authenticate by certificate
    loopback: bool  # whether only this machine can connect
    open_: bool = False
    intake: Intake | None = None
    media: bool = True  # whether its bodies may hold pictures, recordings and long conversations

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        most_bytes = self.limits.max_body_bytes if self.media else self.limits.max_text_body_bytes
        limits = self.intake.limits if self.intake else DEFAULT_LIMITS
        bounds = Bounds(most_bytes, self.limits.body_ms, limits, None if self.open_ else self.intake)
        exchange, started = Exchange(scope, receive, send, bounds), time.perf_counter()
        with telemetry.server_span(f"http {self.route}", exchange.metadata) as span:
            exchange.span = span
            exchange.name()
            status = _LEFT
            try:
                await self._serve(exchange)
                status = exchange.reply.status
                self._record_end(scope, started)
            except Left:
                pass
            except asyncio.CancelledError:
                status = await self._fail(exchange, Unavailable("the gateway is stopping"))
            except Exception as error:  # the boundary: every other exception becomes a status
                self._record_end(scope, started, error)
                status = await self._fail(exchange, error)
            finally:
                exchange.admitted()
                if status >= 400:
                    span.set_status(StatusCode.ERROR, str(status))
                _seconds(self.route, str(status)).observe(time.perf_counter() - started)

    async def _serve(self, exchange: Exchange) -> None:
        if not self.open_:
            if self.mutual and exchange.peer not in SERVICES[GATEWAY].callers:
                raise CallerRefused(f"{exchange.peer or 'a caller without an identity'} may not call {GATEWAY}")
            exchange.credential = self.servicer.authorize(exchange.metadata, exchange.peer)
            if exchange.credential.tenant.anonymous:
                check_page(exchange.headers, self.limits.cors_origins, loopback=self.loopback)
            elif prove := exchange.scope.get(PROVEN):
                prove()
            if self.intake:
                await self.intake.starts.turn(exchange.credential.tenant.name)
            await exchange.credential.during(self.serve(exchange))
        else:
            await self.serve(exchange)

    def _record_end(self, scope: Scope, started: float, error: Exception | None = None) -> None:
        if not self.open_:
            self.servicer.ended(scope["method"], time.perf_counter() - started, error)

    async def _fail(self, exchange: Exchange, error: Exception) -> int:
        failure = error_response(error)
        with suppress(Left):
            await exchange.fail(failure, self.shape(failure))
            return failure.status
        return _LEFT


def check_page(headers: Mapping[str, str], origins: Collection[str], *, loopback: bool) -> None:
    """Raise `Forbidden` for a page whose origin is neither in `origins` nor the gateway's own. `loopback`: whether only
    this machine can connect, so that the gateway has no other host names."""
    host, origin = headers.get("host", ""), headers.get("origin", "")
    if loopback and not is_local_host(host):
        raise Forbidden(f"host: localhost or an address, where callers need no key, got {shorten(host)}")
    if "*" in origins or origin in origins:
        return
    if origin and origin.partition("://")[2] != host:
        raise Forbidden(f"origin: one of http.cors_origins, where callers need no key, got {shorten(origin)}")
    if not origin and headers.get("sec-fetch-site") in _ELSEWHERE:
        raise Forbidden("sec-fetch-site: none of a page elsewhere, where callers need no key")
