"""HTTP/1.1's meaning of bytes on a connection, as a table: however the network cuts them, the same requests are served
with the same bodies (RFC 9112)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from services.gateway.settings.http import HttpSettings
from tests.unit.gateway.http.wire import Application, Request, Wire

pytestmark = pytest.mark.paused

_LIMITS = HttpSettings(max_header_bytes=1_024)


def _ask(line: str, *headers: str, body: bytes = b"", version: str = "HTTP/1.1") -> bytes:
    return "\r\n".join((f"{line} {version}", "host: g", *headers, "", "")).encode() + body


def _post(body: bytes, *headers: str) -> bytes:
    return _ask("POST /post", *headers, f"content-length: {len(body)}", body=body)


def _chunked(body: bytes, *headers: str) -> bytes:
    return _ask("POST /chunked", *headers, "transfer-encoding: chunked", body=body)


_GET, _POST = _ask("GET /get"), _post(b"body")
_GOT, _POSTED = Request("GET /get"), Request("POST /post", b"body")
_LAST = b"0\r\n\r\n"


@dataclass(frozen=True)
class Case:
    """`sent` on one connection. `served` are the requests an application sees, `statuses` those of the client."""

    name: str
    sent: bytes
    served: tuple[Request, ...]
    statuses: tuple[int, ...]


def _bad(name: str, sent: bytes, status: int = 400) -> Case:
    return Case(name, sent, (), (status,))


_CASES = (
    Case("a GET", _GET, (_GOT,), (200,)),
    Case("a body by its length", _POST, (_POSTED,), (200,)),
    Case("a GET with a body", _ask("GET /get", "content-length: 2", body=b"hi") + _GET,
         (Request("GET /get", b"hi"), _GOT), (200, 200)),
    Case("a body that looks like a request", _post(_POST), (Request("POST /post", _POST),), (200,)),
    Case("an empty body", _post(b"") + _GET, (Request("POST /post"), _GOT), (200, 200)),
    Case("chunks", _chunked(b"3\r\nabc\r\n4\r\ndefg\r\n" + _LAST), (Request("POST /chunked", b"abcdefg"),), (200,)),
    Case("chunks with extensions and trailers",
         _chunked(b'3;a=b\r\nabc\r\n0A;c;d="e;f"\r\n0123456789\r\n0;g\r\nx-sum: 1\r\n\r\n') + _GET,
         (Request("POST /chunked", b"abc0123456789"), _GOT), (200, 200)),
    Case("a chunk that looks like the last one", _chunked(b"5\r\n" + _LAST + b"\r\n" + _LAST) + _GET,
         (Request("POST /chunked", _LAST), _GOT), (200, 200)),
    Case("requests one behind the other", _GET + _POST + _chunked(b"1\r\nx\r\n" + _LAST) + _GET,
         (_GOT, _POSTED, Request("POST /chunked", b"x"), _GOT), (200, 200, 200, 200)),
    Case("blank lines before requests", b"\r\n\r\n" + _GET + b"\r\n" + _POST, (_GOT, _POSTED), (200, 200)),
    Case("an upgrade that is not taken",
         _post(b"body", "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAEA") + _GET,
         (_POSTED, _GOT), (200, 200)),
    Case("an upgrade whose body is a request", _post(_POST, "upgrade: h2c", "connection: upgrade") + _GET,
         (Request("POST /post", _POST), _GOT), (200, 200)),
    Case("an upgrade with chunks behind a request",
         _GET + _chunked(b"4\r\nbody\r\n" + _LAST, "upgrade: websocket", "connection: upgrade") + _GET,
         (_GOT, Request("POST /chunked", b"body"), _GOT), (200, 200, 200)),
    Case("an upgrade that is not to be made", _ask("GET /get", "upgrade: h2c") + _GET, (_GOT, _GOT), (200, 200)),
    Case("a client that waits to be told to go on", _post(b"body", "expect: 100-continue") + _GET,
         (_POSTED, _GOT), (100, 200, 200)),
    Case("the last request", _ask("GET /get", "connection: close") + _POST, (_GOT,), (200,)),
    Case("HTTP/1.0", _ask("GET /get", version="HTTP/1.0") + _POST, (_GOT,), (200,)),
    Case("a head that ends too early", _POST[:-20], (), ()),
    Case("a body that ends too early", _POST[:-2], (Request("POST /post", b"bo", whole=False),), ()),
    Case("chunks that end too early", _chunked(b"9\r\nabc"), (Request("POST /chunked", b"abc", whole=False),), ()),
    Case("a head at the limit", _ask("GET /get", "x: " + "x" * 1_014), (_GOT,), (200,)),
    _bad("a head beyond the limit", _ask("GET /get", "x: " + "x" * 1_015), 431),
    _bad("two lengths", _ask("POST /", "content-length: 4", "content-length: 5", body=b"bodyx")),
    _bad("a length and chunks", _chunked(_LAST, "content-length: 5")),
    _bad("chunks and a length", _ask("POST /", "transfer-encoding: chunked", "content-length: 5", body=_LAST)),
    _bad("chunks that are not the last coding", _ask("POST /", "transfer-encoding: chunked, gzip", body=_LAST)),
    _bad("a length that is none", _ask("POST /", "content-length: -1")),
    _bad("a blank before a colon", _ask("GET /", "x : y")),
    _bad("a folded header", _ask("GET /", "x: a", " b")),
    _bad("a line that ends with a line feed alone", _ask("GET /", "x: a\ny: b")),
    _bad("a zero in a header", _ask("GET /", "x: a\0b")),
    _bad("no method", _ask("get /")),
    _bad("a tunnel", _ask("CONNECT other:443") + _GET),
    _bad("HTTP/2 without an upgrade", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    Case("a chunk size that is none", _chunked(b"4x\r\nbody\r\n" + _LAST),
         (Request("POST /chunked", whole=False),), (400,)),
    Case("a chunk that is longer than it says", _chunked(b"2\r\nabc\r\n" + _LAST),
         (Request("POST /chunked", b"ab", whole=False),), (400,)),
    Case("rubbish behind a request", _POST + b"rubbish\r\n\r\n" + _GET, (_POSTED,), (200, 400)),
    Case("a large head behind a request", _POST + _ask("GET /get", "x: " + "x" * 1_015), (_POSTED,), (200, 431)),
    Case("a tunnel behind a request", _POST + _ask("CONNECT other:443") + _GET, (_POSTED,), (200, 400)),
)  # fmt: skip


def _cuts(sent: bytes) -> Iterator[int]:
    """Every place, but in a run of the same letter, which a long value is filled with, one of 64."""
    return (at for at in range(len(sent)) if len(set(sent[max(at - 2, 0) : at + 2])) > 1 or at % 64 == 0)


async def _served(case: Case, at: int, *, late: bool) -> tuple[list[Request], list[int]]:
    wire = Wire(application := Application(), _LIMITS)
    if late:
        application.answers.clear()
    await wire.send(*filter(None, (case.sent[:at], case.sent[at:])))
    application.answers.set()
    await wire.send()
    await wire.end()
    return application.served, wire.statuses


@pytest.mark.parametrize("late", [False, True], ids=["answered at once", "answered when all is sent"])
@pytest.mark.parametrize("case", _CASES, ids=[case.name for case in _CASES])
async def test_requests_are_the_same_wherever_their_bytes_are_cut(case: Case, late: bool) -> None:
    wrong = {}
    for at in _cuts(case.sent):
        found = await _served(case, at, late=late)
        if found != (list(case.served), list(case.statuses)):
            wrong[at] = found
    assert not wrong, (len(wrong), list(wrong.items())[:3])
