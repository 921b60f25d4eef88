"""A connection of the HTTP server: which requests its bytes are."""

from __future__ import annotations

import pytest

from tests.unit.gateway.http.wire import Application, Request, Wire, served

pytestmark = pytest.mark.paused

_H2C = b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAEAAEAAAAIAAAAB\r\n"
_HIDDEN = b"POST /hidden HTTP/1.1\r\nhost: g\r\ncontent-length: 2\r\n\r\n{}"


def _post(body: bytes, *headers: bytes, path: bytes = b"/one") -> bytes:
    return b"POST %b HTTP/1.1\r\nhost: g\r\n%bcontent-length: %d\r\n\r\n%b" % (path, b"".join(headers), len(body), body)


@pytest.mark.parametrize(
    "upgrade", [_H2C, b"connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n"]
)
@pytest.mark.parametrize("cut", ["nowhere", "after the head", "in the head", "in the body"])
async def test_a_request_that_offers_an_upgrade_is_served_as_if_it_did_not(upgrade: bytes, cut: str) -> None:
    sent = _post(_HIDDEN, upgrade)
    at = {"nowhere": 0, "after the head": len(sent) - len(_HIDDEN), "in the head": 40, "in the body": len(sent) - 5}[
        cut
    ]

    requests, statuses = await served([sent[:at], sent[at:]] if at else [sent])

    assert requests == [Request("POST /one", _HIDDEN)]
    assert statuses == [200]


async def test_the_connection_goes_on_after_an_upgrade_that_is_not_taken() -> None:
    wire = Wire(Application())
    await wire.send(_post(b"a", _H2C) + _post(b"b", _H2C, path=b"/two"), _post(b"c", path=b"/three"))
    await wire.end()

    assert wire.application.served == [
        Request("POST /one", b"a"), Request("POST /two", b"b"), Request("POST /three", b"c")
    ]  # fmt: skip
    assert wire.statuses == [200, 200, 200]
    assert b"upgrade" not in dict(wire.application.scopes[0]["headers"])
    assert dict(wire.application.scopes[0]["headers"])[b"http2-settings"].startswith(b"AAEAAEAA")


async def test_a_tunnel_is_refused_and_its_bytes_are_no_requests() -> None:
    requests, statuses = await served([b"CONNECT other:443 HTTP/1.1\r\nhost: other:443\r\n\r\n", _HIDDEN])

    assert requests == []
    assert statuses == [400]


@pytest.mark.parametrize("kept_back", [1, 20, 28])
async def test_what_comes_before_a_request_in_the_same_read_is_not_counted_as_its_headers(kept_back: int) -> None:
    one, two = _post(b"x" * 70_000), b"GET /two HTTP/1.1\r\nhost: g\r\n\r\n"
    sent = one + two

    requests, statuses = await served([sent[:-kept_back], sent[-kept_back:]])

    assert requests == [Request("POST /one", b"x" * 70_000), Request("GET /two")]
    assert statuses == [200, 200]


async def test_headers_behind_a_body_are_still_limited() -> None:
    behind = b"GET /two HTTP/1.1\r\nx: "

    requests, statuses = await served([_post(b"{}") + behind, *[b"x" * 10_000] * 14])

    assert requests == [Request("POST /one", b"{}")]
    assert statuses == [200, 431]
