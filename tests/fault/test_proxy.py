"""The simulated bad network does what its toxics' names say."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio

from tests.fault.proxy import Bandwidth, FaultProxy, Latency, LimitData, ResetPeer, Slicer, Timeout

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(30)]


@asynccontextmanager
async def echo() -> AsyncIterator[FaultProxy]:
    """A proxy to a server that sends back what it gets, segment by segment."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with FaultProxy(f"127.0.0.1:{server.sockets[0].getsockname()[1]}") as proxy:
        yield proxy
    server.close()
    await server.wait_closed()


class Wire:
    """A client's end."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        self.reader, self.writer = reader, writer

    async def round_trip(self, data: bytes) -> float:
        """Seconds until all of it is back."""
        started = time.monotonic()
        self.writer.write(data)
        assert await self.reader.readexactly(len(data)) == data
        return time.monotonic() - started


@pytest_asyncio.fixture(loop_scope="session")
async def proxy() -> AsyncIterator[FaultProxy]:
    async with echo() as running:
        yield running


@pytest_asyncio.fixture(loop_scope="session")
async def wire(proxy: FaultProxy) -> AsyncIterator[Wire]:
    host, _, port = proxy.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    yield Wire(reader, writer)
    writer.transport.abort()


async def test_without_toxics_everything_passes(wire: Wire):
    await wire.round_trip(b"x" * 300_000)


async def test_latency_delays_each_direction_and_keeps_the_order(proxy: FaultProxy, wire: Wire):
    proxy.add(Latency(40), "upstream")
    assert await wire.round_trip(b"0123456789") >= 0.04
    proxy.add(Latency(40, jitter_ms=10), "downstream")
    assert await wire.round_trip(b"0123456789") >= 0.07


async def test_bandwidth_makes_many_bytes_slow(proxy: FaultProxy, wire: Wire):
    proxy.add(Bandwidth(50_000), "downstream")
    assert await wire.round_trip(b"x" * 10_000) >= 0.18


async def test_timeout_holds_back_what_comes_until_it_is_healed(proxy: FaultProxy, wire: Wire):
    await wire.round_trip(b"before")
    proxy.add(Timeout())
    wire.writer.write(b"held")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(wire.reader.readexactly(1), 0.1)
    proxy.heal()
    assert await wire.reader.readexactly(4) == b"held"


async def test_timeout_closes_the_connection_when_its_time_is_over(proxy: FaultProxy, wire: Wire):
    await wire.round_trip(b"before")
    proxy.add(Timeout(20))
    assert await asyncio.wait_for(wire.reader.read(), 5) == b""


async def test_reset_peer_resets_an_idle_connection(proxy: FaultProxy, wire: Wire):
    await wire.round_trip(b"before")
    proxy.add(ResetPeer(10))
    with pytest.raises(ConnectionResetError):
        await asyncio.wait_for(wire.reader.read(), 5)


async def test_reset_peer_also_holds_for_new_connections(proxy: FaultProxy):
    proxy.add(ResetPeer())
    host, _, port = proxy.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    with pytest.raises(ConnectionResetError):
        await asyncio.wait_for(reader.read(), 5)
    writer.transport.abort()


async def test_slicer_sends_single_bytes(proxy: FaultProxy, wire: Wire):
    proxy.add(Slicer(1, delay_us=2_000), "downstream")
    wire.writer.write(b"abc")
    assert await wire.reader.read(100) == b"a"
    assert await wire.reader.readexactly(2) == b"bc"


async def test_limit_data_ends_in_the_middle(proxy: FaultProxy, wire: Wire):
    proxy.add(LimitData(5), "downstream")
    wire.writer.write(b"0123456789")
    assert await asyncio.wait_for(wire.reader.read(), 5) == b"01234"


async def test_limit_data_may_end_by_a_reset(proxy: FaultProxy, wire: Wire):
    proxy.add(LimitData(5, reset=True), "downstream")
    wire.writer.write(b"0123456789")
    with pytest.raises(ConnectionResetError):
        await asyncio.wait_for(wire.reader.read(-1), 5)


async def test_cut_resets_every_connection(proxy: FaultProxy, wire: Wire):
    await wire.round_trip(b"before")
    assert proxy.connections == 1
    proxy.cut()
    with pytest.raises(ConnectionResetError):
        await asyncio.wait_for(wire.reader.read(), 5)


async def test_a_target_that_is_not_there_is_a_reset(proxy: FaultProxy):
    proxy.target = "127.0.0.1:1"
    host, _, port = proxy.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    with pytest.raises(ConnectionResetError):
        await asyncio.wait_for(reader.read(), 5)
    writer.transport.abort()
