"""Who serves a model, as the control plane says: `ClusterLoadAssignment`s over ADS, followed by the gateway itself.

gRPC's own `xds:///` channels choose a replica and do not tell which. For models that is not enough: a hedge must go to
another replica than the first call, a breaker belongs to one, and a prompt belongs where its beginning is. So for them
the gateway is an xDS client of one resource type. When the control plane is away, what it said last stays in force.

The protocol, state of the world over one stream: https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path

from envoy.config.core.v3 import base_pb2, health_check_pb2
from envoy.config.endpoint.v3 import endpoint_pb2
from envoy.service.discovery.v3 import discovery_pb2
from envoy.type.v3 import percent_pb2
from google.protobuf import json_format
from google.protobuf.message import DecodeError
from google.rpc import code_pb2, status_pb2

from services.gateway.backends import Control
from services.gateway.balance import Place
from services.runtime.deadline import set_within

SCHEME = "xds:///"
_TYPE = f"type.googleapis.com/{endpoint_pb2.ClusterLoadAssignment.DESCRIPTOR.full_name}"
_IN_SERVICE = (health_check_pb2.HEALTHY, health_check_pb2.UNKNOWN)
_OF = {percent_pb2.FractionalPercent.HUNDRED: 100, percent_pb2.FractionalPercent.TEN_THOUSAND: 10_000}
_log = logging.getLogger(__name__)


class BadBootstrap(ValueError):
    """There is no usable gRPC xDS bootstrap; the message, for the operator, says what is missing."""


class BadAssignment(ValueError):
    """The control plane sent what cannot be used; the message goes back to it."""


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """Where the control plane is, and who asks."""

    control: str
    node: base_pb2.Node


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One replica in service."""

    address: str
    place: Place


@dataclass(frozen=True, slots=True)
class Assignment:
    """The replicas of one service. `drop_share` of the calls are to be refused, while a drill runs."""

    endpoints: tuple[Endpoint, ...]
    drop_share: float = 0.0


def bootstrap(environ: Mapping[str, str]) -> Bootstrap:
    """The bootstrap that gRPC itself uses: a file in `GRPC_XDS_BOOTSTRAP`, else JSON in `GRPC_XDS_BOOTSTRAP_CONFIG`
    (https://github.com/grpc/proposal/blob/master/A27-xds-global-load-balancing.md). Raises `BadBootstrap`."""
    try:
        path = environ.get("GRPC_XDS_BOOTSTRAP")
        given = json.loads(Path(path).read_text() if path else environ["GRPC_XDS_BOOTSTRAP_CONFIG"])
        node = json_format.ParseDict(given.get("node", {}), base_pb2.Node(), ignore_unknown_fields=True)
        return Bootstrap(given["xds_servers"][0]["server_uri"], node)
    except KeyError as missing:
        raise BadBootstrap(f"an xds:/// address needs a gRPC xDS bootstrap: {missing} is not set") from None
    except (OSError, ValueError, LookupError, TypeError, AttributeError, json_format.ParseError) as error:
        raise BadBootstrap(f"the gRPC xDS bootstrap cannot be used: {error}") from None


class Discovery:
    """Follows the assignments of some services. `watchers` hear of each, at once and at every change."""

    def __init__(self, control: Control, node: base_pb2.Node, watchers: Mapping[str, Callable[[Assignment], None]]):
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
        """Take in assignments for as long as the control plane is there; raises `ServiceError` when it goes."""
        outbox: asyncio.Queue[discovery_pb2.DiscoveryRequest] = asyncio.Queue()
        outbox.put_nowait(self._request(node=self._node))

        async def requests() -> AsyncIterator[discovery_pb2.DiscoveryRequest]:
            while True:
                yield await outbox.get()

        version = ""
        async with aclosing(self._control.discover(requests())) as responses:
            async for response in responses:
                problem = self._take(response)
                version = version if problem else response.version_info
                refused = status_pb2.Status(code=code_pb2.INVALID_ARGUMENT, message=problem) if problem else None
                answer = self._request(version_info=version, response_nonce=response.nonce, error_detail=refused)
                outbox.put_nowait(answer)

    def _request(self, **fields: object) -> discovery_pb2.DiscoveryRequest:
        return discovery_pb2.DiscoveryRequest(type_url=_TYPE, resource_names=list(self._watchers), **fields)

    def _take(self, response: discovery_pb2.DiscoveryResponse) -> str:
        """Put a response in force, all of it or nothing. Returns what is wrong with it."""
        try:
            assignments = dict(map(_unpack, response.resources))
        except (BadAssignment, DecodeError) as problem:
            _log.error("the control plane's version %s is refused: %s", response.version_info, problem)
            return str(problem)
        for name in assignments.keys() & self._watchers.keys():
            self._watchers[name](assignments[name])
            self._missing.discard(name)
        if not self._missing:
            self._all_arrived.set()
        return ""


def _unpack(resource: object) -> tuple[str, Assignment]:
    given = endpoint_pb2.ClusterLoadAssignment()
    if not resource.Unpack(given):  # type: ignore[attr-defined]
        raise BadAssignment(f"{_TYPE}: required, got {resource.type_url}")  # type: ignore[attr-defined]
    return given.cluster_name, read(given)


def read(given: endpoint_pb2.ClusterLoadAssignment) -> Assignment:
    """An assignment's replicas in service. Raises `BadAssignment`."""
    endpoints = [endpoint for locality in given.endpoints for endpoint in _endpoints(locality)]
    addresses = [endpoint.address for endpoint in endpoints]
    if twice := {address for address in addresses if addresses.count(address) > 1}:
        raise BadAssignment(f"{given.cluster_name}: each address once, got {min(twice)} twice")
    kept = 1.0
    for drop in given.policy.drop_overloads:
        share = drop.drop_percentage
        kept *= 1 - min(share.numerator / _OF.get(share.denominator, 1_000_000), 1)
    return Assignment(tuple(endpoints), 1 - kept)


def _endpoints(locality: endpoint_pb2.LocalityLbEndpoints) -> Iterator[Endpoint]:
    """Of a locality: its weight is shared out by its endpoints' own."""
    weights = [each.load_balancing_weight.value or 1 for each in locality.lb_endpoints]
    for each, weight in zip(locality.lb_endpoints, weights, strict=True):
        socket = each.endpoint.address.socket_address
        if not (socket.address and socket.port_value):
            raise BadAssignment("endpoint.address.socket_address: an address and a port, got something else")
        if each.health_status in _IN_SERVICE:
            host = f"[{socket.address}]" if ":" in socket.address else socket.address
            share = (locality.load_balancing_weight.value or 1) * weight / sum(weights)
            yield Endpoint(f"{host}:{socket.port_value}", Place(locality.priority, locality.locality.sub_zone, share))
