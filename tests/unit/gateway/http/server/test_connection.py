"""A connection of the HTTP server: which requests its bytes are."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from services.gateway.settings.http import HttpSettings
from tests.unit.gateway.http.wire import Application, Request, Wire

pytestmark = pytest.mark.paused


def _post(body: bytes, *headers: bytes, path: bytes = b"/one") -> bytes:
    return b"POST %b HTTP/1.1\r\nhost: g\r\n%bcontent-length: %d\r\n\r\n%b" % (path, b"".join(headers), len(body), body)


async def test_an_upgrade_that_is_not_taken_is_no_header_of_the_request() -> None:
    wire = Wire(application := Application())
    await wire.send(_post(b"a", b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAEAAEAA\r\n"))
    await wire.end()
    headers = dict(application.scopes[0]["headers"])
    assert b"upgrade" not in headers
    assert headers[b"http2-settings"] == b"AAEAAEAA"


@pytest.mark.parametrize("kept_back", [1, 20, 28])
async def test_bytes_before_a_request_in_the_same_read_do_not_count_as_its_headers(kept_back: int) -> None:
    one, two = _post(b"x" * 140_000), b"GET /two HTTP/1.1\r\nhost: g\r\n\r\n"
    sent = one + two
    wire = Wire(application := Application())
    await wire.send(sent[:-kept_back], sent[-kept_back:])
    assert wire.statuses == [200, 200]
    await wire.end()
    assert application.served == [Request("POST /one", b"x" * 140_000), Request("GET /two")]


async def test_headers_behind_a_body_are_limited_before_they_end() -> None:
    wire = Wire(application := Application())
    await wire.send(_post(b"{}") + b"GET /two HTTP/1.1\r\nx: ", *[b"x" * 10_000] * 14)
    assert wire.statuses == [200, 431]
    await wire.end()
    assert application.served == [Request("POST /one", b"{}")]


_BROKEN = b"POST /two HTTP/1.1\r\nhost: g\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\nrubbish\r\n"


async def test_a_body_that_breaks_off_is_refused_after_the_answers_before_it_and_not_served() -> None:
    wire = Wire(application := Application())
    application.answers.clear()
    await wire.send(_post(b"a") + _BROKEN)
    assert wire.statuses == []
    application.answers.set()
    await wire.send()
    assert wire.statuses == [200, 400]
    assert b'"code":"invalid_http"' in wire.transport.written
    assert wire.transport.closing
    await wire.end()
    assert application.served == [Request("POST /one", b"a")]


async def test_a_refused_request_does_not_cut_into_an_answer_that_has_begun() -> None:
    async def begins(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"first", "more_body": True})
        while (await receive())["type"] != "http.disconnect":
            pass

    wire = Wire(begins)
    await wire.send(_BROKEN[:-11], _BROKEN[-11:])
    assert wire.statuses == [200]
    assert wire.transport.written.endswith(b"5\r\nfirst\r\n")
    assert wire.transport.closing
    await wire.end()


async def test_a_disconnect_cancels_the_running_request_though_another_waits() -> None:
    seen: list[str] = []

    async def waits(scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        seen.append(scope["path"])

    wire = Wire(waits)
    await wire.send(_post(b"a") + _post(b"b", path=b"/two"))
    await wire.end()
    assert seen == ["/one"]


async def test_headers_that_are_not_read_because_others_are_answered_first_are_not_late() -> None:
    wire = Wire(application := Application(), HttpSettings(header_ms=100))
    application.answers.clear()
    await wire.send(_post(b"a"))
    await wire.send(_post(b"b", path=b"/two") + b"GET /three HTTP/1.1\r\n", b"host: g\r\n\r\n")
    assert wire.transport.paused
    await asyncio.sleep(60)
    application.answers.set()
    await wire.send()
    assert wire.statuses == [200, 200, 200]
    await wire.end()


@pytest.mark.parametrize("sent", [b"", b"POST /v1/chat", b"GET /health HTTP/1.1\r\nhost: x\r\nx-slow: "])
async def test_headers_that_do_not_come_in_time_close_the_connection(sent: bytes) -> None:
    wire = Wire(Application(), HttpSettings(header_ms=100))
    await wire.send(*filter(None, [sent]))
    await asyncio.sleep(0.09)
    assert not wire.transport.closing
    await asyncio.sleep(0.02)
    assert wire.transport.aborted
    await wire.end()


async def test_headers_that_have_begun_behind_an_answer_may_take_their_time_from_its_end_on() -> None:
    wire = Wire(Application(), HttpSettings(header_ms=100))
    await wire.send(_post(b"a") + b"GET /two HTTP/1.1\r\n")
    await asyncio.sleep(0.09)
    assert not wire.transport.closing
    await asyncio.sleep(0.02)
    assert wire.transport.closing
    await wire.end()


async def _begins(scope: Scope, receive: Receive, send: Send) -> None:
    """Ends the answer when the last of the body has come."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.body", "body": b"said"})


async def test_a_request_behind_an_answer_that_promised_to_stay_open_is_answered_by_a_server_that_stops() -> None:
    wire = Wire(_begins)
    await wire.send(_post(b"ab")[:-1])
    assert wire.statuses == [200]
    wire.connection.shutdown()
    await wire.send(b"b")
    await asyncio.sleep(0.9)
    assert not wire.transport.closing
    await wire.send(_post(b"b", path=b"/two"))
    assert wire.statuses == [200, 200]
    assert wire.transport.written.count(b"connection: close") == 1
    assert wire.transport.closing
    await wire.end()


