"""HTTP/1.1: each answer under way has a connection, which is kept for the next one.

aiohttp, because it brings the first token sooner and costs less than anything else that was measured (ADR 9).
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from aiohttp import AddrInfoType, ClientPayloadError
from aiohttp.client_proto import ResponseHandler
from aiohttp.http import RawResponseMessage
from aiohttp.streams import StreamReader

from services.llm.providers.transport.names import FreshNames
from services.llm.providers.transport.wire import Broken, Lost, NoReply, NotConnected, Options, failure
from services.runtime.process.config import is_loopback

_CUT_SHORT = "the connection ended"
_SWITCHED, _FINAL = 101, 200  # statuses below it, but for this one, come before the answer
# A connection that had died says so within a round trip. One that ends later had a provider that was at work.
_NOTICED_S = 1.0
_PROBES = {"TCP_KEEPIDLE": 30, "TCP_KEEPALIVE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}  # seconds, and a count


@dataclass(slots=True)
class _Connection:
    """aiohttp's trace of the connection that a request got."""

    kept: bool = False


class Http1:
    """To `base_url`'s host, through the proxy that the environment names for it; directly to this machine."""

    def __init__(self, base_url: str, options: Options):
        """Raises OSError when `ca_file` cannot be read."""
        self._names = FreshNames()
        connector = _Connector(
            resolver=self._names,
            use_dns_cache=False,  # which lets the next one wait every ten seconds
            ssl=_client_context(options.ca_file),
            limit=0,  # callers have a limit
            keepalive_timeout=options.idle_s,
            socket_factory=watched,
        )
        connector._factory = partial(_AnswerConnection, loop=asyncio.get_running_loop())  # type: ignore[assignment]  # a subclass
        self._read_s = options.read_s
        self._session = aiohttp.ClientSession(
            connector=connector,
            timeout=aiohttp.ClientTimeout(total=None, connect=options.connect_s, sock_read=options.read_s),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            proxy=_proxy(base_url),
            trace_configs=[_tracing()],
        )

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, *, on_new: bool = False
    ) -> _Reply:
        connection, began = _Connection(), asyncio.get_running_loop().time()
        _on_new.set(on_new)
        try:
            response = await self._session.request(
                method,
                url,
                data=body or None,
                headers={**headers, "accept-encoding": "identity"},
                allow_redirects=False,
                trace_request_ctx=connection,
            )
        except aiohttp.ClientConnectorError as error:  # nothing was sent; it may have moved
            raise NotConnected(_words(error), kept=self._names.forget(began)) from None
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
            had_died = connection.kept and asyncio.get_running_loop().time() - began < _NOTICED_S
            raise Lost(type(error).__name__, had_died) from None
        except aiohttp.ClientHttpProxyError as error:
            raise NoReply(f"the proxy answered HTTP {error.status}") from None
        except aiohttp.ClientResponseError:
            raise NoReply("the answer has no head of HTTP/1.1, or one that is too long") from None
        except (aiohttp.ClientError, TimeoutError) as error:
            raise NoReply(failure(error)) from None
        return _Reply(response, self._read_s)

    async def close(self) -> None:
        await self._session.close()
        await self._names.close()


_on_new = ContextVar("on_new", default=False)  # whether the request gets no kept connection


class _Connector(aiohttp.TCPConnector):
    async def _get(self, key: Any, traces: Any) -> Any:
        return None if _on_new.get() else await super()._get(key, traces)


class _Reply:
    def __init__(self, response: aiohttp.ClientResponse, read_s: float):
        self._response, self._read_s = response, read_s
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers

    @property
    def ended(self) -> bool:
        return self._response.content.at_eof() and self._response.content.exception() is None

    async def read(self) -> bytes:
        try:
            async with asyncio.timeout(self._read_s):  # `sock_read` ends with the connection, and not every read does
                piece = await self._response.content.readany()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise Broken(_CUT_SHORT if isinstance(error, ClientPayloadError) else failure(error)) from None
        if not piece and self._response.content.exception():
            raise Broken(_CUT_SHORT)
        return piece

    async def drop(self) -> None:
        self._response.close()


