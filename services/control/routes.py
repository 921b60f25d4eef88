"""What gRPC asks for first: a `Listener` with the filters, and the `RouteConfiguration` it leads to."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from envoy.config.core.v3.config_source_pb2 import ConfigSource
from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.config.route.v3.route_components_pb2 import RouteAction
from envoy.config.route.v3.route_pb2 import RouteConfiguration
from envoy.extensions.filters.http.fault.v3.fault_pb2 import HTTPFault
from envoy.extensions.filters.http.router.v3.router_pb2 import Router
from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import (
    HttpConnectionManager,
)
from google.protobuf import any_pb2
from google.protobuf.message import Message
from google.rpc import code_pb2

from services.control.localities import percent
from services.control.topology import Drill, MeshService

FAULT = "envoy.filters.http.fault"
# The statuses of google/rpc/code.proto, for callers by HTTP.
_HTTP_STATUSES = {
    **dict.fromkeys(("INVALID_ARGUMENT", "FAILED_PRECONDITION", "OUT_OF_RANGE"), 400),
    **dict.fromkeys(("ALREADY_EXISTS", "ABORTED"), 409),
    **{"UNAUTHENTICATED": 401, "PERMISSION_DENIED": 403, "NOT_FOUND": 404, "RESOURCE_EXHAUSTED": 429},
    **{"CANCELLED": 499, "UNIMPLEMENTED": 501, "UNAVAILABLE": 503, "DEADLINE_EXCEEDED": 504},
    **dict.fromkeys(("UNKNOWN", "INTERNAL", "DATA_LOSS"), 500),
}
Filter = dict[str, Any]


def listener(name: str) -> Listener:
    """The listener of a service. Its fault filter is inactive: a drill changes only the route, and no listener."""
    manager = HttpConnectionManager(
        rds={"config_source": ads(), "route_config_name": name},
        http_filters=[http_filter("fault", HTTPFault()), http_filter("router", Router())],
    )
    return Listener(name=name, api_listener={"api_listener": packed(manager)})


def route(name: str, service: MeshService) -> RouteConfiguration:
    """All calls go to the cluster of the same name."""
    action = RouteAction(cluster=name, timeout=timedelta())  # Envoy's default of 15 s would cut answers off
    if service.timeout_ms:
        action.max_stream_duration.max_stream_duration.FromMilliseconds(service.timeout_ms)
    if service.balance == "ring_hash":
        action.hash_policy.add(header={"header_name": service.hash_header})
    host: dict[str, Any] = {"name": name, "domains": ["*"], "routes": [{"match": {"prefix": ""}, "route": action}]}
    if service.drill:
        host["typed_per_filter_config"] = {FAULT: packed(fault(service.drill))}
    return RouteConfiguration(name=name, virtual_hosts=[host])


def fault(drill: Drill, *, by_http: bool = False) -> HTTPFault:
    """A drill's delays and aborts; its drops are part of the assignment. `by_http`: for callers of HTTP."""
    made = HTTPFault()
    if drill.delay_ms and drill.delay_percent:
        made.delay.fixed_delay.FromMilliseconds(drill.delay_ms)
        made.delay.percentage.CopyFrom(percent(drill.delay_percent))
    if drill.abort_percent:
        if by_http:
            made.abort.http_status = _HTTP_STATUSES[drill.abort]
        else:
            made.abort.grpc_status = code_pb2.Code.Value(drill.abort)
        made.abort.percentage.CopyFrom(percent(drill.abort_percent))
    return made


def ads() -> ConfigSource:
    """Ask for it on the stream you have."""
    return ConfigSource(ads={}, resource_api_version="V3")


def packed(message: Message) -> any_pb2.Any:
    """The message in an `Any`. Equal content gives equal bytes, in any process."""
    made = any_pb2.Any()
    made.Pack(message, deterministic=True)
    return made


def http_filter(name: str, config: Message) -> Filter:
    """An HTTP filter of Envoy."""
    return {"name": f"envoy.filters.http.{name}", "typed_config": packed(config)}
