"""How the processes of a mesh are named in their certificates, for the SDK, the CLI and the services alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

TRUST_DOMAIN = "hedgerow"
_PREFIX = f"spiffe://{TRUST_DOMAIN}/"


def uri_of(identity: str) -> str:
    """The SPIFFE URI of an identity: `spiffe://hedgerow/gateway`."""
    return f"{_PREFIX}{identity}"


def identity_of(uri: str) -> str:
    """`gateway` of `spiffe://hedgerow/gateway`; a URI of another trust domain as it is, which is in no row."""
    return uri.removeprefix(_PREFIX)


def server_name_of(identity: str) -> str:
    """The DNS name of an identity, which a caller checks: `gateway.hedgerow`."""
    return f"{identity}.{TRUST_DOMAIN}"


class Service(NamedTuple):
    """A service of the mesh: the folder `services/<name>`, the identity in its certificate, where it listens on a
    machine of its own, and its callers."""

    name: str
    port: int
    callers: frozenset[str]


GATEWAY, CONTROL, EDGE, OPERATOR = "gateway", "control", "edge", "operator"  # OPERATOR: people and their tools
REDIS = "redis"  # it calls no service; its certificate is for those that connect to it
_INNER = frozenset({GATEWAY, OPERATOR})
# The one list of services: authorization, certificates, settings and commands use it.
SERVICES: Mapping[str, Service] = {
    service.name: service
    for service in (
        Service(GATEWAY, 50050, frozenset({EDGE, OPERATOR})),
        Service("cache", 50051, _INNER),
        Service("router", 50052, _INNER),
        Service("llm", 50053, _INNER),
        Service("vision", 50055, _INNER),
        Service("audio", 50056, _INNER),
        Service(CONTROL, 50060, frozenset({GATEWAY, "cache", "router", "llm", "vision", "audio", EDGE, OPERATOR})),
    )
}
IDENTITIES = (*SERVICES, EDGE, OPERATOR, REDIS)
