"""xDS streams: subscriptions, waiting, and how streams end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, contextmanager
from typing import Any

import pytest
from envoy.service.discovery.v3.discovery_pb2 import DiscoveryRequest, DiscoveryResponse
from opentelemetry import trace

from services.control.ads import Clients, DiscoveryServicer
from services.control.snapshot import ASSIGNMENTS, Kind, Snapshot
from services.runtime.deadline import Deadline
from services.runtime.errors import InvalidInput
from services.runtime.rpc.boundary import Call
from tests.unit.control.test_discovery_stream import content, snapshot

CALL = Call((), Deadline.never(), trace.INVALID_SPAN)


class StillMesh:
    """A mesh that a test changes."""

    def __init__(self, now: Snapshot):
        self.now, self.settled, self.asked = now, asyncio.Event(), list[tuple[str, Kind]]()
        self.settled.set()
        self.listeners: list[asyncio.Event] = []

    def snapshot(self, region: str, kind: Kind) -> Snapshot:
        self.asked.append((region, kind))
        return self.now

    @contextmanager
    def listening(self) -> Iterator[asyncio.Event]:
        self.listeners.append(asyncio.Event())
        yield self.listeners[-1]
        self.listeners.pop()

    def change(self, now: Snapshot) -> None:
        self.now = now
        for listener in self.listeners:
            listener.set()


class Streams:
    """One client's stream into the servicer."""

    def __init__(self, mesh: StillMesh):
        self.clients = Clients()
        self.servicer = DiscoveryServicer(mesh, self.clients)  # type: ignore[arg-type]
        self.sending: asyncio.Queue[DiscoveryRequest | Exception | None] = asyncio.Queue()
        self.responses: Any = self.servicer.StreamAggregatedResources(self._requests(), CALL)

    async def _requests(self) -> AsyncIterator[DiscoveryRequest]:
        while (request := await self.sending.get()) is not None:
            if isinstance(request, Exception):
                raise request
            yield request

    def ask(self, type_url: str, *names: str, agent: str = "gRPC C-core", refusal: str = "", nonce: str = "") -> None:
        request = DiscoveryRequest(type_url=type_url, resource_names=names, response_nonce=nonce)
        request.node.id, request.node.user_agent_name, request.node.locality.region = "gateway-1", agent, "west"
        if refusal:
            request.error_detail.message = refusal
        self.sending.put_nowait(request)

    async def next_response(self) -> DiscoveryResponse:
        async with asyncio.timeout(5):
            response: DiscoveryResponse = await anext(self.responses)
            return response


@pytest.fixture
def mesh() -> StillMesh:
    return StillMesh(snapshot(a="1"))


@pytest.fixture
async def streams(mesh: StillMesh) -> AsyncIterator[Streams]:
    streams = Streams(mesh)
    async with aclosing(streams.responses):
        yield streams
    assert not list(streams.clients)


@pytest.mark.parametrize(("agent", "kind"), [("gRPC C-core", Kind.GRPC), ("envoy", Kind.ENVOY), ("", Kind.GRPC)])
async def test_a_client_gets_the_resources_of_its_region_and_kind(
    mesh: StillMesh, streams: Streams, agent: str, kind: Kind
):
    streams.ask(ASSIGNMENTS, "a", agent=agent)
    assert content(await streams.next_response()) == ["a1"]
    assert set(mesh.asked) == {("west", kind)}


async def test_a_change_reaches_a_client_that_waits(mesh: StillMesh, streams: Streams):
    streams.ask(ASSIGNMENTS, "a")
    first = await streams.next_response()
    streams.ask(ASSIGNMENTS, "a", nonce=first.nonce)
    hearing = asyncio.create_task(streams.next_response())
    while streams.sending.qsize():
        await asyncio.sleep(0)
    mesh.change(snapshot(a="2"))
    assert content(await hearing) == ["a2"]


async def test_a_client_right_after_the_start_waits_for_the_first_round_of_health_checks(
    mesh: StillMesh, streams: Streams
):
    mesh.settled.clear()
    streams.ask(ASSIGNMENTS, "a")
    hearing = asyncio.create_task(streams.next_response())
    while not mesh.listeners:
        await asyncio.sleep(0)
    mesh.change(snapshot(a="2"))
    assert not hearing.done()
    mesh.settled.set()
    assert content(await hearing) == ["a2"]


@pytest.mark.parametrize("asks", [True, False])
async def test_a_stream_ends_when_the_client_has_said_all_it_will(streams: Streams, asks: bool):
    if asks:
        streams.ask(ASSIGNMENTS, "a")
        await streams.next_response()
    streams.sending.put_nowait(None)
    with pytest.raises(StopAsyncIteration):
        await streams.next_response()


@pytest.mark.parametrize("settled", [True, False], ids=["connected", "before the first round of health"])
async def test_a_stream_ends_in_order_on_drain(mesh: StillMesh, streams: Streams, settled: bool):
    streams.ask(ASSIGNMENTS, "a")
    if settled:
        await streams.next_response()
    else:
        mesh.settled.clear()
    hearing = asyncio.create_task(streams.next_response())
    while not mesh.listeners:
        await asyncio.sleep(0)
    streams.servicer.drain()
    with pytest.raises(StopAsyncIteration):
        await hearing


async def test_an_error_of_a_request_ends_the_stream_with_that_error(streams: Streams):
    streams.ask(ASSIGNMENTS, "a")
    await streams.next_response()
    streams.sending.put_nowait(InvalidInput("request", "a well-formed message", "3 bytes"))
    with pytest.raises(InvalidInput, match="well-formed"):
        await streams.next_response()
