"""Topologies with an edge, and the parts of what Envoy gets for them."""

from __future__ import annotations

from typing import Any

from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.config.route.v3.route_pb2 import RouteConfiguration
from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import (
    HttpConnectionManager,
)

from services.control.edge import resources
from services.control.topology import Topology


def topology(service: dict[str, Any] | None = None, **edge: Any) -> Topology:
    gateway = {"endpoints": [{"address": "10.0.0.1:50050"}], **(service or {})}
    settings = {"address": "0.0.0.0:8443", **edge}
    return Topology.model_validate({"services": {"gateway": gateway}, "edge": settings})


def listener(**edge: Any) -> Listener:
    found, _ = resources(topology(**edge))
    assert isinstance(found, Listener)
    return found


def routes(service: dict[str, Any] | None = None, **edge: Any) -> RouteConfiguration:
    _, found = resources(topology(service, **edge))
    assert isinstance(found, RouteConfiguration)
    return found


def calls(service: dict[str, Any] | None = None, **edge: Any) -> list[Any]:
    """The routes that lead to the service itself."""
    return [route for route in routes(service, **edge).virtual_hosts[0].routes if route.route.cluster == "gateway"]


def connections(**edge: Any) -> HttpConnectionManager:
    return unpacked(listener(**edge).filter_chains[0].filters[-1].typed_config, HttpConnectionManager())


def unpacked(packed: Any, into: Any) -> Any:
    assert packed.Unpack(into)
    return into
