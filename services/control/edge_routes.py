"""Where a call goes from the edge: to the gateway, or nowhere."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import timedelta
from types import MappingProxyType
from typing import Any

from envoy.config.route.v3.route_pb2 import RouteConfiguration
from envoy.extensions.filters.http.buffer.v3.buffer_pb2 import BufferPerRoute
from envoy.extensions.filters.http.cors.v3.cors_pb2 import CorsPolicy
from envoy.extensions.retry.host.previous_hosts.v3.previous_hosts_pb2 import PreviousHostsPredicate
from envoy.extensions.retry.priority.previous_priorities.v3.previous_priorities_config_pb2 import (
    PreviousPrioritiesConfig,
)

from services.control.clusters import health_cluster, http_cluster
from services.control.edge_filters import BUFFER, HEALTH_SERVICE
from services.control.routes import FAULT, fault, packed
from services.control.topology import Edge, MeshService

PREFIXES = ("/hedgerow.gateway.v1.GatewayService/", "/grpc.reflection.")
# All but the first: what the gateway takes for it (`services.gateway.http.app`).
HTTP_PREFIXES = (
    *("/v1/", "/v2/rerank", "/openai/", "/anthropic/", "/audio", "/chat", "/completions", "/embeddings", "/messages"),
    *("/models", "/moderations", "/rerank", "/responses"),
)
_KEY_HEADERS = ("x-api-key", "api-key")
CHECK = f"{HEALTH_SERVICE}Check"

# Headers that gRPC-Web's clients send, and headers that they must be able to read.
_ALLOWED = "authorization,content-type,grpc-timeout,traceparent,tracestate,x-grpc-web,x-user-agent"
_EXPOSED = "grpc-message,grpc-status,grpc-status-details-bin"
# Those of the HTTP API: any. `*` stands for all but `authorization` (https://fetch.spec.whatwg.org/#http-cors-protocol).
_OF_HTTP = "GET,POST,DELETE", "authorization,*", "*"  # methods, headers of requests, headers of answers
_CORS = "envoy.filters.http.cors"
_PREFLIGHT_S = 7_200  # the longest that Chromium remembers one
# A health check, which needs no credential: how long all of it may take, and how long its request may be.
_CHECK_S, _CHECK_BYTES = timedelta(seconds=5), 1_024
_NO_CREDENTIAL = "authorization: a bearer token is required"
_NO_KEY = json.dumps(
    {
        "error": {
            "message": "authorization, x-api-key or api-key: an API key is required",
            "type": "authentication_error",
            "param": None,
            "code": "invalid_api_key",
        }
    }
)


def routes(name: str, edge: Edge, service: MeshService) -> RouteConfiguration:
    """The routes of `edge` to `service`; other paths are 404, UNIMPLEMENTED for gRPC.

    That goes for `grpc.health.v1`'s `Watch` too, which any stranger could keep open: clients that watch the health of
    an endpoint take it as final, as gRPC's health protocol wants it.
    """
    known = [_check(edge), *(_route(prefix, edge, service) for prefix in PREFIXES)]
    if edge.wants_bearer:
        matches = [{"prefix": prefix, "headers": [_method("POST")]} for prefix in PREFIXES]
        known += [each for match in matches for each in _refusals(match, _NO_CREDENTIAL, edge.cors_origins, _EXPOSED)]
    host: dict[str, Any] = {"name": name, "domains": ["*"]}
    if service.http:
        known += _http(edge, service)
    if edge.cors_origins:
        known.append(_preflight(PREFIXES[0], edge.service))
        host["typed_per_filter_config"] = {_CORS: packed(_cors(edge.cors_origins, "POST", _ALLOWED, _EXPOSED))}
    return RouteConfiguration(name=name, virtual_hosts=[{**host, "routes": known}])


def _route(prefix: str, edge: Edge, service: MeshService) -> dict[str, Any]:
    action: dict[str, Any] = {
        "cluster": edge.service,
        "timeout": timedelta(),  # a stream takes as long as it takes; its caller's own deadline ends it
        "max_stream_duration": {"grpc_timeout_header_max": timedelta()},
        "retry_policy": _retry(),
    }
    if service.balance == "ring_hash":
        action["hash_policy"] = [{"header": {"header_name": service.hash_header}}]
    headers = [_method("POST"), *([_BEARER] if edge.wants_bearer else [])]
    route = {"match": {"prefix": prefix, "headers": headers}, "route": action}
    if service.drill:
        route["typed_per_filter_config"] = {FAULT: packed(fault(service.drill))}
    return route


def _http(edge: Edge, service: MeshService) -> Iterator[dict[str, Any]]:
    """To the gateway's HTTP API, which answers everything else itself. A key may come in one of three headers."""
    named = [[{"name": name, "present_match": True}] for name in _KEY_HEADERS]
    cluster = http_cluster(edge.service)
    action = {"cluster": cluster, "timeout": timedelta(), "retry_policy": _retry()}
    own = {_CORS: packed(_cors(edge.cors_origins, *_OF_HTTP))} if edge.cors_origins else {}
    drilled = {**own, FAULT: packed(fault(service.drill, by_http=True))} if service.drill else own
    for prefix in HTTP_PREFIXES:
        if edge.cors_origins:
            yield {**_preflight(prefix, cluster), "typed_per_filter_config": own}
        for headers in [[_BEARER], *named] if edge.wants_bearer else [[]]:
            match = {"prefix": prefix, "headers": headers}
            yield {"match": match, "route": action, "typed_per_filter_config": drilled}
        if edge.wants_bearer:
            is_json = {"content-type": "application/json"}
            yield from _refusals({"prefix": prefix}, _NO_KEY, edge.cors_origins, _OF_HTTP[-1], is_json)


