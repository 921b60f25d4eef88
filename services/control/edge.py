"""The way in from outside, as Envoy's own resources: its listener here, its routes in `edge_routes.py`.

The numbers and switches follow Envoy's guide for edges: what a stranger may cost is bounded, and what a stranger says
about himself is not believed. https://www.envoyproxy.io/docs/envoy/latest/configuration/best_practices/edge
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.config.trace.v3.opentelemetry_pb2 import OpenTelemetryConfig
from envoy.extensions.access_loggers.stream.v3.stream_pb2 import StdoutAccessLog
from envoy.extensions.filters.network.connection_limit.v3.connection_limit_pb2 import ConnectionLimit
from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import (
    HttpConnectionManager,
)
from envoy.extensions.http.early_header_mutation.header_mutation.v3.header_mutation_pb2 import HeaderMutation
from envoy.extensions.transport_sockets.tls.v3.tls_pb2 import DownstreamTlsContext
from google.protobuf.message import Message

from services.control import edge_filters, edge_routes
from services.control.edge_filters import TRACE_ID
from services.control.routes import ads, packed
from services.control.topology import Edge, EdgeLimits, Topology
from services.runtime.rpc.authorization import EXPIRES_HEADER, TENANT_HEADER
from services.runtime.rpc.boundary import TRACE_ID_HEADER

NAME = "edge"  # of the listener, of its routes and of the certificate's secret
OTLP_CLUSTER = "otlp"  # in Envoy's bootstrap
CERTIFICATE_FILE = "./sds_edge.yaml"  # beside Envoy's bootstrap, whose folder is Envoy's working directory

_HANDSHAKE = timedelta(seconds=10)
# A caller that vanished without a word holds its streams, and what they generate, until a ping goes unanswered.
_KEEPALIVE = {"interval": timedelta(seconds=30), "timeout": timedelta(seconds=10)}


def resources(topology: Topology) -> list[Message]:
    """Envoy's listener and routes for `topology.edge`; none where there is no edge."""
    if topology.edge is None:
        return []
    edge = topology.edge
    return [_listener(edge), edge_routes.routes(NAME, edge, topology.services[edge.service])]


def _listener(edge: Edge) -> Listener:
    host, _, port = edge.address.rpartition(":")
    limit = ConnectionLimit(stat_prefix=NAME, max_connections={"value": edge.limits.connections})
    chain: dict[str, Any] = {
        "filters": [
            {"name": "envoy.filters.network.connection_limit", "typed_config": packed(limit)},
            {"name": "envoy.filters.network.http_connection_manager", "typed_config": packed(_connections(edge))},
        ]
    }
    if edge.tls:
        chain |= {"transport_socket": _tls(), "transport_socket_connect_timeout": _HANDSHAKE}
    return Listener(
        name=NAME,
        address={"socket_address": {"address": host.strip("[]"), "port_value": int(port)}},
        filter_chains=[chain],
        per_connection_buffer_limit_bytes={"value": edge.limits.buffer_bytes},
        traffic_direction="INBOUND",
        enable_reuse_port={"value": False},  # else a second Envoy on this port would take half of the calls unnoticed
    )


def _connections(edge: Edge) -> HttpConnectionManager:
    limits = edge.limits
    return HttpConnectionManager(
        stat_prefix=NAME,
        codec_type="AUTO",
        rds={"route_config_name": NAME, "config_source": ads()},
        http_filters=edge_filters.chain(edge),
        access_log=[_access_log(edge)],
        early_header_mutation_extensions=[_forgeries()],
        use_remote_address={"value": True},
        normalize_path={"value": True},
        merge_slashes=True,
        path_with_escaped_slashes_action="UNESCAPE_AND_REDIRECT",
        max_request_headers_kb={"value": limits.request_headers_kb},
        request_headers_timeout=timedelta(seconds=limits.request_headers_s),
        # No limit for a whole request: a conversation is one, for as long as its caller speaks. Silence ends it.
        request_timeout=timedelta(),
        stream_idle_timeout=timedelta(seconds=limits.stream_idle_s),
        common_http_protocol_options={
            "idle_timeout": timedelta(seconds=limits.idle_s),
            # `x_hedgerow_tenant` must not become `x-hedgerow-tenant` further in.
            "headers_with_underscores_action": "REJECT_REQUEST",
        },
        http2_protocol_options=_http2(limits),
        **_tracing(edge),
    )