def watched(address: AddrInfoType) -> socket.socket:
    """A socket whose connection ends within a minute of its host's last sign of life. A host that is silent because its
    model thinks does acknowledge, and may take as long as the caller has."""
    family, kind, protocol, *_ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _PROBES.items():
        if option := getattr(socket, name, None):  # not every system has each of them
            made.setsockopt(socket.IPPROTO_TCP, option, value)
    return made


def _words(error: aiohttp.ClientConnectorError) -> str:
    """Words for the error of the machine that aiohttp has wrapped; an error of TLS is its own."""
    said = failure(error if isinstance(error, aiohttp.ClientSSLError) else error.os_error)
    return f"proxy: {said}" if isinstance(error, aiohttp.ClientProxyConnectionError) else said


def _proxy(base_url: str) -> str | None:
    """The proxy of the environment; None for a server on this machine. aiohttp would look it up for each request, in a
    thread."""
    parts = urlsplit(base_url)
    host = parts.hostname or ""
    return None if is_loopback(f"{host}:0") or proxy_bypass(host) else getproxies().get(parts.scheme)


def _tracing() -> aiohttp.TraceConfig:
    async def kept(session: Any, context: SimpleNamespace, params: Any) -> None:
        context.trace_request_ctx.kept = True

    tracing = aiohttp.TraceConfig()
    tracing.on_connection_reuseconn.append(kept)
    return tracing


class _AnswerConnection(ResponseHandler):
    """A connection of aiohttp's that keeps answers apart, and says at once when one of them is broken.

    Bytes behind an answer that has ended were not asked for. aiohttp would keep them for the next request, which may be
    another tenant's. Here the connection is closed.

    aiohttp raises a broken chunk where a head is awaited, not where a body is read. Here the body ends with the error
    in its `exception()`.
    """

    _answered = False  # the final head has come, and nothing was asked since

    def set_response_params(self, **params: Any) -> None:
        """The next request is about to be sent."""
        super().set_response_params(**params)
        self._answered = False

    def data_received(self, data: bytes) -> None:
        if data and self._answered and (self._payload is None or self._payload.is_eof()):
            self._close()
        else:
            super().data_received(data)

    def feed_data(self, data: tuple[RawResponseMessage, StreamReader], size: int = 0) -> None:
        """The head of an answer."""
        if self._answered:
            self._close()
            return
        self._answered = data[0].code >= _FINAL or data[0].code == _SWITCHED
        super().feed_data(data, size)

    def set_exception(self, exc: BaseException, *cause: Any) -> None:
        super().set_exception(exc, *cause)
        if self._payload is not None and not self._payload.is_eof():
            self._payload.set_exception(ClientPayloadError(type(exc).__name__))
            self._payload.feed_eof()  # a reader that was just woken, by the end of a chunk, looks at nothing else

    def _close(self) -> None:
        self.force_close()
        if self.transport is not None:
            self.transport.close()


def _client_context(ca_file: str) -> ssl.SSLContext:
    """The context of a client that checks certificates against `ca_file`, or against the machine's CAs. Raises
    OSError."""
    context = _ResumingContext(ssl.PROTOCOL_TLS_CLIENT)
    if ca_file:
        context.load_verify_locations(ca_file)
    else:
        context.load_default_certs()
    context.set_alpn_protocols(["http/1.1"])
    return context


class _ResumingContext(ssl.SSLContext):
    """A context that resumes sessions. `asyncio` (uvloop as well) makes every TLS connection by its context's
    `wrap_bio`, which can take an earlier session but is never given one: all handshakes are full ones. This context
    gives it the last session with the same server."""

    def __init__(self, protocol: int):
        super().__init__()
        self._newest: dict[str | None, ssl.SSLObject] = {}
        self._sessions: dict[str | None, ssl.SSLSession] = {}

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        name = str(server_hostname)
        if known := _session(self._newest.get(name)):
            self._sessions[name] = known
        wrapped = super().wrap_bio(
            incoming, outgoing, server_side, server_hostname, session or self._sessions.get(name)
        )
        self._newest[name] = wrapped
        return wrapped


def _session(of: ssl.SSLObject | None) -> ssl.SSLSession | None:
    """A session that can be resumed; with TLS 1.3 there is none until the server has sent a ticket, after the
    handshake."""
    if of is None or not of.version():  # OpenSSL fails on a session in the middle of its handshake
        return None
    session = of.session
    return session if session and (session.has_ticket or of.version() != "TLSv1.3") else None
