"""Both versions of HTTP, against a real server in this process."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import uvloop
from aiohttp.abc import AbstractResolver, ResolveResult

from bench.provider.server import Behaviour, Protocol, SimulatedProvider
from launcher.certificate_authority import make_authority, write_identity
from services.llm.providers.transport import http1
from services.llm.providers.transport.client import ProviderClient
from services.llm.providers.transport.http1 import Http1
from services.llm.providers.transport.http2 import Http2
from services.llm.providers.transport.names import FreshNames
from services.llm.providers.transport.reply import ReplyLimits
from services.llm.providers.transport.wire import Broken, Options, Wire
from services.runtime.deadline import Deadline
from tests.certificates import server_tls
from tests.waiting import until

_POST = {"content-type": "application/json", "authorization": "Bearer sk-very-secret"}
each_protocol = pytest.mark.parametrize("protocol", ["http1", "http2"])


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    authority = make_authority()
    write_identity(tmp_path, authority.pem(), authority.issue("llm", 1))
    return tmp_path


@asynccontextmanager
async def provider_over(
    protocol: Protocol,
    folder: Path,
    *,
    ca: Path | None = None,
    tls: bool = True,
    idle_s: float = 60,
    read_s: float = 20,
) -> AsyncIterator[tuple[SimulatedProvider, Wire]]:
    async with SimulatedProvider(protocol, server_tls(folder) if tls else None) as provider:
        options = Options(8, connect_s=20, read_s=read_s, idle_s=idle_s, ca_file=str(ca or folder / "ca.crt"))
        wire: Wire = Http2(options) if protocol == "http2" else Http1(provider.url, options)
        try:
            yield provider, wire
        finally:
            await wire.close()
            await until(lambda: not provider.open)


async def ask(provider: SimulatedProvider, wire: Wire) -> bytes:
    reply = await wire.send("POST", f"{provider.url}/chat/completions", _POST, b"{}")
    assert (reply.status, reply.headers["content-type"]) == (200, "text/event-stream")
    body = b""
    try:
        while piece := await reply.read():
            body += piece
    except Broken:
        await reply.drop()
        raise
    assert reply.ended
    return body


@each_protocol
@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_connections_that_are_opened_at_the_same_moment_work_and_are_resumed_later(
    run: Callable[[Coroutine[Any, Any, None]], None], protocol: Protocol, folder: Path
) -> None:
    async def ask_at_once() -> None:
        async with provider_over(protocol, folder) as (provider, wire):
            for _ in range(3):
                before = replace(provider.counts)
                bodies = await asyncio.gather(*(ask(provider, wire) for _ in range(8)))
                assert all(body.endswith(b"data: [DONE]\n\n") for body in bodies)
                provider.close_connections()
                await until(lambda: not provider.open)
            opened, resumed = provider.counts.accepted - before.accepted, provider.counts.resumed - before.resumed
            assert opened >= resumed > 0
            assert opened == resumed or protocol == "http2"  # there, each of a server's tickets is used once

    run(ask_at_once())


@each_protocol
async def test_a_provider_with_another_authoritys_certificate_receives_nothing(
    protocol: Protocol, folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = make_authority()
    write_identity(foreign := tmp_path_factory.mktemp("foreign"), other.pem(), other.issue("llm", 1))
    async with provider_over(protocol, folder, ca=foreign / "ca.crt") as (provider, wire):
        with pytest.raises(Broken) as caught:
            await ask(provider, wire)
        assert provider.counts.asked == 0
        assert str(provider.port) not in str(caught.value)


async def test_http2_falls_back_to_what_the_provider_speaks(folder: Path) -> None:
    async with SimulatedProvider("http1", server_tls(folder)) as provider:
        wire = Http2(Options(8, connect_s=20, read_s=20, idle_s=60, ca_file=str(folder / "ca.crt")))
        for _ in range(10):
            assert await ask(provider, wire)
        assert provider.counts.accepted < 10  # it may open one to have one
        await wire.close()


@each_protocol
async def test_silence_is_noticed(protocol: Protocol, folder: Path) -> None:
    async with provider_over(protocol, folder, read_s=0.5) as (provider, wire):
        for behaviour in (Behaviour(first_ms=60_000), Behaviour(tokens=2, each_ms=60_000)):
            provider.behaviour = behaviour
            with pytest.raises(Broken):
                await ask(provider, wire)


async def test_an_unused_connection_is_closed(folder: Path) -> None:
    async with provider_over("http1", folder, tls=False, idle_s=0.2) as (provider, wire):
        await ask(provider, wire)
        assert provider.open == 1
        await until(lambda: not provider.open)


async def test_a_proxy_that_the_environment_names_is_used(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append((await reader.readuntil(b"\r\n\r\n")).decode().lower())
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(proxy, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        monkeypatch.setenv("http_proxy", f"http://user:word@127.0.0.1:{port}")
        monkeypatch.setenv("no_proxy", "there.test")
        url = "http://provider.test/v1"
        wire = Http1(url, Options(8, connect_s=20, read_s=20, idle_s=60))
        reply = await wire.send("GET", f"{url}/models", {}, b"")
        assert (reply.status, await reply.read(), await reply.read()) == (200, b"ok", b"")
        await wire.close()
        wire = Http1("http://there.test/v1", Options(8, connect_s=20, read_s=20, idle_s=60))
        with pytest.raises(Broken):
            await wire.send("GET", "http://there.test/v1/models", {}, b"")
        await wire.close()
        async with provider_over("http1", folder, tls=False) as (here, wire):
            await ask(here, wire)
    assert len(asked) == 1
    assert asked[0].startswith("get http://provider.test/v1/models ")
    assert "proxy-authorization: basic" in asked[0]


async def test_a_provider_that_moved_is_found_by_the_request_that_fails_at_its_old_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    addresses, asked = ["127.0.0.3"], 0  # without a listener

    class Moving(AbstractResolver):
        async def resolve(self, host: str, port: int = 0, family: Any = 0) -> list[ResolveResult]:
            nonlocal asked
            asked += 1
            complete = {"hostname": host, "port": port, "family": socket.AF_INET, "proto": 0, "flags": 0}
            return [ResolveResult(host=each, **complete) for each in addresses]  # type: ignore[typeddict-item]

        async def close(self) -> None:
            pass

    monkeypatch.setattr(http1, "FreshNames", lambda: FreshNames(Moving()))
    async with SimulatedProvider("http1") as provider:
        url = f"http://provider.test:{provider.port}/v1"
        wire = Http1(url, Options(8, connect_s=20, read_s=20, idle_s=60))
        client = ProviderClient(wire, {}, 8, ReplyLimits(1_024, 1_024))
        with pytest.raises(Broken):
            async with client.request("GET", f"{url}/models", Deadline.after(20)):
                pass
        assert asked == 1, "a name that was just not found is not looked up again at once"
        addresses[:] = ["127.0.0.1"]
        async with client.request("GET", f"{url}/models", Deadline.after(20)) as reply:
            assert reply.status in (200, 404)
            reply.complete = True
        await client.close()


def test_a_connection_to_a_lost_host_ends_within_a_minute() -> None:
    with http1.watched((socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("127.0.0.1", 1))) as made:
        assert made.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        idle, every, count = (
            made.getsockopt(socket.IPPROTO_TCP, option)
            for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        )
    assert idle + every * count <= 60


@each_protocol
async def test_a_redirect_is_not_followed(protocol: Protocol, folder: Path) -> None:
    async with provider_over(protocol, folder) as (provider, wire):
        reply = await wire.send("POST", f"{provider.url}/moved", _POST, b"{}")
        assert reply.status == 307
        while await reply.read():
            pass
        assert provider.counts.asked == 0
