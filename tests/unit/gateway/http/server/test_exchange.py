"""A request that is refused before its body is read."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from services.gateway.errors import KeyUnknown
from services.gateway.http.errors import ErrorResponse
from services.gateway.http.server.endpoint import Endpoint
from services.gateway.http.server.exchange import Exchange
from services.gateway.settings.http import HttpSettings
from tests.unit.gateway.http.wire import Wire

pytestmark = pytest.mark.paused

LIMITS = HttpSettings(max_body_bytes=1_024)


def head(length: int | str, *headers: str) -> bytes:
    return typed("application/json", length, *headers)


def typed(kind: str, length: int | str, *headers: str) -> bytes:
    content_type = (f"content-type: {kind}",) if kind else ()
    lines = ("POST / HTTP/1.1", "host: g", *content_type, f"content-length: {length}", *headers)
    return "\r\n".join((*lines, "", "")).encode()


async def unknown(exchange: Exchange) -> None:
    raise KeyUnknown("authorization: required")


async def read(exchange: Exchange) -> None:
    vars(exchange).setdefault("credential", SimpleNamespace(tenant=SimpleNamespace(name="t")))
    await exchange.fields()
    await exchange.reply.whole(200, b"{}")


def wire_to(serve: Any) -> Wire:
    return Wire(Endpoint("/", serve, ErrorResponse.openai, None, LIMITS, False, False, True))


async def statuses(serve: object, *sent: bytes) -> list[int]:
    wire = wire_to(serve)
    await wire.send(*sent)
    statuses, closing = wire.statuses, wire.transport.closing
    await wire.end()
    assert closing == (statuses[-1] != 200)
    return statuses


@pytest.mark.parametrize(("serve", "length", "status"), [(unknown, 1_000, 401), (read, 2_000, 413)])
async def test_a_client_that_waits_with_its_body_is_refused_without_it(serve: object, length: int, status: int) -> None:
    assert await statuses(serve, head(length, "expect: 100-continue")) == [status]


async def test_a_body_in_chunks_that_is_too_large_is_refused() -> None:
    wire = wire_to(read)
    chunks = b"%x\r\n%b\r\n" % (2_000, b"x" * 2_000)
    await wire.send(head(0, "transfer-encoding: chunked").replace(b"content-length: 0\r\n", b"") + chunks)
    await asyncio.sleep(1.1)  # for the rest of it to come
    assert wire.statuses == [413]
    assert b"body: at most 1024 bytes, got " in wire.transport.written
    await wire.end()


async def test_a_client_that_expects_100_continue_gets_it_where_its_body_is_read() -> None:
    assert await statuses(read, head(2, "expect: 100-continue"), b"{}") == [100, 200]


async def test_a_length_may_begin_with_any_number_of_zeros() -> None:
    assert await statuses(read, head("0" * 5_000 + "2"), b"{}") == [200]


async def test_a_client_may_leave_a_server_that_stops_before_its_body_is_there(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def waits(exchange: Exchange) -> None:
        await asyncio.Event().wait()

    wire = wire_to(waits)
    await wire.send(head(10))
    (serving,) = wire.state.tasks
    serving.cancel()
    await wire.send()
    with caplog.at_level("ERROR", "uvicorn.error"):
        await wire.end()
    assert not caplog.records


@pytest.mark.parametrize(("encoding", "status"), [("gzip", 415), ("br", 415), ("identity", 200)])
async def test_a_compressed_body_is_refused_for_what_it_is(encoding: str, status: int) -> None:
    wire = wire_to(read)
    await wire.send(head(2, f"content-encoding: {encoding}") + b"{}")
    assert wire.statuses == [status]
    assert (b"content-encoding: identity: no compressed body, got " in wire.transport.written) == (status == 415)
    await wire.end()


async def test_a_header_for_providers_that_comes_in_several_lines_is_one_list() -> None:
    seen: dict[str, str] = {}

    async def noted(exchange: Exchange) -> None:
        seen.update(exchange.headers)
        await read(exchange)

    beta = [f"anthropic-beta: {name}" for name in ("a", "b,c")]
    version = ["anthropic-version: 2023-06-01"] * 2
    await statuses(noted, head(2, *beta, *version, "x-hedgerow-tier: fast", "x-hedgerow-tier: auto"), b"{}")
    assert (seen["anthropic-beta"], seen["anthropic-version"]) == ("a, b,c", "2023-06-01")
    assert seen["x-hedgerow-tier"] == "auto"


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
async def test_names_in_headers_are_those_of_a_body(encoding: str) -> None:
    seen: list[object] = []

    async def noted(exchange: Exchange) -> None:
        seen.extend((exchange.headers["x-hedgerow-end-user"], *exchange.metadata))
        await read(exchange)

    names = head(2, "x-hedgerow-end-user: André", "x-hedgerow-tenant: André").decode().encode(encoding)
    await statuses(noted, names, b"{}")
    assert seen == ["André", ("x-hedgerow-tenant", "André")]


@pytest.mark.parametrize(
    ("kind", "anonymous", "status"),
    [("application/json; charset=utf-8", True, 200), ("", False, 200), ("", True, 415), ("text/plain", False, 415)],
)
async def test_a_body_without_a_type_is_read_where_no_page_can_have_sent_it(
    kind: str, anonymous: bool, status: int
) -> None:
    async def known(exchange: Exchange) -> None:
        credential: Any = SimpleNamespace(tenant=SimpleNamespace(anonymous=anonymous, name="t"))
        exchange.credential = credential
        await read(exchange)

    wire = wire_to(known)
    await wire.send(typed(kind, 2), b"{}")
    assert wire.statuses == [status]
    await wire.end()


@pytest.mark.parametrize(
    ("headers", "credential"),
    [
        (["authorization: Bearer a", "x-api-key: b", "api-key: c"], "Bearer a"),
        (["x-api-key: b", "api-key: c"], "Bearer b"),
        (["api-key: c"], "Bearer c"),
        (["authorization: Basic a", "api-key: c"], "Bearer c"),
        ([], None),
    ],
)
async def test_a_key_comes_in_one_of_three_headers(headers: list[str], credential: str | None) -> None:
    seen: list[str | None] = []

    async def noted(exchange: Exchange) -> None:
        seen.append(dict(exchange.metadata).get("authorization"))
        await read(exchange)

    await statuses(noted, head(2, *headers), b"{}")
    assert seen == [credential]


@pytest.mark.parametrize(("size", "waits"), [(65_536, False), (65_537, True)])
async def test_a_request_is_over_once_its_client_has_read_all_but_64_kib_of_its_answer(size: int, waits: bool) -> None:
    over: list[bool] = []

    async def large(exchange: Exchange) -> None:
        await exchange.reply.whole(200, b"x" * size)
        over.append(True)

    wire = wire_to(large)
    wire.reads_nothing()
    await wire.send(head(0))
    assert over == [True] * (not waits)
    wire.connection.resume_writing()
    await wire.send()
    assert over == [True]
    await wire.end()


async def test_nothing_follows_an_answer_that_its_client_reads_slowly() -> None:
    async def large(exchange: Exchange) -> None:
        exchange.broken = lambda failure: b"more"
        whole = asyncio.create_task(exchange.reply.whole(200, b"x" * 100_000))
        await asyncio.sleep(0)
        await exchange.reply.beat()
        whole.cancel()
        await whole

    wire = wire_to(large)
    wire.reads_nothing()
    await wire.send(head(0))
    wire.connection.resume_writing()
    await wire.send(head(0))
    _, _, answer = bytes(wire.transport.written).partition(b"\r\n\r\n")
    assert answer[:100_000] == b"x" * 100_000
    assert answer[100_000:].startswith(b"HTTP/1.1 200 OK")
    await wire.end()
