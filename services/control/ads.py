"""The aggregated discovery service: one stream for each client, on which it hears of every change that concerns it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

from services.control import metrics
from services.control.discovery_stream import ORDER, DiscoveryStream
from services.control.mesh import MeshState
from services.control.snapshot import Kind
from services.runtime.deadline import Clock, until_set
from services.runtime.errors import NotSupported, shorten
from services.runtime.rpc.boundary import Call

_WORDS = 500  # of a refusal that go into the log
_log = logging.getLogger(__name__)


class XdsSubscriber:
    """A connected client."""

    def __init__(self, stream: DiscoveryStream, since: float):
        self.stream, self.since = stream, since
        self.node = stream.node
        self.region = self.node.locality.region
        self.kind = Kind.ENVOY if self.node.user_agent_name.startswith("envoy") else Kind.GRPC


class Clients:
    """The connected clients, in the order of their arrival."""

    def __init__(self, clock: Clock = time.monotonic):
        self.clock = clock
        self._clients: dict[XdsSubscriber, None] = {}

    def __iter__(self) -> Iterator[XdsSubscriber]:
        return iter(list(self._clients))

    @contextmanager
    def connected(self, stream: DiscoveryStream) -> Iterator[XdsSubscriber]:
        """A client from its first request to the end of its stream."""
        client = XdsSubscriber(stream, self.clock())
        self._clients[client] = None
        metrics.CLIENTS.labels(client.kind).inc()
        try:
            yield client
        finally:
            del self._clients[client]
            metrics.CLIENTS.labels(client.kind).dec()


class DiscoveryServicer:
    """Serves `StreamAggregatedResources` of `envoy.service.discovery.v3.AggregatedDiscoveryService`."""

    def __init__(self, mesh: MeshState, clients: Clients):
        self._mesh, self._clients = mesh, clients
        self._drained = asyncio.Event()
        self._ends: set[asyncio.Event] = set()

    def StreamAggregatedResources(self, requests: AsyncIterator[Any], call: Call) -> AsyncIterator[Any]:
        return self._serve(requests, DiscoveryStream())

    async def DeltaAggregatedResources(self, requests: AsyncIterator[Any], call: Call) -> AsyncIterator[Any]:
        raise NotSupported("DeltaAggregatedResources: this control plane sends whole states (Envoy's `api_type: GRPC`)")
        yield  # a stream, like `StreamAggregatedResources`

    def drain(self) -> None:
        """End the streams; clients keep what they have and ask elsewhere, or again."""
        self._drained.set()
        for wake in self._ends:
            wake.set()

    async def _serve(self, requests: AsyncIterator[Any], stream: DiscoveryStream) -> AsyncIterator[Any]:
        first = await anext(requests, None)
        if first is None:
            return
        stream.take(first)
        with self._clients.connected(stream) as client, self._mesh.listening() as wake:
            self._ends.add(wake)
            reading = asyncio.create_task(_read(requests, client, wake))
            reading.add_done_callback(lambda _: wake.set())
            try:
                await self._until_settled()
                while not (reading.done() or self._drained.is_set()):
                    wake.clear()
                    while response := stream.next(self._mesh.snapshot(client.region, client.kind)):
                        metrics.PUSHES.labels(_label(response.type_url)).inc()
                        yield response
                    await wake.wait()
                if reading.done():
                    reading.result()
            finally:
                self._ends.discard(wake)
                reading.cancel()
                await asyncio.wait({reading})

    async def _until_settled(self) -> None:
        """A client that comes right after a start would get endpoints whose health is not known yet."""
        await until_set(self._drained, self._mesh.settled.wait())


async def _read(requests: AsyncIterator[Any], client: XdsSubscriber, wake: asyncio.Event) -> None:
    """Take requests in for as long as they come."""
    async for request in requests:
        refusal = client.stream.take(request)
        if refusal:
            label = _label(request.type_url)
            metrics.REFUSED.labels(label).inc()
            _log.warning("%s refuses %s: %s", client.node.id or "a client", label, shorten(refusal, _WORDS))
        wake.set()


def _label(type_url: str) -> str:
    """`Cluster` and so on; types that clients make up are one label."""
    return type_url.rpartition(".")[2] if type_url in ORDER else "other"
