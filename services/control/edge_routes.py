"""Where a call goes from the edge: to the gateway, or nowhere."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from envoy.config.route.v3.route_pb2 import RouteConfiguration
from envoy.extensions.filters.http.cors.v3.cors_pb2 import CorsPolicy
from envoy.extensions.retry.host.previous_hosts.v3.previous_hosts_pb2 import PreviousHostsPredicate
from envoy.extensions.retry.priority.previous_priorities.v3.previous_priorities_config_pb2 import (
    PreviousPrioritiesConfig,
)

from services.control.edge_filters import HEALTH_SERVICE
from services.control.routes import FAULT, fault, packed
from services.control.topology import Edge, Service

PREFIXES = ("/hedgerow.gateway.v1.GatewayService/", HEALTH_SERVICE, "/grpc.reflection.")

# What gRPC-Web's clients send, and what they must be able to read.
_ALLOWED = "authorization,content-type,grpc-timeout,traceparent,tracestate,x-grpc-web,x-user-agent"
_EXPOSED = "grpc-message,grpc-status,grpc-status-details-bin"
_PREFLIGHT_S = 7_200  # the longest that Chromium remembers one


def routes(name: str, edge: Edge, service: Service) -> RouteConfiguration:
    """The routes of `edge` to `service`; what they do not know is 404, UNIMPLEMENTED for gRPC."""
    known = [_route(prefix, edge, service) for prefix in PREFIXES]
    host: dict[str, Any] = {"name": name, "domains": ["*"]}
    if edge.cors_origins:
        known.append(_preflight(edge))
        host["typed_per_filter_config"] = {"envoy.filters.http.cors": packed(_cors(edge.cors_origins))}
    return RouteConfiguration(name=name, virtual_hosts=[{**host, "routes": known}])


def _route(prefix: str, edge: Edge, service: Service) -> dict[str, Any]:
    action: dict[str, Any] = {
        "cluster": edge.service,
        "timeout": timedelta(),  # a stream takes as long as it takes; its caller's own deadline ends it
        "max_stream_duration": {"grpc_timeout_header_max": timedelta()},
        "retry_policy": _retry(),
    }
    if service.balance == "ring_hash":
        action["hash_policy"] = [{"header": {"header_name": service.hash_header}}]
    route = {"match": {"prefix": prefix, "headers": [_method("POST")]}, "route": action}
    if service.drill and prefix != HEALTH_SERVICE:
        route["typed_per_filter_config"] = {FAULT: packed(fault(service.drill))}
    return route


def _preflight(edge: Edge) -> dict[str, Any]:
    """CORS' filter looks for a route before it answers a preflight; it answers all that this one fits, and so no call
    takes it."""
    asked = [{"name": name, "present_match": True} for name in ("origin", "access-control-request-method")]
    return {
        "match": {"prefix": PREFIXES[0], "headers": [_method("OPTIONS"), *asked]},
        "route": {"cluster": edge.service},
    }


def _method(name: str) -> dict[str, Any]:
    return {"name": ":method", "string_match": {"exact": name}}


def _retry() -> dict[str, Any]:
    """Again, elsewhere, where a gateway was not reached or died without a word: its caller has heard nothing, and what
    it may have begun ended with it. All other retries are the gateway's, who knows what they cost. The second one goes
    to the next region: all gateways of one may have died at once."""
    elsewhere = {
        "name": "envoy.retry_host_predicates.previous_hosts",
        "typed_config": packed(PreviousHostsPredicate()),
    }
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


def _cors(origins: tuple[str, ...]) -> CorsPolicy:
    return CorsPolicy(
        allow_origin_string_match=[{"exact": origin} for origin in origins],
        allow_methods="POST",
        allow_headers=_ALLOWED,
        expose_headers=_EXPOSED,
        max_age=str(_PREFLIGHT_S),
        forward_not_matching_preflights={"value": False},
    )
