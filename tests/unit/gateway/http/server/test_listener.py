"""Two HTTP servers of one process, of which the second takes over."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from launcher.processes import free_port
from services.gateway.config import GatewaySettings
from services.gateway.http.errors import ErrorResponse
from services.gateway.http.server.endpoint import Endpoint
from services.gateway.http.server.exchange import Exchange
from services.gateway.http.server.listener import HttpServer, bind
from services.gateway.settings.http import HttpSettings
from tests.certificates import Certificates

_REQUEST = b"GET / HTTP/1.1\r\nhost: g\r\nconnection: close\r\n\r\n"


@pytest.fixture(autouse=True)
def _clients_move_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.gateway.http.server.listener.MOVES_S", 0.05)


async def answer(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})


async def each_is_answered(clients: Sequence[socket.socket], stopping: asyncio.Task[None]) -> None:
    """Each of these connections sends a request and gets its answer from a server that is `stopping`."""
    for client in clients:
        client.sendall(_REQUEST)
    heads = [await asyncio.to_thread(client.recv, 100) for client in clients]
    assert {head[:15] for head in heads} == {b"HTTP/1.1 200 OK"}
    await stopping
    for client in clients:
        client.close()


def at(address: str) -> GatewaySettings:
    open_to_all = {"plaintext": True, "allow_anonymous": True}
    return GatewaySettings(http_address=address, llm_addresses={"m": ["127.0.0.1:1"]}, overlaps=True, **open_to_all)


@asynccontextmanager
async def serving(
    settings: GatewaySettings, app: ASGIApp = answer, limits: HttpSettings | None = None
) -> AsyncIterator[tuple[HttpServer, socket.socket]]:
    """A server, and its socket."""
    server, bound = HttpServer(limits or HttpSettings()), bind(settings)
    assert bound
    async with server.serving(app, bound, settings):
        yield server, bound


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
async def test_connections_that_wait_are_answered_when_a_server_takes_over_also_at_another_host(host: str) -> None:
    port = free_port()
    before, after = at(f"127.0.0.1:{port}"), at(f"{host}:{port}")
    async with serving(before) as (first, _), serving(after) as (_, following):
        clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(20)]
        first.leave()  # before the event loop has seen them
        stopping = asyncio.create_task(first.stop(5))
        clients += [await asyncio.to_thread(socket.create_connection, ("127.0.0.1", port)) for _ in range(5)]
        await each_is_answered(clients, stopping)
    following.close()


async def test_a_server_is_followed_also_where_the_process_has_no_descriptor_for_those_that_wait() -> None:
    class Full(socket.socket):
        def accept(self) -> tuple[socket.socket, object]:
            raise OSError(errno.EMFILE, "Too many open files")

    settings = at(f"127.0.0.1:{free_port()}")
    async with serving(settings) as (server, bound):
        following = bind(settings)
        server._bound = full = Full(fileno=bound.detach())
        server.leave()
        assert full.fileno() == -1, "the server has closed its socket"
    assert following
    following.close()


async def test_a_server_that_no_other_follows_takes_connections_until_it_stops() -> None:
    settings = at(f"127.0.0.1:{free_port()}")
    async with serving(settings) as (server, _):
        server.leave()
        reader, writer = await asyncio.open_connection(*settings.http_address.rsplit(":", 1))
        writer.write(_REQUEST)
        assert (await reader.read()).startswith(b"HTTP/1.1 200 OK")
        writer.close()
        await writer.wait_closed()
        await server.stop(5)
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(*settings.http_address.rsplit(":", 1))


async def test_waiting_connections_are_answered_when_a_server_with_a_shared_port_stops() -> None:
    settings = at(f"127.0.0.1:{free_port()}")
    async with serving(settings) as (server, bound):
        clients = [socket.create_connection(("127.0.0.1", bound.getsockname()[1])) for _ in range(20)]
        server.leave()
        stopping = asyncio.create_task(server.stop(5))  # before the event loop has seen them
        await each_is_answered(clients, stopping)


@pytest.mark.parametrize("more", [b"", b"the body"], ids=["silent", "sends on"])
async def test_a_client_in_the_middle_of_its_body_gets_an_answer_from_a_server_that_stops(more: bytes) -> None:
    settings, limits, read = at(f"127.0.0.1:{free_port()}"), HttpSettings(), asyncio.Event()
    servicer: Any = SimpleNamespace(ended=lambda *_: None)

    async def serve(exchange: Exchange) -> None:
        read.set()
        await exchange.body()

    app = Endpoint("/", serve, ErrorResponse.openai, servicer, limits, mutual=False, loopback=False, open_=True)
    async with serving(settings, app, limits) as (server, _):
        reader, writer = await asyncio.open_connection(*settings.http_address.rsplit(":", 1))
        writer.write(b"POST / HTTP/1.1\r\nhost: g\r\ncontent-length: 100\r\n\r\nhalf of")
        await read.wait()
        stopping = asyncio.create_task(server.stop(0.05))
        writer.write(more)
        answered = await reader.read()
        assert answered.startswith(b"HTTP/1.1 503 ")
        assert b"the gateway is stopping" in answered
        writer.close()
        await stopping


async def test_a_client_that_begins_no_handshake_has_the_time_of_headers(tmp_path: Path) -> None:
    Certificates(tmp_path)
    settings = at(address := f"127.0.0.1:{free_port()}").model_copy(update={"tls_dir": tmp_path / "gateway"})
    async with serving(settings, limits=HttpSettings(header_ms=50)):
        reader, writer = await asyncio.open_connection(*address.split(":"))
        assert await asyncio.wait_for(reader.read(), 10) == b""
        writer.close()
