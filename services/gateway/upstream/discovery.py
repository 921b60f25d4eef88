"""The replicas and drills of models, as the control plane sends them: an xDS client,
imported where an address needs it.

gRPC's own `xds:///` channels choose a replica and do not say which. For models that is not enough: a hedge must go to
another replica than the first call, a breaker belongs to one replica, and a prompt goes to the replica that has read
its prefix. So the gateway follows the `ClusterLoadAssignment`s over ADS, and the routes, which name the drill that is
running. While the control plane is down, its last version stays in force.

The protocol, state of the world over one stream: https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from itertools import chain
from math import prod
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import grpc
from envoy.config.core.v3 import base_pb2, health_check_pb2
from envoy.config.endpoint.v3 import endpoint_pb2
from envoy.config.route.v3 import route_pb2
from envoy.extensions.filters.http.fault.v3 import fault_pb2
from envoy.service.discovery.v3 import discovery_pb2
from envoy.type.v3 import percent_pb2
from google.protobuf import any_pb2, json_format
from google.protobuf.message import DecodeError, Message
from google.rpc import code_pb2, status_pb2

from services.gateway.upstream.assignment import AssignedDrill, Assignment
from services.gateway.upstream.balance import Locality
from services.gateway.upstream.calls import both_ways
from services.runtime.deadline import set_within

_FILTER = "envoy.filters.http.fault"
_DENOMINATORS = {
    percent_pb2.FractionalPercent.HUNDRED: 100,
    percent_pb2.FractionalPercent.TEN_THOUSAND: 10_000,
    percent_pb2.FractionalPercent.MILLION: 1_000_000,
}
M = TypeVar("M", bound=Message)
T = TypeVar("T")
_URL = "type.googleapis.com/"
_IN_SERVICE = (health_check_pb2.HEALTHY, health_check_pb2.UNKNOWN)
_log = logging.getLogger(__name__)


class ControlPlane:
    def __init__(self, channel: grpc.aio.Channel):
        self._discover = channel.stream_stream(
            "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources",
            request_serializer=discovery_pb2.DiscoveryRequest.SerializeToString,
            response_deserializer=discovery_pb2.DiscoveryResponse.FromString,
        )

    def discover(
        self, requests: AsyncGenerator[discovery_pb2.DiscoveryRequest, None]
    ) -> AsyncGenerator[discovery_pb2.DiscoveryResponse, None]:
        """Responses with resources, at each change. Waits for the control plane; raises `ServiceError` when it is
        lost."""
        return both_ways(self._discover(wait_for_ready=True), requests, "control")


def _read_route(route: route_pb2.RouteConfiguration) -> tuple[str, AssignedDrill]:
    """The name of a service, and its drill; one that does nothing where there is none. Raises `DecodeError`."""
    given = fault_pb2.HTTPFault()
    for host in route.virtual_hosts:
        if _FILTER in host.typed_per_filter_config:
            host.typed_per_filter_config[_FILTER].Unpack(given)
    return route.name, AssignedDrill(
        given.delay.fixed_delay.ToNanoseconds() / 1e9,
        _share_of(given.delay.percentage),
        _status(given.abort.grpc_status),
        _share_of(given.abort.percentage) if given.abort.grpc_status else 0.0,
    )


def _share_of(percentage: percent_pb2.FractionalPercent) -> float:
    """0 to 1."""
    return min(1.0, float(percentage.numerator) / _DENOMINATORS.get(percentage.denominator, 100))


def _status(number: int) -> grpc.StatusCode:
    return next((code for code in grpc.StatusCode if code.value[0] == number), grpc.StatusCode.UNKNOWN)


class BadBootstrap(ValueError):
    """The gRPC xDS bootstrap is missing or invalid; the message is for the operator."""


class BadAssignment(ValueError):
    """A resource of the control plane is invalid; the message goes back to it."""


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """The control plane's address, and the node that asks."""

    control: str
    node: base_pb2.Node


def bootstrap(environ: Mapping[str, str]) -> Bootstrap:
    """The bootstrap that gRPC itself uses: a file in `GRPC_XDS_BOOTSTRAP`, else JSON in `GRPC_XDS_BOOTSTRAP_CONFIG`
    (https://github.com/grpc/proposal/blob/master/A27-xds-global-load-balancing.md). Raises `BadBootstrap`."""
    try:
        path = environ.get("GRPC_XDS_BOOTSTRAP")
        given = json.loads(Path(path).read_text("utf-8") if path else environ["GRPC_XDS_BOOTSTRAP_CONFIG"])
        node = json_format.ParseDict(given.get("node", {}), base_pb2.Node(), ignore_unknown_fields=True)
        return Bootstrap(given["xds_servers"][0]["server_uri"], node)
    except KeyError as missing:
        raise BadBootstrap(f"an xds:/// address needs a gRPC xDS bootstrap: {missing} is not set") from None
    except (OSError, ValueError, LookupError, TypeError, AttributeError, json_format.ParseError) as error:
        raise BadBootstrap(f"the gRPC xDS bootstrap cannot be used: {error}") from None


class Watcher(Protocol):
    """Gets the replicas and the drill of one service, at first and at each change."""

    def take(self, assignment: Assignment) -> None:
        """Use these replicas, and no others."""

    def drill(self, drill: AssignedDrill) -> None:
        """Run this drill, which may do nothing, in place of any other."""


