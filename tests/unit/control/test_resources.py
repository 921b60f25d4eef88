"""Listeners, routes and clusters, for gRPC and for Envoy, and the versions they have."""

from __future__ import annotations

from pathlib import Path

import pytest
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.endpoint.v3.endpoint_pb2 import ClusterLoadAssignment
from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.config.route.v3.route_pb2 import RouteConfiguration
from envoy.extensions.filters.http.fault.v3.fault_pb2 import HTTPFault
from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import (
    HttpConnectionManager,
)
from envoy.extensions.transport_sockets.tls.v3.tls_pb2 import UpstreamTlsContext
from envoy.extensions.upstreams.http.v3.http_protocol_options_pb2 import HttpProtocolOptions

from hedgerow.channel import PING_TIMEOUT_VARIABLE
from services.control.members import Health
from services.control.snapshot import ASSIGNMENTS, CLUSTERS, LISTENERS, ROUTES, Kind
from tests.unit.control.topologies import REGIONS, rendered, unpacked

MESH = """
services:
  gateway: {balance: least_request, endpoints: [{address: "10.0.0.1:1"}]}
  cache: {balance: ring_hash, hash_header: x-key, endpoints: [{address: "10.0.0.2:1"}]}
  llm-quality: {endpoints: [{address: "10.0.0.3:1"}], timeout_ms: 1500}
edge: {address: "0.0.0.0:8443"}
"""
SECRET = f"{MESH}mtls: true"


def cluster(text: str, name: str, kind: Kind = Kind.GRPC) -> Cluster:
    return unpacked(rendered(text, kind=kind), CLUSTERS, name, Cluster)


def route(text: str, name: str) -> RouteConfiguration:
    return unpacked(rendered(text), ROUTES, name, RouteConfiguration)


def tls(of: Cluster) -> UpstreamTlsContext:
    context = UpstreamTlsContext()
    assert of.transport_socket.typed_config.Unpack(context)
    return context


def test_grpc_gets_every_service_under_its_name_in_all_four_types():
    snapshot = rendered(MESH)
    for type_url in (LISTENERS, ROUTES, CLUSTERS, ASSIGNMENTS):
        assert list(snapshot[type_url]) == ["gateway", "cache", "llm-quality"]


def test_envoy_gets_the_edge_and_what_is_behind_it_alone():
    snapshot = rendered(MESH, kind=Kind.ENVOY)
    assert {url.rpartition(".")[2]: list(of) for url, of in snapshot.items()} == {
        "Listener": ["edge"],
        "RouteConfiguration": ["edge"],
        "Cluster": ["gateway", "gateway_health"],
        "ClusterLoadAssignment": ["gateway"],
    }


_SERVES_HTTP = 'services: {gateway: {endpoints: [{address: "10.0.0.1:1", http_port: 81}, {address: "10.0.0.2:1"}]}}'


def test_the_edge_has_a_cluster_for_the_gateways_http_port():
    text = f'{_SERVES_HTTP}\nedge: {{address: "0.0.0.0:8443"}}'
    snapshot, options = rendered(text, kind=Kind.ENVOY), HttpProtocolOptions()
    http = unpacked(snapshot, CLUSTERS, "gateway_http", Cluster)
    (own,) = http.typed_extension_protocol_options.values()
    assert own.Unpack(options)
    assert options.explicit_http_config.HasField("http_protocol_options")
    assert http.eds_cluster_config.service_name == "gateway_http"
    of = unpacked(snapshot, ASSIGNMENTS, "gateway_http", ClusterLoadAssignment)
    ends = [each.endpoint.address.socket_address for locality in of.endpoints for each in locality.lb_endpoints]
    assert [(end.address, end.port_value) for end in ends] == [("10.0.0.1", 81)]
    assert "gateway_http" not in rendered(text)[CLUSTERS]


def test_with_certificates_the_edge_authenticates_over_http_too():
    text = f'{_SERVES_HTTP}\nedge: {{address: "0.0.0.0:8443"}}\nmtls: true'
    of = {name: tls(cluster(text, name, Kind.ENVOY)) for name in ("gateway", "gateway_http")}
    assert {name: list(each.common_tls_context.alpn_protocols) for name, each in of.items()} == {
        "gateway": ["h2"],
        "gateway_http": ["http/1.1"],
    }
    for each in of.values():
        each.common_tls_context.ClearField("alpn_protocols")
    assert of["gateway"] == of["gateway_http"]


