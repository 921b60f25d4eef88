"""Envoy's configuration of the entrance to the mesh."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.config.route.v3.route_pb2 import RouteConfiguration
from envoy.extensions.filters.http.buffer.v3.buffer_pb2 import BufferPerRoute
from envoy.extensions.filters.http.cors.v3.cors_pb2 import CorsPolicy
from envoy.extensions.filters.http.jwt_authn.v3.config_pb2 import JwtAuthentication
from envoy.extensions.filters.network.connection_limit.v3.connection_limit_pb2 import ConnectionLimit
from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import (
    HttpConnectionManager,
)
from envoy.extensions.http.early_header_mutation.header_mutation.v3.header_mutation_pb2 import HeaderMutation
from envoy.extensions.transport_sockets.tls.v3.tls_pb2 import DownstreamTlsContext
from google.protobuf.json_format import MessageToDict

from services.control.edge import resources
from services.control.topology import BadTopology, Topology, read

KEYS = {"keys": [{"kty": "RSA", "kid": "1", "n": "AQAB", "e": "AQAB"}]}
GENERATE = "/hedgerow.gateway.v1.GatewayService/"


def topology(service: dict[str, Any] | None = None, **edge: Any) -> Topology:
    gateway = {"endpoints": [{"address": "10.0.0.1:50050"}], **(service or {})}
    told = {"address": "0.0.0.0:8443", **edge}
    return Topology.model_validate({"services": {"gateway": gateway}, "edge": told})


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


def filters(**edge: Any) -> list[str]:
    return [found.name.rpartition(".")[2] for found in connections(**edge).http_filters]


def access_log(**edge: Any) -> dict[str, str]:
    (log,) = connections(**edge).access_log
    return MessageToDict(unpacked(log.typed_config, _stdout()))["logFormat"]["jsonFormat"]


def _stdout() -> Any:
    from envoy.extensions.access_loggers.stream.v3.stream_pb2 import StdoutAccessLog

    return StdoutAccessLog()


@pytest.fixture
def jwt(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "jwks.json").write_text(json.dumps(KEYS))
    return {"issuer": "https://issuer.example", "audiences": ["a"], "jwks_file": str(tmp_path / "jwks.json")}


def test_the_listener_listens_where_the_topology_says_and_asks_for_its_routes() -> None:
    socket = listener(address="[::1]:443").address.socket_address
    assert (socket.address, socket.port_value) == ("::1", 443)
    assert connections().rds.route_config_name == routes().name
    assert connections().rds.config_source.HasField("ads")


def test_equal_topologies_give_equal_bytes(jwt: dict[str, Any]) -> None:
    edge = {"jwt": jwt, "cors_origins": ["*"], "tls": True, "otlp_endpoint": "collector:4317"}
    first, again = (
        [message.SerializeToString(deterministic=True) for message in resources(topology(**edge))] for _ in range(2)
    )
    assert first == again


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
    found, told = listener(limits=limits), connections(limits=limits)
    open_at_once = unpacked(found.filter_chains[0].filters[0].typed_config, ConnectionLimit()).max_connections.value
    assert (open_at_once, found.per_connection_buffer_limit_bytes.value) == (11, 16_384)
    http2 = told.http2_protocol_options
    assert http2.max_concurrent_streams.value == 12
    assert http2.initial_stream_window_size.value == 70_000
    assert http2.initial_connection_window_size.value == 80_000
    assert told.common_http_protocol_options.idle_timeout.ToSeconds() == 13
    assert told.request_headers_timeout.ToSeconds() == 14
    assert told.max_request_headers_kb.value == 15
    assert told.stream_idle_timeout.ToSeconds() == 16


def test_nothing_ends_a_stream_for_being_long_but_its_callers_own_deadline() -> None:
    assert connections().request_timeout.ToSeconds() == 0
    for route in calls():
        assert route.route.HasField("timeout")
        assert route.route.timeout.ToSeconds() == 0
        assert route.route.max_stream_duration.HasField("grpc_timeout_header_max")
        assert route.route.max_stream_duration.grpc_timeout_header_max.ToSeconds() == 0


def test_who_a_caller_says_it_is_comes_off_before_any_filter_looks() -> None:
    (early,) = connections().early_header_mutation_extensions
    mutations = unpacked(early.typed_config, HeaderMutation()).mutations
    assert [mutation.remove for mutation in mutations[:2]] == ["x-hedgerow-tenant", "x-hedgerow-expires"]
    assert mutations[2].remove_on_match.key_matcher.prefix == "x-envoy-"
    assert connections().use_remote_address.value


def test_refusals_come_after_what_makes_them_readable(jwt: dict[str, Any]) -> None:
    assert filters() == ["header_to_metadata", "health_check", "cors", "grpc_web", "buffer", "fault", "router"]
    assert filters(jwt=jwt) == [*filters()[:-3], "jwt_authn", "rbac", "buffer", "fault", "router"]


def test_tokens_are_checked_with_the_keys_of_the_file_and_name_the_tenant(jwt: dict[str, Any]) -> None:
    found = unpacked(connections(jwt=jwt).http_filters[4].typed_config, JwtAuthentication())
    provider = found.providers["edge"]
    assert json.loads(provider.local_jwks.inline_string) == KEYS
    assert (provider.issuer, list(provider.audiences)) == ("https://issuer.example", ["a"])
    assert provider.require_expiration
    assert not provider.forward
    assert [(one.header_name, one.claim_name) for one in provider.claim_to_headers] == [
        ("x-hedgerow-tenant", "tenant"),
        ("x-hedgerow-expires", "exp"),
    ]
    assert [(rule.match.prefix, rule.requires.provider_name) for rule in found.rules] == [
        ("/grpc.health.v1.Health/", ""),
        ("/", "edge"),
    ]


@pytest.mark.parametrize(("origins", "exempt"), [((), False), (("https://a",), True)])
def test_only_where_pages_may_call_their_preflights_need_no_token(
    jwt: dict[str, Any], origins: tuple[str, ...], exempt: bool
) -> None:
    found = connections(jwt=jwt, cors_origins=origins).http_filters[4]
    assert unpacked(found.typed_config, JwtAuthentication()).bypass_cors_preflight is exempt


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"keys": []}', '{"keys"', None])
def test_a_file_without_keys_is_refused_by_its_field(jwt: dict[str, Any], tmp_path: Path, text: str | None) -> None:
    (tmp_path / "jwks.json").unlink() if text is None else (tmp_path / "jwks.json").write_text(text)
    with pytest.raises(BadTopology, match=r"jwks_file: .*(required|FileNotFoundError)"):
        read(written(tmp_path, jwt=jwt))


def test_other_keys_make_another_topology(jwt: dict[str, Any], tmp_path: Path) -> None:
    before = topology(jwt=jwt)
    (tmp_path / "jwks.json").write_text(json.dumps({"keys": [{**KEYS["keys"][0], "kid": "2"}]}))
    assert topology(jwt=jwt) != before


def test_a_name_to_listen_on_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadTopology, match=r"edge\.address: .*'localhost'"):
        read(written(tmp_path, address="localhost:8443"))


def written(folder: Path, **edge: Any) -> Path:
    """A topology's file."""
    services = {"gateway": {"endpoints": [{"address": "10.0.0.1:50050"}]}}
    file = folder / "topology.yaml"
    file.write_text(json.dumps({"services": services, "edge": {"address": "0.0.0.0:8443", **edge}}))
    return file


