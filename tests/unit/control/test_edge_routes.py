"""Envoy's routes from the entrance to the gateway: which calls pass, which are tried again, which origins may call."""

from __future__ import annotations

import json
from typing import Any

import pytest
from envoy.extensions.filters.http.buffer.v3.buffer_pb2 import BufferPerRoute
from envoy.extensions.filters.http.cors.v3.cors_pb2 import CorsPolicy
from envoy.extensions.filters.http.fault.v3.fault_pb2 import HTTPFault
from google.rpc import code_pb2

from services.control.edge_routes import HTTP_PREFIXES
from services.gateway.http.app import SERVICES, UNVERSIONED
from tests.unit.control.edges import calls, connections, routes, unpacked

GENERATE = "/hedgerow.gateway.v1.GatewayService/"


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


def test_the_edge_knows_every_path_that_the_gateway_takes() -> None:
    unversioned = {f"/{name}" for name in UNVERSIONED}
    assert {*HTTP_PREFIXES} == {"/v1/", "/v2/rerank", *SERVICES, *unversioned}


@pytest.mark.parametrize("prefix", HTTP_PREFIXES)
@pytest.mark.parametrize("anonymous", [True, False])
def test_http_goes_to_the_gateways_http_port_and_refusals_have_a_body_that_clients_read(
    anonymous: bool, prefix: str
) -> None:
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


def test_a_call_is_retried_elsewhere_only_before_its_caller_got_a_byte() -> None:
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


def test_pages_may_send_any_header_to_the_http_api_and_ask_for_each_of_its_paths_first() -> None:
    gateway = {"endpoints": [{"address": "10.0.0.1:50050", "http_port": 8080}]}
    every = routes(gateway, cors_origins=["https://a"]).virtual_hosts[0].routes
    of_http = [route for route in every if route.route.cluster == "gateway_http"]
    first = {route.match.prefix: route.match.headers[0].string_match.exact for route in reversed(of_http)}
    assert first == dict.fromkeys(HTTP_PREFIXES, "OPTIONS")
    for route in of_http:
        policy = unpacked(route.typed_per_filter_config["envoy.filters.http.cors"], CorsPolicy())
        assert (policy.allow_headers, policy.expose_headers) == ("authorization,*", "*")
        assert policy.allow_methods == "GET,POST,DELETE"


@pytest.mark.parametrize("code", [code for code, _ in code_pb2.Code.items() if code != "OK"])
def test_a_drill_of_the_gateway_is_done_to_calls_and_not_to_health_or_preflights(code: str):
    gateway = {
        "endpoints": [{"address": "10.0.0.1:1", "http_port": 8080}],
        "drill": {"delay_ms": 50, "abort": code, "abort_percent": 20},
    }
    every = routes(gateway, cors_origins=["https://a"], allow_anonymous=True).virtual_hosts[0].routes
    drilled = {
        each.match.prefix: unpacked(each.typed_per_filter_config["envoy.filters.http.fault"], HTTPFault())
        for each in every
        if "envoy.filters.http.fault" in each.typed_per_filter_config
    }
    assert [*drilled] == [GENERATE, "/grpc.reflection.", *HTTP_PREFIXES]
    assert {each.delay.fixed_delay.ToMilliseconds() for each in drilled.values()} == {50}
    assert drilled[GENERATE].abort.grpc_status == code_pb2.Code.Value(code)
    assert {drilled[prefix].abort.http_status for prefix in HTTP_PREFIXES} <= {*range(400, 505)}
    asked_first = [each for each in every if "OPTIONS" in (head.string_match.exact for head in each.match.headers)]
    assert len(asked_first) == 1 + len(HTTP_PREFIXES)
    assert not any("envoy.filters.http.fault" in each.typed_per_filter_config for each in asked_first)
