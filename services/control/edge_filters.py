"""The filters that a call passes at the edge, in order, each with its reason."""

from __future__ import annotations

from collections.abc import Iterator

from envoy.extensions.filters.http.buffer.v3.buffer_pb2 import Buffer
from envoy.extensions.filters.http.cors.v3.cors_pb2 import Cors
from envoy.extensions.filters.http.fault.v3.fault_pb2 import HTTPFault
from envoy.extensions.filters.http.grpc_web.v3.grpc_web_pb2 import GrpcWeb
from envoy.extensions.filters.http.header_to_metadata.v3.header_to_metadata_pb2 import Config as HeaderToMetadata
from envoy.extensions.filters.http.health_check.v3.health_check_pb2 import HealthCheck
from envoy.extensions.filters.http.jwt_authn.v3.config_pb2 import JwtAuthentication, JwtProvider
from envoy.extensions.filters.http.rbac.v3.rbac_pb2 import RBAC
from envoy.extensions.filters.http.router.v3.router_pb2 import Router

from services.control.routes import Filter, http_filter
from services.control.topology import Edge, Jwt
from services.runtime.rpc.authorization import EXPIRES_HEADER, TENANT_HEADER

HEALTH_PATH = "/healthz"  # of Envoy itself
HEALTH_SERVICE = "/grpc.health.v1.Health/"  # of the gateway; its callers have no token (load balancers)
BUFFER = "envoy.filters.http.buffer"
TRACE_ID = "%DYNAMIC_METADATA(hedgerow:trace_id)%"


def chain(edge: Edge) -> Iterator[Filter]:
    """The filters of `edge`, outermost first."""
    yield http_filter("header_to_metadata", _trace_id())
    yield http_filter("health_check", _health())
    # Outside of the filters that refuse: a page may read a refusal only when it comes with CORS' own headers, and a
    # caller of gRPC-Web only in its own framing.
    yield http_filter("cors", Cors())
    yield http_filter("grpc_web", GrpcWeb())
    if edge.jwt:
        yield http_filter("jwt_authn", _tokens(edge.jwt, preflight=bool(edge.cors_origins)))
        yield http_filter("rbac", _tenant_is_named())
    # Only where a route asks for it: holds a call back until all of its request is there.
    yield {**http_filter("buffer", Buffer(max_request_bytes={"value": 1})), "disabled": True}
    yield http_filter("fault", HTTPFault())  # does nothing until a drill of the route configures it
    # Its caller learns nothing about what is behind.
    yield http_filter("router", Router(suppress_envoy_headers=True))


def _trace_id() -> HeaderToMetadata:
    """Keeps the trace id of a traceparent for the access log, which cannot cut it out."""
    wanted = {"pattern": {"regex": "^[0-9a-f]{2}-([0-9a-f]{32})-.*$"}, "substitution": r"\1"}
    into = {"metadata_namespace": "hedgerow", "key": "trace_id", "regex_value_rewrite": wanted}
    return HeaderToMetadata(request_rules=[{"header": "traceparent", "on_header_present": into}])


def _health() -> HealthCheck:
    """Answers for Envoy alone: 200, and 503 once an operator has it drain."""
    path = {"name": ":path", "string_match": {"exact": HEALTH_PATH}}
    return HealthCheck(pass_through_mode={"value": False}, headers=[path])


def _tokens(jwt: Jwt, *, preflight: bool) -> JwtAuthentication:
    """Takes a token from `authorization` alone (a URL gets into logs), and hands on its claim in place of it."""
    provider = JwtProvider(
        issuer=jwt.issuer,
        audiences=jwt.audiences,
        local_jwks={"inline_string": jwt.jwks},
        require_expiration=True,
        forward=False,
        from_headers=[{"name": "authorization", "value_prefix": "Bearer "}],
        claim_to_headers=[
            {"header_name": TENANT_HEADER, "claim_name": jwt.tenant_claim},
            {"header_name": EXPIRES_HEADER, "claim_name": "exp"},  # streams end with it
        ],
    )
    return JwtAuthentication(
        providers={"edge": provider},
        rules=[
            {"match": {"prefix": HEALTH_SERVICE}},
            {"match": {"prefix": "/"}, "requires": {"provider_name": "edge"}},
        ],
        bypass_cors_preflight=preflight,
    )


def _tenant_is_named() -> RBAC:
    """Refuses a good token without the claim: a gateway without keys would take it for its own."""
    named = {"header": {"name": TENANT_HEADER, "string_match": {"safe_regex": {"regex": ".+"}}}}
    health = {"url_path": {"path": {"prefix": HEALTH_SERVICE}}}
    policy = {"permissions": [{"any": True}], "principals": [{"or_ids": {"ids": [named, health]}}]}
    return RBAC(rules={"action": "ALLOW", "policies": {"tenant": policy}})
