"""What gRPC asks for first: a `Listener` with the filters, and the `RouteConfiguration` it leads to."""

from __future__ import annotations

from envoy.config.core.v3 import config_source_pb2
from envoy.config.listener.v3 import api_listener_pb2, listener_pb2
from envoy.config.route.v3 import route_components_pb2, route_pb2
from envoy.extensions.filters.common.fault.v3 import fault_pb2 as delay_pb2
from envoy.extensions.filters.http.fault.v3 import fault_pb2
from envoy.extensions.filters.http.router.v3 import router_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2
from google.protobuf.any_pb2 import Any
from google.protobuf.message import Message
from google.rpc import code_pb2

from services.control.localities import percent
from services.control.topology import Drill, Service

FAULT, _ROUTER = "envoy.filters.http.fault", "envoy.filters.http.router"


def listener(name: str) -> listener_pb2.Listener:
    """The same for every service. The fault filter does nothing here: a drill is a matter of the route, so that
    beginning one changes no listener."""
    manager = http_connection_manager_pb2.HttpConnectionManager(
        rds=http_connection_manager_pb2.Rds(config_source=ads(), route_config_name=name),
        http_filters=[_filter(FAULT, fault_pb2.HTTPFault()), _filter(_ROUTER, router_pb2.Router())],
    )
    return listener_pb2.Listener(name=name, api_listener=api_listener_pb2.ApiListener(api_listener=packed(manager)))


def route(name: str, service: Service) -> route_pb2.RouteConfiguration:
    """All calls go to the cluster of the same name."""
    action = route_components_pb2.RouteAction(cluster=name)
    action.timeout.FromMilliseconds(0)  # Envoy's default of 15 s would cut answers off
    if service.timeout_ms:
        action.max_stream_duration.max_stream_duration.FromMilliseconds(service.timeout_ms)
    if service.balance == "ring_hash":
        action.hash_policy.add(header={"header_name": service.hash_header})
    host = route_components_pb2.VirtualHost(
        name=name,
        domains=["*"],
        routes=[route_components_pb2.Route(match=route_components_pb2.RouteMatch(prefix=""), route=action)],
    )
    if service.drill:
        host.typed_per_filter_config[FAULT].CopyFrom(packed(fault(service.drill)))
    return route_pb2.RouteConfiguration(name=name, virtual_hosts=[host])


def fault(drill: Drill) -> fault_pb2.HTTPFault:
    """A drill's delays and aborts; its drops are part of the assignment."""
    made = fault_pb2.HTTPFault()
    if drill.delay_ms and drill.delay_percent:
        made.delay.CopyFrom(delay_pb2.FaultDelay(percentage=percent(drill.delay_percent)))
        made.delay.fixed_delay.FromMilliseconds(drill.delay_ms)
    if drill.abort_percent:
        made.abort.grpc_status = code_pb2.Code.Value(drill.abort)
        made.abort.percentage.CopyFrom(percent(drill.abort_percent))
    return made


def ads() -> config_source_pb2.ConfigSource:
    """Ask for it on the stream you have."""
    return config_source_pb2.ConfigSource(
        ads=config_source_pb2.AggregatedConfigSource(), resource_api_version=config_source_pb2.V3
    )


def packed(message: Message) -> Any:
    """In an `Any`. Equal content gives equal bytes, in any process."""
    made = Any()
    made.Pack(message, deterministic=True)
    return made


def _filter(name: str, config: Message) -> http_connection_manager_pb2.HttpFilter:
    return http_connection_manager_pb2.HttpFilter(name=name, typed_config=packed(config))