def test_tenants_authenticated_by_the_edge_need_mtls_over_http(tmp_path: Path):
    keys = tmp_path / "jwks.json"
    keys.write_text('{"keys": [{}]}')
    jwt = f'edge: {{address: "0.0.0.0:1", jwt: {{issuer: i, audiences: [a], jwks_file: "{keys}"}}}}'
    rendered(f"{_SERVES_HTTP}\n{jwt}\nmtls: true")
    with pytest.raises(ValueError, match=r"http_port: 0 with edge\.jwt and without mtls, got another"):
        rendered(f"{_SERVES_HTTP}\n{jwt}")


def test_envoy_gets_nothing_where_there_is_no_edge():
    without = MESH.replace('edge: {address: "0.0.0.0:8443"}', "")
    assert not any(rendered(without, kind=Kind.ENVOY).values())


def test_a_listener_leads_to_its_route_through_faults_and_the_router():
    listener = unpacked(rendered(MESH), LISTENERS, "cache", Listener)
    manager = HttpConnectionManager()
    assert listener.api_listener.api_listener.Unpack(manager)
    assert manager.rds.route_config_name == "cache"
    assert manager.rds.config_source.HasField("ads")
    assert [each.name.rpartition(".")[2] for each in manager.http_filters] == ["fault", "router"]


def test_a_route_takes_all_calls_to_the_cluster_of_its_name_without_a_time_limit():
    (host,) = route(MESH, "gateway").virtual_hosts
    (only,) = host.routes
    assert (list(host.domains), only.match.prefix, only.route.cluster) == (["*"], "", "gateway")
    assert only.route.timeout.ToMilliseconds() == 0
    assert not only.route.HasField("max_stream_duration")
    assert not only.route.hash_policy


def test_a_route_has_the_limit_of_time_and_the_header_of_a_ring_that_the_topology_names():
    limited, hashed = (route(MESH, name).virtual_hosts[0].routes[0].route for name in ("llm-quality", "cache"))
    assert limited.max_stream_duration.max_stream_duration.ToMilliseconds() == 1_500
    assert [policy.header.header_name for policy in hashed.hash_policy] == ["x-key"]


def test_a_drill_is_a_fault_of_the_route_and_changes_no_listener():
    drilled = MESH.replace("timeout_ms: 1500", "drill: {delay_ms: 20, abort: INTERNAL, abort_percent: 0.5}")
    fault = HTTPFault()
    (host,) = route(drilled, "llm-quality").virtual_hosts
    (config,) = host.typed_per_filter_config.values()
    assert config.Unpack(fault)
    assert (fault.delay.fixed_delay.ToMilliseconds(), fault.delay.percentage.numerator) == (20, 1_000_000)
    assert (fault.abort.grpc_status, fault.abort.percentage.numerator) == (13, 5_000)
    assert rendered(drilled)[LISTENERS] == rendered(MESH)[LISTENERS]


@pytest.mark.parametrize(
    ("name", "kind", "policy"),
    [
        ("gateway", Kind.GRPC, Cluster.ROUND_ROBIN),  # which stands in for what C-core does not know
        ("gateway", Kind.ENVOY, Cluster.LEAST_REQUEST),
        ("cache", Kind.GRPC, Cluster.RING_HASH),
        ("llm-quality", Kind.GRPC, Cluster.ROUND_ROBIN),
    ],
)
def test_each_kind_of_client_balances_as_it_can(name: str, kind: Kind, policy: int):
    assert cluster(MESH, name, kind).lb_policy == policy


def test_a_cluster_asks_for_its_endpoints_on_the_same_stream_and_knows_its_limits():
    limited = MESH.replace("timeout_ms: 1500", "limits: {requests: 7}")
    made = cluster(limited, "llm-quality")
    assert made.eds_cluster_config.service_name == "llm-quality"
    assert made.eds_cluster_config.eds_config.HasField("ads")
    assert made.circuit_breakers.thresholds[0].max_requests.value == 7


def test_outlier_detection_is_by_consecutive_failures_for_envoy_and_by_percentage_for_grpc():
    text = MESH.replace("least_request,", "least_request, outliers: {consecutive_failures: 3, ejection_ms: 700},")
    envoy = cluster(text, "gateway", Kind.ENVOY).outlier_detection
    grpc = cluster(text, "gateway").outlier_detection
    own = envoy.consecutive_local_origin_failure.value, envoy.enforcing_consecutive_local_origin_failure.value
    assert own == (3, 100)
    assert (grpc.failure_percentage_request_volume.value, grpc.enforcing_failure_percentage.value) == (3, 100)
    for each in (envoy, grpc):
        assert each.base_ejection_time.ToMilliseconds() == 700
        assert each.enforcing_success_rate.value == 0


