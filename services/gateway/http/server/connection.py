"""One connection: uvicorn's, with limits on time and size, and a slot among all connections. One without a request
under way is idle."""

from __future__ import annotations

import asyncio
import select
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from services.gateway.http.server.connection_slots import ConnectionSlots
from services.gateway.settings.http import HttpSettings
from services.runtime.security.tls import caller_in
from services.runtime.strict_json import compact

_RAW = 2  # bytes on the wire for each one that counts of a head, whose blanks and line ends do not: more are refused
_MOST_WAITING = 64  # requests of one connection behind the one that is answered: one of 20 bytes becomes 3 KB
_READ_BYTES = 1_048_576  # that a client reads in `write_ms` at least, where so many wait
PEER = "peer_identity"  # in a request's scope: the identity that its caller's certificate proves
PROVEN = "authenticated"  # in a request's scope: is called where a tenant's credential has been accepted
MOVES_S = 1.0  # for clients with open connections to come to the server that takes over


class ConnectionsState(ServerState):
    """The state of all connections. `leaving`: they are not kept alive any more."""

    leaving = False

    def __init__(self, limits: HttpSettings) -> None:
        super().__init__()
        self.slots = ConnectionSlots(limits.max_connections, limits.connections_of_one)


class Connection(HttpToolsProtocol):
    """Closed where headers take too long or are too large, where a client reads too little for too long, and where its
    slot is needed."""

    def __init__(self, limits: HttpSettings, config: Config, state: ConnectionsState):
        super().__init__(config, state, {})
        self._shared = state
        self._limits, self._in_head, self._head_bytes = limits, True, 0
        self._in_body = False  # whether some of a body, or a request's last byte, was in this read
        self._cycles = deque[RequestResponseCycle]()  # the requests whose answers are not over; the first one runs
        self._last_words = b""  # the refusal that ends the connection once these are answered
        self._offered = b""  # the head of a request that offers another protocol, without the offer
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._closes_soon = False
        self._closing: asyncio.Task[None] | None = None
        self.address, self.authenticated = "", False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._peer = caller_in(transport.get_extra_info("peercert"))
        self.address = str((transport.get_extra_info("peername") or [""])[0])
        if not self._shared.slots.acquire(self):
            transport.abort()
            return
        self._shared.slots.idle(self)
        self._arm("head", self._limits.header_ms)

    def abort(self) -> None:
        """Close it at once, as `ConnectionSlots` asks."""
        self.transport.abort()

    def prove(self) -> None:
        """A tenant's credential has come by it."""
        self.authenticated = True

    def connection_lost(self, exc: Exception | None) -> None:
        self._shared.slots.release(self)
        for name in list(self._timers):
            self._disarm(name)
        self._stop_closing()
        self._unset_keepalive_if_required()
        for cycle in self._cycles:  # uvicorn notifies only the last one
            cycle.disconnected = True
            cycle.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._last_words:
            return
        self._unset_keepalive_if_required()
        self._in_body = False
        try:
            self._parse(data)
        except httptools.HttpParserError:
            self.send_400_response("Invalid HTTP request received.")
        if self.transport.is_closing() or self._last_words:
            return
        if not self._in_body:  # else most of the read may be that
            self._head_bytes += len(data)
        if self._head_bytes > _RAW * self._limits.max_header_bytes:
            self._refuse_head()
        elif not self._in_head and self.timeout_keep_alive_task is None and self.cycle.response_complete:
            self._arm("head", self._limits.header_ms)  # blank lines between requests are no request

    def _parse(self, data: bytes) -> None:
        """Feed the parser. A request may offer another protocol, which a server may ignore (RFC 9110, 7.8). The parser
        takes each offer as accepted and what follows the head as that protocol; a new one reads the request without."""
        while data:
            try:
                self.parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as offer:
                data, self._offered = self._offered + data[offer.args[0] :], b""
                self.parser = httptools.HttpRequestParser(self)
                self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn's own

    def on_message_begin(self) -> None:
        super().on_message_begin()
        cast(dict[str, Any], self.scope).update({PEER: self._peer, PROVEN: self.prove})
        self._in_head, self._head_bytes = True, 0
        if not self._cycles:  # else it may be the server that does not read on
            self._arm("head", self._limits.header_ms)

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # trailers are no headers (RFC 9110, 6.5.1)
            super().on_header(name, value)

    def on_body(self, body: bytes) -> None:
        self._in_body, self._head_bytes = True, 0
        super().on_body(body)

    def on_headers_complete(self) -> None:
        if len(self.url) + sum(len(name) + len(value) for name, value in self.headers) > self._limits.max_header_bytes:
            self._refuse_head()
            raise ValueError("a request that is refused")
        if len(self._cycles) > _MOST_WAITING:
            self.send_400_response(f"At most {_MOST_WAITING} requests may wait behind another on a connection.")
            raise ValueError("a request that is refused")
        if self.parser.should_upgrade():
            self._offered = self._without_offer()
            return
        self._in_head = False
        self._disarm("head")
        super().on_headers_complete()
        self._cycles.append(self.cycle)
        self._shared.slots.busy(self)
        self._stop_closing()
        if self._shared.leaving or self._closes_soon:
            self.cycle.keep_alive = False

    def on_message_complete(self) -> None:
        if not self._offered:
            self._in_body = True
            super().on_message_complete()

    def on_response_complete(self) -> None:
        self._cycles.popleft()
        super().on_response_complete()
        if self.transport.is_closing():
            self._expect_reading()
        if self._cycles or self.transport.is_closing():
            return
        self._shared.slots.idle(self)
        if self._closes_soon:
            self._begin_closing()
        if self._last_words:
            self._say_last_words()
        elif self._in_head:
            self._arm("head", self._limits.header_ms)

    def shutdown(self) -> None:
        """Close the connection: at once, or after the answer under way. A request behind an answer that has said that
        the connection stays open is still answered, as is one that came while the event loop was busy."""
        cycle = self.cycle
        answering = cycle and not cycle.response_complete
        self._closes_soon = (cycle.response_started and cycle.keep_alive) if answering else self._has_unread()
        if not self._closes_soon:
            super().shutdown()
        elif not answering:
            self._begin_closing()

    def _has_unread(self) -> bool:
        """Whether bytes, or the client's end, have come that the event loop has not read."""
        if self.transport.is_closing():
            return False
        unread = select.poll()
        unread.register(self.transport.get_extra_info("socket").fileno(), select.POLLIN)
        return bool(unread.poll(0))

    def _begin_closing(self) -> None:
        """Close it soon, unless the next request comes first."""
        self._closing = self.loop.create_task(self._close_soon())
        self._shared.tasks.add(self._closing)
        self._closing.add_done_callback(self._shared.tasks.discard)

    async def _close_soon(self) -> None:
        await asyncio.sleep(MOVES_S)
        self.transport.close()

    def _stop_closing(self) -> None:
        if self._closing:
            self._closing.cancel()
            self._closing = None

    def _without_offer(self) -> bytes:
        """The head that has just been read, without what it offers. Raises `ValueError` for a tunnel."""
        if (method := self.parser.get_method()) == b"CONNECT":
            raise ValueError("a tunnel is no request")
        lines = [b"%b: %b" % header for header in self.headers if header[0] != b"upgrade"]
        first = b"%b %b HTTP/%b" % (method, self.url, self.parser.get_http_version().encode())
        return b"\r\n".join([first, *lines, b"", b""])

    def pause_writing(self) -> None:
        super().pause_writing()
        self._expect_reading()

    def resume_writing(self) -> None:
        if not self.transport.is_closing():  # else the rest has to be read as well
            self._disarm("write")
        super().resume_writing()

    def eof_received(self) -> None:
        self._expect_reading()  # the transport closes when all is sent

    def _expect_reading(self) -> None:
        """Close it where the client does not read what waits to be sent."""
        self._arm("write", self._limits.write_ms, partial(self._check_reading, self.transport.get_write_buffer_size()))

    def _check_reading(self, before: int) -> None:
        del self._timers["write"]
        if before - self.transport.get_write_buffer_size() < _READ_BYTES:
            self.transport.abort()
        else:
            self._expect_reading()

    def timeout_keep_alive_handler(self) -> None:
        if not self.transport.is_closing():
            self.transport.abort()  # to close waits for a client that does not read

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, "invalid_http", msg)

    def _refuse_head(self) -> None:
        most = self._limits.max_header_bytes
        self._refuse(431, "request_header_too_large", f"headers: {most} bytes, got more")

    def _refuse(self, status: int, code: str, message: str) -> None:
        """Answer bytes that are no request with an error, once the requests before them are answered, and close. Only
        the first refusal is sent."""
        if self.transport.is_closing() or self._last_words:
            return
        error = {"message": message, "type": "invalid_request_error", "param": None, "code": code}
        body = compact({"error": error})
        head = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body)
        self._last_words = STATUS_LINE[status] + head + body
        self._disarm("head")
        broken = self._cycles[-1] if self._cycles and self._cycles[-1].more_body else None
        if broken and len(self._cycles) > 1:
            self._cycles.pop()
            self.pipeline.popleft()  # the last one that came
        elif broken and broken.response_started:
            self._close()
        elif broken or not self._cycles:
            self._say_last_words()

    def _say_last_words(self) -> None:
        self.transport.write(self._last_words)
        self._close()

    def _close(self) -> None:
        self.transport.close()
        self._expect_reading()

    def _arm(self, name: str, after_ms: float, act: Callable[[], None] | None = None) -> None:
        """Start a timer that closes the connection, or does what `act` does; an active one with the same name stays."""
        if name not in self._timers:
            self._timers[name] = self.loop.call_later(after_ms / 1000, act or self.transport.abort)

    def _disarm(self, name: str) -> None:
        if timer := self._timers.pop(name, None):
            timer.cancel()