def test_calls_go_to_the_edges_service_and_only_what_it_serves() -> None:
    check, *others = routes(allow_anonymous=True).virtual_hosts[0].routes
    assert (check.match.path, check.route.cluster) == ("/grpc.health.v1.Health/Check", "gateway_health")
    assert [route.match.prefix for route in others] == [GENERATE, "/grpc.reflection."]
    assert {route.route.cluster for route in others} == {"gateway"}
    assert {route.match.headers[0].string_match.exact for route in (check, *others)} == {"POST"}


def test_a_health_check_is_taken_on_when_it_is_whole_and_takes_seconds_at_most() -> None:
    assert next(found for found in connections().http_filters if found.name.endswith("buffer")).disabled
    check = routes().virtual_hosts[0].routes[0]
    whole = unpacked(check.typed_per_filter_config["envoy.filters.http.buffer"], BufferPerRoute())
    assert whole.buffer.max_request_bytes.value == 1_024
    longest = check.route.max_stream_duration
    assert (longest.max_stream_duration.ToSeconds(), longest.grpc_timeout_header_max.ToSeconds()) == (5, 5)


@pytest.mark.parametrize(
    ("edge", "anonymous"),
    [
        ({}, False),
        ({"allow_anonymous": True}, True),
        ({"address": "127.0.0.1:1"}, True),
        ({"address": "[::1]:1"}, True),
        ({"address": "127.0.0.1:1", "allow_anonymous": False}, False),
    ],
)
def test_beyond_loopback_a_call_without_a_credential_ends_at_the_edge(edge: dict[str, Any], anonymous: bool) -> None:
    found = routes(**edge).virtual_hosts[0].routes
    refused = [route.match.prefix for route in found if route.direct_response.status == 401]
    wanted = [header.name for route in calls(**edge) for header in route.match.headers[1:]]
    assert (refused, wanted) == (([], []) if anonymous else ([GENERATE, "/grpc.reflection."], ["authorization"] * 2))


@pytest.mark.parametrize("prefix", ["/v1/", "/v2/rerank", "/rerank", "/openai/"])
@pytest.mark.parametrize("anonymous", [True, False])
def test_http_goes_to_the_gateways_door_and_its_refusal_is_one_that_clients_read(anonymous: bool, prefix: str) -> None:
    gateway = {"endpoints": [{"address": "10.0.0.1:50050", "http_port": 8080}]}
    every = routes(gateway, allow_anonymous=anonymous).virtual_hosts[0].routes
    found = [each for each in every if each.match.prefix == prefix]
    taken = [each for each in found if each.route.cluster]
    assert {each.route.cluster for each in taken} == {"gateway_http"}
    assert all(each.route.timeout.ToNanoseconds() == 0 for each in taken)
    keys = [header.name for each in taken for header in each.match.headers]
    assert keys == ([] if anonymous else ["authorization", "x-api-key", "api-key"])
    refused = [json.loads(each.direct_response.body.inline_string) for each in found if each.direct_response.status]
    assert [each["error"]["code"] for each in refused] == ([] if anonymous else ["invalid_api_key"])


