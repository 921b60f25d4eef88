"""All that one kind of client in one region may ask for, by type and name. Versions are digests of the content, so
equal content has equal versions whatever process rendered it, and after a restart nothing is new to any client."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.endpoint.v3 import endpoint_pb2
from envoy.config.listener.v3 import listener_pb2
from envoy.config.route.v3 import route_pb2
from google.protobuf import any_pb2
from google.protobuf.message import Message

from services.control import clusters, edge, routes
from services.control.localities import assignment
from services.control.members import Seen, over_http
from services.control.topology import BadTopology, Topology

CLUSTERS, ASSIGNMENTS, LISTENERS, ROUTES = (
    f"type.googleapis.com/{cls.DESCRIPTOR.full_name}"
    for cls in (
        cluster_pb2.Cluster,
        endpoint_pb2.ClusterLoadAssignment,
        listener_pb2.Listener,
        route_pb2.RouteConfiguration,
    )
)


class Kind(StrEnum):
    """The kind of a client."""

    GRPC = "grpc"
    ENVOY = "envoy"


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource, ready to send. Without a body it exists, but its content is unknown: it is not sent, so that a client
    with an older version keeps that."""

    name: str
    version: str = ""
    body: any_pb2.Any | None = None


Snapshot = Mapping[str, Mapping[str, Resource]]  # by type URL and name


def digest(parts: Iterable[bytes]) -> str:
    """Twelve hexadecimal digits."""
    made = hashlib.sha256()
    for part in parts:
        made.update(len(part).to_bytes(8))
        made.update(part)
    return made.hexdigest()[:12]


def version(of: Iterable[Resource]) -> str:
    """The version of several resources together."""
    return digest(f"{each.name}={each.version}".encode() for each in sorted(of, key=lambda each: each.name))


class Renderer:
    """Makes snapshots of one topology. gRPC gets every service; Envoy gets the edge and what is behind it.

    Raises `BadTopology` where a well-formed topology makes no resources.
    """

    def __init__(self, topology: Topology, sds_dir: Path):
        self.topology = topology
        try:
            self._fixed = {Kind.GRPC: _for_grpc(topology), Kind.ENVOY: _for_envoy(topology, sds_dir)}
        except (ValueError, TypeError, OSError) as error:  # protobuf's own among them
            raise BadTopology(f"topology: {' '.join(str(error).split())}") from error
        # Most changes are of one service; the others' assignments are as they were.
        self._assigned: dict[tuple[str, str, Kind], tuple[tuple[Seen, ...], Resource]] = {}

    def snapshot(self, seen: Mapping[str, tuple[Seen, ...]], region: str, kind: Kind) -> Snapshot:
        """The resources for clients of a kind in a region, where the members of the services are `seen`."""
        fixed = self._fixed[kind]
        used = [name for name in self.topology.services if name in fixed[CLUSTERS]]
        assigned = {name: self._assignment(name, name, seen.get(name, ()), region, kind) for name in used}
        for name in used:
            if (http := clusters.http_cluster(name)) in fixed[CLUSTERS]:
                assigned[http] = self._assignment(http, name, over_http(seen.get(name, ())), region, kind)
        return {**fixed, ASSIGNMENTS: assigned}

    def _assignment(self, name: str, service: str, seen: tuple[Seen, ...], region: str, kind: Kind) -> Resource:
        if not seen:  # none of its names has been found yet
            return Resource(name)
        before = self._assigned.get((name, region, kind))
        if before and before[0] == seen:
            return before[1]
        topology, weigh_all = self.topology, kind is Kind.ENVOY
        made = _resource(
            name, assignment(name, topology.services[service], seen, topology.regions, region, weigh_all=weigh_all)
        )
        self._assigned[name, region, kind] = seen, made
        return made


def _for_grpc(topology: Topology) -> Snapshot:
    services = topology.services.items()
    return {
        CLUSTERS: _named(clusters.for_grpc(name, service, mtls=topology.mtls) for name, service in services),
        LISTENERS: _named(routes.listener(name) for name in topology.services),
        ROUTES: _named(routes.route(name, service) for name, service in services),
    }


def _for_envoy(topology: Topology, sds_dir: Path) -> Snapshot:
    fronts = edge.resources(topology)
    return {
        CLUSTERS: _named(_behind(topology, sds_dir)),
        LISTENERS: _named(each for each in fronts if isinstance(each, listener_pb2.Listener)),
        ROUTES: _named(each for each in fronts if isinstance(each, route_pb2.RouteConfiguration)),
    }


def _behind(topology: Topology, sds_dir: Path) -> Iterator[cluster_pb2.Cluster]:
    """The clusters that the edge's routes lead to."""
    if topology.edge:
        name = topology.edge.service
        cluster = clusters.for_envoy(name, topology.services[name], mtls=topology.mtls, sds_dir=sds_dir)
        yield cluster
        yield clusters.for_health(cluster, topology.edge.limits.health_checks)
        if topology.services[name].http:
            yield clusters.for_http(cluster)


def _named(messages: Iterable[Any]) -> dict[str, Resource]:
    return {each.name: _resource(each.name, each) for each in messages}


def _resource(name: str, message: Message) -> Resource:
    body = routes.packed(message)
    return Resource(name, digest([body.value]), body)