def test_no_answer_makes_an_outlier_to_envoy():
    made = cluster(MESH, "gateway", Kind.ENVOY).outlier_detection
    assert made.split_external_local_origin_errors
    for each in (made.enforcing_consecutive_5xx, made.enforcing_consecutive_gateway_failure):
        assert each.value == 0
    assert made.enforcing_local_origin_success_rate.value == 0


def test_health_checks_from_outside_have_a_cluster_and_thresholds_of_their_own():
    text = MESH.replace('8443"}', '8443", limits: {health_checks: 7}}')
    calls, checks = (cluster(text, name, Kind.ENVOY) for name in ("gateway", "gateway_health"))
    assert checks.eds_cluster_config.service_name == "gateway"
    own, theirs = checks.circuit_breakers.thresholds[0], calls.circuit_breakers.thresholds[0]
    assert (own.max_requests.value, own.max_pending_requests.value, own.max_connections.value) == (7, 7, 7)
    assert theirs.max_requests.value == 1_024
    assert not checks.HasField("outlier_detection")


def test_no_failure_makes_an_outlier_where_the_topology_says_never():
    text = MESH.replace("least_request,", "least_request, outliers: {consecutive_failures: 0},")
    envoy = cluster(text, "gateway", Kind.ENVOY).outlier_detection
    assert envoy.enforcing_consecutive_local_origin_failure.value == 0
    assert cluster(text, "gateway").outlier_detection.enforcing_failure_percentage.value == 0


def test_envoys_clusters_have_http2_pings_locality_weights_and_a_panic_threshold(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv(PING_TIMEOUT_VARIABLE)
    made = cluster(MESH, "gateway", Kind.ENVOY)
    options = HttpProtocolOptions()
    (packed,) = made.typed_extension_protocol_options.values()
    assert packed.Unpack(options)
    http2 = options.explicit_http_config.http2_protocol_options
    assert http2.max_concurrent_streams.value == 100
    keepalive = http2.connection_keepalive
    assert (keepalive.interval.ToMilliseconds(), keepalive.timeout.ToMilliseconds()) == (700, 900)
    assert made.common_lb_config.HasField("locality_weighted_lb_config")
    assert made.common_lb_config.healthy_panic_threshold.value == 1


def test_in_plain_text_no_certificate_is_required():
    assert not cluster(MESH, "gateway").HasField("transport_socket")
    assert not cluster(MESH, "gateway", Kind.ENVOY).HasField("transport_socket")


def test_over_mtls_grpc_takes_its_provider_and_one_of_two_names_of_the_identity():
    common = tls(cluster(SECRET, "llm-quality")).common_tls_context
    validation = common.validation_context
    assert common.tls_certificate_provider_instance.instance_name == "mesh"
    assert validation.ca_certificate_provider_instance.instance_name == "mesh"
    assert [each.exact for each in validation.match_subject_alt_names] == ["spiffe://hedgerow/llm", "llm.hedgerow"]


def test_over_mtls_envoy_takes_its_secrets_from_files_and_the_identity_alone():
    context = tls(cluster(SECRET, "gateway", Kind.ENVOY))
    (secret,) = context.common_tls_context.tls_certificate_sds_secret_configs
    combined = context.common_tls_context.combined_validation_context
    (name,) = combined.default_validation_context.match_typed_subject_alt_names
    assert (secret.name, secret.sds_config.path_config_source.path) == ("mesh_cert", "/etc/envoy/sds_cert.yaml")
    authorities = combined.validation_context_sds_secret_config
    assert (authorities.name, authorities.sds_config.path_config_source.path) == ("mesh_ca", "/etc/envoy/sds_ca.yaml")
    assert (name.matcher.exact, context.sni) == ("spiffe://hedgerow/gateway", "gateway.hedgerow")
    assert list(context.common_tls_context.alpn_protocols) == ["h2"]


def test_equal_content_has_equal_versions_and_only_what_changed_has_another():
    before, again = rendered(MESH), rendered(MESH)
    after = rendered(MESH, health={"10.0.0.2:1": Health.NOT_SERVING})
    assert before == again
    changed = [
        (type_url, name)
        for type_url, of in before.items()
        for name, resource in of.items()
        if after[type_url][name].version != resource.version
    ]
    assert changed == [(ASSIGNMENTS, "cache")]


def test_a_region_changes_assignments_alone():
    text = f"""{REGIONS}
services:
  cache: {{endpoints: [{{address: "10.0.0.1:1", region: west}}, {{address: "10.0.0.2:1", region: east}}]}}
"""
    west, east = rendered(text, "west"), rendered(text, "east")
    assert west[ASSIGNMENTS] != east[ASSIGNMENTS]
    for type_url in (LISTENERS, ROUTES, CLUSTERS):
        assert west[type_url] == east[type_url]