async def test_without_a_further_request_a_server_that_stops_closes_the_connection() -> None:
    wire = Wire(_begins)
    await wire.send(_post(b"ab")[:-1])
    wire.connection.shutdown()
    await wire.send(b"b")
    assert len(wire.state.tasks) == 1
    await asyncio.sleep(1.1)
    assert wire.transport.closing
    assert not wire.state.tasks
    await wire.end()


def _shut_down(wire: Wire, unread: bytes) -> None:
    """As a server that stops does, when these bytes have come."""
    client, wire.transport.received = socket.socketpair()
    with client, wire.transport.received:
        client.send(unread)
        wire.connection.shutdown()


async def test_a_request_that_has_come_and_is_not_read_yet_is_answered_by_a_server_that_stops() -> None:
    wire = Wire(Application())
    await wire.send(_post(b"a"))
    _shut_down(wire, request := _post(b"b", path=b"/two"))
    assert not wire.transport.closing
    await wire.send(request)
    assert wire.statuses == [200, 200]
    assert wire.transport.written.count(b"connection: close") == 1
    assert wire.transport.closing
    await wire.end()


async def test_an_idle_connection_is_closed_by_a_server_that_stops() -> None:
    wire = Wire(Application())
    await wire.send(_post(b"a"))
    _shut_down(wire, b"")
    assert wire.transport.closing
    assert not wire.state.tasks
    await wire.end()


async def test_bytes_that_become_no_request_do_not_keep_a_server_that_stops() -> None:
    wire = Wire(Application())
    _shut_down(wire, b"POST /one")
    await wire.send(b"POST /one")
    await asyncio.sleep(1.1)
    assert wire.transport.closing
    assert not wire.state.tasks
    await wire.end()


async def test_an_answer_that_has_not_begun_says_that_a_server_that_stops_closes_the_connection() -> None:
    wire = Wire(application := Application())
    application.answers.clear()
    await wire.send(_post(b"a"))
    wire.connection.shutdown()
    application.answers.set()
    await wire.send()
    assert b"connection: close" in wire.transport.written
    assert wire.transport.closing
    await wire.end()


_CHUNKED = b"POST /one HTTP/1.1\r\nhost: g\r\nx-user: a\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n"


async def test_trailers_are_no_headers() -> None:
    wire = Wire(application := Application())
    await wire.send(_CHUNKED + b"x-user: b\r\nx-more: c\r\n\r\n")
    assert wire.statuses == [200]
    await wire.end()
    names = [name for name, _ in application.scopes[0]["headers"]]
    assert names == [b"host", b"x-user", b"transfer-encoding"]
    assert dict(application.scopes[0]["headers"])[b"x-user"] == b"a"


async def _answers_at_once(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})


@pytest.mark.parametrize("trailers", [[b"x: ", *[b"x" * 10_000] * 14], [b"x: y\r\n" * 2_000] * 14])
@pytest.mark.parametrize(("application", "statuses"), [(Application, [431]), (lambda: _answers_at_once, [200, 431])])
async def test_trailers_have_the_limit_of_headers(
    application: Callable[[], ASGIApp], statuses: list[int], trailers: list[bytes]
) -> None:
    wire = Wire(application())
    await wire.send(_CHUNKED, *trailers)
    assert wire.statuses == statuses
    assert wire.transport.closing
    await wire.end()


async def test_few_requests_may_wait_behind_another() -> None:
    wire = Wire(application := Application())
    application.answers.clear()
    await wire.send(b"GET / HTTP/1.1\r\n\r\n" * 1_000)
    assert len(wire.connection.pipeline) == 64
    application.answers.set()
    for _ in range(65):
        await wire.send()
    assert wire.statuses == [200] * 65 + [400]
    assert wire.transport.closing
    await wire.end()


async def test_a_client_that_reads_slowly_is_no_client_that_reads_nothing() -> None:
    wire = Wire(Application(), HttpSettings(write_ms=100))
    wire.transport.unsent = 4_000_000
    wire.connection.pause_writing()
    for left in (2_900_000, 1_800_000, 700_000):
        await asyncio.sleep(0.09)
        wire.transport.unsent = left
        await asyncio.sleep(0.01)
        assert not wire.transport.aborted
    await asyncio.sleep(0.11)
    assert wire.transport.aborted
    await wire.end()


@pytest.mark.parametrize("leaves", [False, True], ids=["after the last answer", "when the client sends no more"])
async def test_a_connection_that_closes_does_not_wait_for_a_client_that_reads_nothing(leaves: bool) -> None:
    wire = Wire(Application(), HttpSettings(write_ms=100))
    wire.transport.unsent = 1_000
    await wire.send(_post(b"a", *([] if leaves else [b"connection: close\r\n"])))
    if leaves:
        wire.connection.eof_received()
        wire.transport.close()
    wire.connection.pause_writing()
    wire.connection.resume_writing()  # most has been sent
    await asyncio.sleep(0.09)
    assert not wire.transport.aborted
    await asyncio.sleep(0.02)
    assert wire.transport.aborted
    await wire.end()