def test_who_has_no_token_is_refused_by_the_filter_that_checks_them(jwt: dict[str, Any]) -> None:
    found = routes(jwt=jwt).virtual_hosts[0].routes
    assert not any(route.direct_response.status for route in found)
    assert not any(header.name == "authorization" for route in found for header in route.match.headers)


def test_tokens_and_anonymous_callers_exclude_each_other(jwt: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(BadTopology, match=r"edge: allow_anonymous: false with `jwt`"):
        read(written(tmp_path, jwt=jwt, allow_anonymous=True))


def test_tokens_without_an_audience_are_refused_by_their_field(jwt: dict[str, Any], tmp_path: Path) -> None:
    for audiences in ([], [""], None):
        told = {name: value for name, value in {**jwt, "audiences": audiences}.items() if value is not None}
        with pytest.raises(BadTopology, match=r"topology: edge\.jwt\.audiences"):
            read(written(tmp_path, jwt=told))


def test_a_call_is_tried_again_elsewhere_only_while_its_caller_has_heard_nothing() -> None:
    policy = calls()[0].route.retry_policy
    # `reset`: before the first response header; `cancelled`: in it
    assert policy.retry_on == "connect-failure,refused-stream,reset,cancelled"
    assert policy.num_retries.value == 2
    assert [found.name for found in policy.retry_host_predicate] == ["envoy.retry_host_predicates.previous_hosts"]
    assert policy.retry_priority.name == "envoy.retry_priorities.previous_priorities"
    assert not policy.HasField("per_try_timeout")  # a slow gateway is not a dead one


def test_a_service_balanced_by_hash_gets_its_header_hashed() -> None:
    assert not calls()[0].route.hash_policy
    hashed = calls({"balance": "ring_hash", "hash_header": "x-session"})[0].route.hash_policy
    assert [policy.header.header_name for policy in hashed] == ["x-session"]


def test_pages_may_call_only_from_the_origins_that_are_named() -> None:
    assert not routes().virtual_hosts[0].typed_per_filter_config
    (host,) = routes(cors_origins=["https://a", "https://b"]).virtual_hosts
    policy = unpacked(host.typed_per_filter_config["envoy.filters.http.cors"], CorsPolicy())
    assert [origin.exact for origin in policy.allow_origin_string_match] == ["https://a", "https://b"]
    assert policy.allow_methods == "POST"
    assert {"grpc-status", "grpc-message"} <= set(policy.expose_headers.split(","))
    assert not policy.forward_not_matching_preflights.value


def test_tls_is_of_this_decade_and_its_certificate_may_change() -> None:
    assert not listener().filter_chains[0].HasField("transport_socket")
    socket = listener(tls=True).filter_chains[0].transport_socket
    context = unpacked(socket.typed_config, DownstreamTlsContext()).common_tls_context
    (secret,) = context.tls_certificate_sds_secret_configs
    assert (secret.name, secret.sds_config.path_config_source.path) == ("edge", "./sds_edge.yaml")
    assert list(context.alpn_protocols) == ["h2", "http/1.1"]
    assert context.tls_params.tls_minimum_protocol_version == context.tls_params.TLSv1_2


def test_envoy_makes_spans_only_where_somebody_collects_them() -> None:
    assert not connections().HasField("tracing")
    tracing = connections(otlp_endpoint="http://collector:4317", trace_percent=5).tracing
    assert tracing.provider.name == "envoy.tracers.opentelemetry"
    assert tracing.random_sampling.value == 5


def test_the_access_log_has_the_trace_id_of_the_span_or_of_the_caller_or_of_the_gateway() -> None:
    assert access_log(otlp_endpoint="http://collector:4317")["trace_id"] == "%TRACE_ID%"
    assert access_log()["trace_id"] == "%DYNAMIC_METADATA(hedgerow:trace_id)%%TRAILER(x-hedgerow-trace-id)%"
    assert access_log().keys() >= {"grpc_status", "duration_ms", "upstream", "bytes_sent", "flags", "tenant"}


def test_a_drill_of_the_gateway_is_done_to_calls_and_not_to_health():
    topology = Topology.model_validate(
        {
            "services": {"gateway": {"endpoints": [{"address": "10.0.0.1:1"}], "drill": {"delay_ms": 50}}},
            "edge": {"address": "0.0.0.0:1"},
        }
    )
    _, routes = resources(topology)
    drilled = [
        route.match.prefix or route.match.path
        for route in routes.virtual_hosts[0].routes
        if "envoy.filters.http.fault" in route.typed_per_filter_config
    ]
    assert drilled == [GENERATE, "/grpc.reflection."]
