"""Envoy's listener at the entrance to the mesh: limits, streams, TLS, spans and the access log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from envoy.extensions.access_loggers.stream.v3.stream_pb2 import StdoutAccessLog
from envoy.extensions.filters.network.connection_limit.v3.connection_limit_pb2 import ConnectionLimit
from envoy.extensions.http.early_header_mutation.header_mutation.v3.header_mutation_pb2 import HeaderMutation
from envoy.extensions.transport_sockets.tls.v3.tls_pb2 import DownstreamTlsContext
from google.protobuf.json_format import MessageToDict

from services.control.snapshot import Renderer
from services.control.topology import BadTopology
from tests.unit.control.edges import calls, connections, listener, routes, topology, unpacked


def access_log(**edge: Any) -> dict[str, str]:
    (log,) = connections(**edge).access_log
    return MessageToDict(unpacked(log.typed_config, StdoutAccessLog()))["logFormat"]["jsonFormat"]


def test_the_listener_listens_where_the_topology_says_and_asks_for_its_routes() -> None:
    socket = listener(address="[::1]:443").address.socket_address
    assert (socket.address, socket.port_value) == ("::1", 443)
    assert connections().rds.route_config_name == routes().name
    assert connections().rds.config_source.HasField("ads")


def test_the_limits_are_the_topologys() -> None:
    limits = {
        "connections": 11,
        "streams_per_connection": 12,
        "buffer_bytes": 16_384,
        "stream_window_bytes": 70_000,
        "connection_window_bytes": 80_000,
        "idle_s": 13,
        "request_headers_s": 14,
        "request_headers_kb": 15,
        "stream_idle_s": 16,
    }
    found, manager = listener(limits=limits), connections(limits=limits)
    open_at_once = unpacked(found.filter_chains[0].filters[0].typed_config, ConnectionLimit()).max_connections.value
    assert (open_at_once, found.per_connection_buffer_limit_bytes.value) == (11, 16_384)
    http2 = manager.http2_protocol_options
    assert http2.max_concurrent_streams.value == 12
    assert http2.initial_stream_window_size.value == 70_000
    assert http2.initial_connection_window_size.value == 80_000
    assert manager.common_http_protocol_options.idle_timeout.ToSeconds() == 13
    assert manager.request_headers_timeout.ToSeconds() == 14
    assert manager.max_request_headers_kb.value == 15
    assert manager.stream_idle_timeout.ToSeconds() == 16


def test_nothing_ends_a_stream_for_being_long_but_its_callers_own_deadline() -> None:
    assert connections().request_timeout.ToSeconds() == 0
    for route in calls():
        assert route.route.HasField("timeout")
        assert route.route.timeout.ToSeconds() == 0
        assert route.route.max_stream_duration.HasField("grpc_timeout_header_max")
        assert route.route.max_stream_duration.grpc_timeout_header_max.ToSeconds() == 0


def test_a_callers_own_identity_headers_are_removed_before_any_filter_runs() -> None:
    (early,) = connections().early_header_mutation_extensions
    mutations = unpacked(early.typed_config, HeaderMutation()).mutations
    assert [mutation.remove for mutation in mutations[:2]] == ["x-hedgerow-tenant", "x-hedgerow-expires"]
    assert mutations[2].remove_on_match.key_matcher.prefix == "x-envoy-"
    assert connections().use_remote_address.value


def test_tls_is_of_this_decade_and_its_certificate_may_change() -> None:
    assert not listener().filter_chains[0].HasField("transport_socket")
    socket = listener(tls=True).filter_chains[0].transport_socket
    context = unpacked(socket.typed_config, DownstreamTlsContext()).common_tls_context
    (secret,) = context.tls_certificate_sds_secret_configs
    assert (secret.name, secret.sds_config.path_config_source.path) == ("edge", "./sds_edge.yaml")
    assert list(context.alpn_protocols) == ["h2", "http/1.1"]
    assert context.tls_params.tls_minimum_protocol_version == context.tls_params.TLSv1_2


def test_envoy_makes_spans_only_where_a_collector_is_configured() -> None:
    assert not connections().HasField("tracing")
    tracing = connections(otlp_endpoint="http://collector:4317", trace_percent=5).tracing
    assert tracing.provider.name == "envoy.tracers.opentelemetry"
    assert tracing.random_sampling.value == 5


def test_the_access_log_has_the_trace_id_of_the_span_or_of_the_caller_or_of_the_gateway() -> None:
    assert access_log(otlp_endpoint="http://collector:4317")["trace_id"] == "%TRACE_ID%"
    assert access_log()["trace_id"] == "%DYNAMIC_METADATA(hedgerow:trace_id)%%TRAILER(x-hedgerow-trace-id)%"
    assert access_log().keys() >= {"grpc_status", "duration_ms", "upstream", "bytes_sent", "flags", "tenant"}


@pytest.mark.parametrize("size", [10**15, 10**20])
def test_a_size_that_is_too_large_to_write_makes_no_resources(size: int) -> None:
    with pytest.raises(BadTopology, match="topology: "):
        Renderer(topology(limits={"buffer_bytes": size}), Path())