def _http2(limits: EdgeLimits) -> dict[str, Any]:
    return {
        "max_concurrent_streams": {"value": limits.streams_per_connection},
        "initial_stream_window_size": {"value": limits.stream_window_bytes},
        "initial_connection_window_size": {"value": limits.connection_window_bytes},
        "connection_keepalive": _KEEPALIVE,
        # One bad request ends its own stream, not the answers beside it on the connection.
        "override_stream_error_on_invalid_http_message": {"value": True},
    }


def _forgeries() -> dict[str, Any]:
    """Removes headers that only the mesh may set, before any other filter: identities, and Envoy's orders."""
    mutation = HeaderMutation(
        mutations=[
            {"remove": TENANT_HEADER},
            {"remove": EXPIRES_HEADER},
            {"remove_on_match": {"key_matcher": {"prefix": "x-envoy-", "ignore_case": True}}},
        ]
    )
    return {"name": "envoy.http.early_header_mutation.header_mutation", "typed_config": packed(mutation)}


def _tls() -> dict[str, Any]:
    source = {"path_config_source": {"path": CERTIFICATE_FILE}, "resource_api_version": "V3"}
    context = DownstreamTlsContext(
        common_tls_context={
            "tls_params": {"tls_minimum_protocol_version": "TLSv1_2"},
            "alpn_protocols": ["h2", "http/1.1"],
            "tls_certificate_sds_secret_configs": [{"name": NAME, "sds_config": source}],
        }
    )
    return {"name": "envoy.transport_sockets.tls", "typed_config": packed(context)}


def _tracing(edge: Edge) -> dict[str, Any]:
    """A span of Envoy's own, the parent of the gateway's. Without it a caller's traceparent goes through untouched."""
    if not edge.otlp_endpoint:
        return {}
    service = {"envoy_grpc": {"cluster_name": OTLP_CLUSTER}, "timeout": timedelta(seconds=1)}
    tracer = OpenTelemetryConfig(grpc_service=service, service_name=NAME)
    provider = {"name": "envoy.tracers.opentelemetry", "typed_config": packed(tracer)}
    return {"tracing": {"provider": provider, "random_sampling": {"value": edge.trace_percent}}}


def _access_log(edge: Edge) -> dict[str, Any]:
    """One JSON line for each call, which joins the services' logs by its trace id. Header values are cut short."""
    line = {
        "time": "%START_TIME%",
        "method": "%REQ(:METHOD)%",
        "path": "%REQ(:PATH):256%",
        "protocol": "%PROTOCOL%",
        "status": "%RESPONSE_CODE%",
        "grpc_status": "%GRPC_STATUS(SNAKE_STRING)%",
        "flags": "%RESPONSE_FLAGS%",
        "details": "%RESPONSE_CODE_DETAILS%",
        "duration_ms": "%DURATION%",
        "first_byte_ms": "%RESPONSE_DURATION%",
        "bytes_received": "%BYTES_RECEIVED%",
        "bytes_sent": "%BYTES_SENT%",
        "client": "%DOWNSTREAM_REMOTE_ADDRESS%",
        "agent": "%REQ(USER-AGENT):128%",
        "upstream": "%UPSTREAM_HOST%",
        "attempts": "%UPSTREAM_REQUEST_ATTEMPT_COUNT%",
        "tenant": f"%REQ({TENANT_HEADER}):128%",
        # The caller's; else the gateway says in a trailer which one it made. One of the two is there.
        "trace_id": "%TRACE_ID%" if edge.otlp_endpoint else f"{TRACE_ID}%TRAILER({TRACE_ID_HEADER})%",
    }
    return {
        "name": "envoy.access_loggers.stdout",
        "filter": {"not_health_check_filter": {}},
        "typed_config": packed(StdoutAccessLog(log_format={"json_format": line, "omit_empty_values": True})),
    }
