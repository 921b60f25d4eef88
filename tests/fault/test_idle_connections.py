"""Thousands of idle connections from one address: other clients can connect, and tenants keep their connections."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from launcher.processes import free_port
from tests.fault.faulty_llm import FaultyLlm
from tests.fault.mesh import Processes
from tests.fault.report import Report, Row
from tests.keys import tenants
from tests.waiting import until

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(300)]
_TOGETHER = 50  # connections that are made at once
_CALLS = 40
_QUESTION = {"model": "simulated", "messages": [{"role": "user", "content": "Is there a slot?"}]}
_HEALTH = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"


class Idle(asyncio.Protocol):
    """A connection that has asked for health, without a credential, and stays."""

    def __init__(self) -> None:
        self.answered, self.gone = asyncio.Event(), asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.write(_HEALTH)

    def data_received(self, data: bytes) -> None:
        self.answered.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.gone.set()
        self.answered.set()


@dataclass
class Crowd:
    """Idle connections of some addresses, to `port`."""

    port: int
    here: list[Idle] = field(default_factory=list)

    async def come(self, number: int, address: str) -> int:
        """So many more from an address; how many were not closed at once."""
        new = list[Idle]()
        while len(new) < number:
            some = min(_TOGETHER, number - len(new))
            new += await asyncio.gather(*(self._connect(address) for _ in range(some)))
            await asyncio.gather(*(each.answered.wait() for each in new[-some:]))
        self.here += new
        return sum(not each.gone.is_set() for each in new)

    async def _connect(self, address: str) -> Idle:
        connect = asyncio.get_running_loop().create_connection
        _, idle = await connect(Idle, "127.0.0.1", self.port, local_addr=(address, 0))
        return idle

    @property
    def left(self) -> int:
        return sum(not each.gone.is_set() for each in self.here)


@asynccontextmanager
async def _crowd(port: int) -> AsyncIterator[Crowd]:
    crowd = Crowd(port)
    try:
        yield crowd
    finally:
        for each in crowd.here:
            each.transport.abort()
        await asyncio.gather(*(each.gone.wait() for each in crowd.here))


async def test_idle_connections_keep_no_client_out(starter: Processes, llm: FaultyLlm, report: Report, full_size: bool):
    slots, number = (4_096, 4_200) if full_size else (64, 70)
    of_one, port = slots // 2, free_port()
    limits = {"max_connections": slots, "max_connections_of_one": of_one}
    async with AsyncExitStack() as stack:
        await starter.gateway(llm.address, tenants=tenants("a", "b"), http_address=f"127.0.0.1:{port}", http=limits)
        crowd = await stack.enter_async_context(_crowd(port))
        kept = await stack.enter_async_context(_client(port, "127.0.0.2", keep=True))
        before = [await _ask(port, "127.0.0.2") for _ in range(_CALLS)]
        assert await _on(kept) == 200  # from now on an idle connection that a tenant has used
        with report.case(50, f"{number:,} idle connections from one address, beyond a limit of {slots:,}") as row:
            stayed = await crowd.come(number, "127.0.0.3")
            assert stayed == of_one
            _check(row, before, [await _ask(port, "127.0.0.2") for _ in range(_CALLS)])
        with report.case(50, f"{2 * number:,} idle connections from two addresses: every slot is taken") as row:
            await crowd.come(number, "127.0.0.4")
            _check(row, before, [await _ask(port, "127.0.0.5") for _ in range(_CALLS)])
            await until(lambda: crowd.left < slots, 10)  # they lost their slots
            assert await _on(kept) == 200
            row.tally(ok=1)
            assert kept.connections == 1


@dataclass
class Kept:
    """A client and how many connections it has made."""

    client: httpx.AsyncClient
    connections: int = 0


@asynccontextmanager
async def _client(port: int, address: str, *, keep: bool) -> AsyncIterator[Kept]:
    """A client of tenant B at an address."""
    kept = Kept(httpx.AsyncClient())

    async def noted(name: str, info: object) -> None:
        kept.connections += name == "connection.connect_tcp.complete"

    transport = httpx.AsyncHTTPTransport(
        local_address=address,
        limits=httpx.Limits(max_keepalive_connections=1 if keep else 0, keepalive_expiry=600),
    )
    headers = {"authorization": "Bearer key-b"}
    async with httpx.AsyncClient(
        transport=transport, base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=30
    ) as client:
        client.event_hooks = {"request": [_traced(noted)]}
        kept.client = client
        yield kept


def _traced(noted: Callable[[str, Any], Awaitable[None]]) -> Callable[[httpx.Request], Awaitable[None]]:
    async def add(request: httpx.Request) -> None:
        request.extensions["trace"] = noted

    return add


async def _on(kept: Kept) -> int:
    return (await kept.client.post("/v1/chat/completions", json=_QUESTION)).status_code


async def _ask(port: int, address: str) -> float:
    """Seconds that an answer takes on a connection of its own. Raises where there is none."""
    began = time.perf_counter()
    async with _client(port, address, keep=False) as client:
        assert await _on(client) == 200
    return time.perf_counter() - began


def _check(row: Row, before: Sequence[float], during: Sequence[float]) -> None:
    row.tally(ok=len(during))
    row.slowed("another tenant's p99", before, during)