class Discovery:
    """Follows some services, each for its watcher."""

    def __init__(self, control: ControlPlane, node: base_pb2.Node, watchers: Mapping[str, Watcher]):
        self._control, self._watchers = control, watchers
        self._node = base_pb2.Node(user_agent_name="hedgerow gateway")
        self._node.MergeFrom(node)
        self._missing = set(watchers)
        self._all_arrived = asyncio.Event()

    async def arrived(self, timeout_s: float) -> bool:
        """Wait until every service has had an assignment."""
        await set_within(self._all_arrived, timeout_s)
        return not self._missing

    async def follow(self) -> None:
        """Take responses until the connection to the control plane ends, which raises `ServiceError`."""
        names = list(self._watchers)
        assignments = _ResourceType(endpoint_pb2.ClusterLoadAssignment, names, read_assignment, self._assigned)
        routes = _ResourceType(route_pb2.RouteConfiguration, names, _read_route, self._routed)
        types: Mapping[str, _ResourceType[Any, Any]] = {each.url: each for each in (assignments, routes)}
        outbox: asyncio.Queue[discovery_pb2.DiscoveryRequest] = asyncio.Queue()
        for each in types.values():
            outbox.put_nowait(each.ask(self._node))

        async def requests() -> AsyncGenerator[discovery_pb2.DiscoveryRequest, None]:
            while True:
                yield await outbox.get()

        async with aclosing(self._control.discover(requests())) as responses:
            async for response in responses:
                if resource_type := types.get(response.type_url):
                    outbox.put_nowait(resource_type.answer(response))

    def _assigned(self, name: str, assignment: Assignment) -> None:
        if watcher := self._watchers.get(name):
            watcher.take(assignment)
            self._missing.discard(name)
        if not self._missing:
            self._all_arrived.set()

    def _routed(self, name: str, found: AssignedDrill) -> None:
        if watcher := self._watchers.get(name):
            watcher.drill(found)


class _ResourceType(Generic[M, T]):
    """A type of resource on a stream, of the services called `names`. `read` gives a resource's name and content, or
    raises `BadAssignment` or `DecodeError`; `notify` gets both."""

    def __init__(
        self,
        message: type[M],
        names: Sequence[str],
        read: Callable[[M], tuple[str, T]],
        notify: Callable[[str, T], None],
    ):
        self.url = f"{_URL}{message.DESCRIPTOR.full_name}"
        self._message, self._names, self._read, self._notify = message, names, read, notify
        self._version = ""

    def ask(self, node: base_pb2.Node) -> discovery_pb2.DiscoveryRequest:
        """The first request of a stream."""
        return discovery_pb2.DiscoveryRequest(type_url=self.url, resource_names=self._names, node=node)

    def answer(self, response: discovery_pb2.DiscoveryResponse) -> discovery_pb2.DiscoveryRequest:
        """Put a response in force, all of it or nothing. Returns the acknowledgement (ACK or NACK)."""
        refused: status_pb2.Status | None = None
        try:
            found = [self._read(self._unpack(resource)) for resource in response.resources]
        except (BadAssignment, DecodeError) as problem:
            _log.error("the control plane's version %s is refused: %s", response.version_info, problem)
            refused = status_pb2.Status(code=code_pb2.INVALID_ARGUMENT, message=str(problem))
        else:
            self._version = response.version_info
            for name, value in found:
                self._notify(name, value)
        return discovery_pb2.DiscoveryRequest(
            type_url=self.url,
            resource_names=self._names,
            version_info=self._version,
            response_nonce=response.nonce,
            error_detail=refused,
        )

    def _unpack(self, resource: any_pb2.Any) -> M:
        given = self._message()
        if not resource.Unpack(given):
            raise BadAssignment(f"{self.url}: required, got {resource.type_url}")
        return given


def read_assignment(given: endpoint_pb2.ClusterLoadAssignment) -> tuple[str, Assignment]:
    """The name of a service, and its replicas in service. Raises `BadAssignment`."""
    replicas: dict[str, Locality] = {}
    for address, locality in chain.from_iterable(map(_endpoints, given.endpoints)):
        if address in replicas:
            raise BadAssignment(f"{given.cluster_name}: each address once, got {address} twice")
        replicas[address] = locality
    kept = prod(1 - _share_of(drop.drop_percentage) for drop in given.policy.drop_overloads)
    return given.cluster_name, Assignment(replicas, 1 - kept)


def _endpoints(locality: endpoint_pb2.LocalityLbEndpoints) -> Iterator[tuple[str, Locality]]:
    """The address and locality of each endpoint of a locality, whose weight is divided by their own weights."""
    weights = [each.load_balancing_weight.value or 1 for each in locality.lb_endpoints]
    for each, weight in zip(locality.lb_endpoints, weights, strict=True):
        socket = each.endpoint.address.socket_address
        if not (socket.address and socket.port_value):
            raise BadAssignment("endpoint.address.socket_address: an address and a port, got something else")
        if each.health_status in _IN_SERVICE:
            host = f"[{socket.address}]" if ":" in socket.address else socket.address
            share = (locality.load_balancing_weight.value or 1) * weight / sum(weights)
            yield f"{host}:{socket.port_value}", Locality(locality.priority, locality.locality.sub_zone, share)
