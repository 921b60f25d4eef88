"""A request that is refused before its body is read."""

from __future__ import annotations

import pytest

from services.gateway.errors import KeyUnknown
from services.gateway.http.errors import Told
from services.gateway.http.server.endpoint import Endpoint
from services.gateway.http.server.exchange import Exchange
from services.gateway.settings.http import HttpSettings
from tests.unit.gateway.http.wire import Wire

pytestmark = pytest.mark.paused

LIMITS = HttpSettings(max_body_bytes=1_024)


def head(length: int, *headers: str) -> bytes:
    lines = ("POST / HTTP/1.1", "host: g", "content-type: application/json", f"content-length: {length}", *headers)
    return "\r\n".join((*lines, "", "")).encode()


async def unknown(exchange: Exchange) -> None:
    raise KeyUnknown("authorization: required")


async def read(exchange: Exchange) -> None:
    await exchange.fields()
    await exchange.reply.whole(200, b"{}")


async def told(serve: object, *sent: bytes) -> list[int]:
    wire = Wire(Endpoint("/", serve, Told.openai, None, LIMITS, False, False, True))
    await wire.send(*sent)
    statuses, closing = wire.statuses, wire.transport.closing
    await wire.end()
    assert closing == (statuses[-1] != 200)
    return statuses


@pytest.mark.parametrize(("serve", "length", "status"), [(unknown, 1_000, 401), (read, 2_000, 413)])
async def test_a_client_that_waits_with_its_body_is_refused_without_it(serve: object, length: int, status: int) -> None:
    assert await told(serve, head(length, "expect: 100-continue")) == [status]


async def test_a_client_that_waits_with_its_body_is_told_to_send_it_where_it_is_read() -> None:
    assert await told(read, head(2, "expect: 100-continue"), b"{}") == [100, 200]


async def test_a_header_for_providers_that_comes_in_several_lines_is_one_list() -> None:
    seen: dict[str, str] = {}

    async def noted(exchange: Exchange) -> None:
        seen.update(exchange.headers)
        await read(exchange)

    beta = [f"anthropic-beta: {name}" for name in ("a", "b,c")]
    version = ["anthropic-version: 2023-06-01"] * 2
    await told(noted, head(2, *beta, *version, "x-hedgerow-tier: fast", "x-hedgerow-tier: auto"), b"{}")
    assert (seen["anthropic-beta"], seen["anthropic-version"]) == ("a, b,c", "2023-06-01")
    assert seen["x-hedgerow-tier"] == "auto"