def _check(edge: Edge) -> dict[str, Any]:
    """For every caller: by a route of its own, whose slots are taken only by complete requests, which end soon."""
    longest = {"max_stream_duration": _CHECK_S, "grpc_timeout_header_max": _CHECK_S}
    whole = BufferPerRoute(buffer={"max_request_bytes": {"value": _CHECK_BYTES}})
    return {
        "match": {"path": CHECK, "headers": [_method("POST")]},
        "route": {"cluster": health_cluster(edge.service), "max_stream_duration": longest, "retry_policy": _retry()},
        "typed_per_filter_config": {BUFFER: packed(whole)},
    }


def _refusals(
    match: Mapping[str, Any],
    body: str,
    origins: tuple[str, ...],
    exposed: str,
    headers: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[dict[str, Any]]:
    """For requests that the routes before do not take: refused here, without a call to a gateway. CORS' filter does
    nothing for an answer that comes from a route itself, so the headers for pages are set here."""
    answer = {"status": 401, "body": {"inline_string": body}}
    cors_headers = {"access-control-allow-origin": "%REQ(origin)%", "access-control-expose-headers": exposed}
    for origin in origins:
        page = {"name": "origin", **({"present_match": True} if origin == "*" else {"string_match": {"exact": origin}})}
        of_pages = {**match, "headers": [*match.get("headers", ()), page]}
        added = _added({**headers, **cors_headers})
        yield {"match": of_pages, "direct_response": answer, "response_headers_to_add": added}
    yield {"match": match, "direct_response": answer, "response_headers_to_add": _added(headers)}


def _added(headers: Mapping[str, str]) -> list[dict[str, Any]]:
    return [{"header": {"key": name, "value": value}} for name, value in headers.items()]


def _preflight(prefix: str, cluster: str) -> dict[str, Any]:
    """CORS' filter looks for a route before it answers a preflight; it answers all that this one fits, and so no call
    takes it."""
    asked = [{"name": name, "present_match": True} for name in ("origin", "access-control-request-method")]
    return {"match": {"prefix": prefix, "headers": [_method("OPTIONS"), *asked]}, "route": {"cluster": cluster}}


def _method(name: str) -> dict[str, Any]:
    return {"name": ":method", "string_match": {"exact": name}}


_BEARER = {"name": "authorization", "string_match": {"prefix": "bearer ", "ignore_case": True}}


def _retry() -> dict[str, Any]:
    """Again, elsewhere, where a gateway was not reached or died without a word: its caller has heard nothing, and what
    it may have begun ended with it. All other retries are the gateway's, which knows their cost. The second one goes
    to the next region: all gateways of one may have died at once."""
    elsewhere = {"name": "envoy.retry_host_predicates.previous_hosts", "typed_config": packed(PreviousHostsPredicate())}
    next_region = {
        "name": "envoy.retry_priorities.previous_priorities",
        "typed_config": packed(PreviousPrioritiesConfig(update_frequency=1)),
    }
    return {
        # `cancelled`: how gRPC for Python ends a call that came when it had just stopped to take any.
        "retry_on": "connect-failure,refused-stream,reset,cancelled",
        "num_retries": {"value": 2},
        "retry_host_predicate": [elsewhere],
        "retry_priority": next_region,
        "host_selection_retry_max_attempts": 5,
        "retry_back_off": {"base_interval": timedelta(milliseconds=5)},
    }


def _cors(origins: tuple[str, ...], methods: str, allowed: str, exposed: str) -> CorsPolicy:
    return CorsPolicy(
        allow_origin_string_match=[{"exact": origin} for origin in origins],
        allow_methods=methods,
        allow_headers=allowed,
        expose_headers=exposed,
        max_age=str(_PREFLIGHT_S),
        forward_not_matching_preflights={"value": False},
    )
