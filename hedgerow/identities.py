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


GATEWAY, CONTROL, EDGE, OPERATOR = "gateway", "control", "edge", "operator"  # OPERATOR: people and their tools
REDIS = "redis"  # it calls no service; its certificate is for those that connect to it
_INNER = frozenset({GATEWAY, OPERATOR})


class Service(NamedTuple):
    """A service of the mesh: the folder `services/<name>`, the identity in its certificate, where it listens on a
    machine of its own, and its callers.

    A service that `adds_context` belongs to a stage of the gateway of the same name. Its image, its place in mesh files
    and that in the chart follow from its line here.
    """

    name: str
    port: int
    callers: frozenset[str] = _INNER
    adds_context: bool = False


# The one list of services: authorization, certificates, settings and commands use it.
_SERVICES = (
    Service(GATEWAY, 50050, frozenset({EDGE, OPERATOR})),
    Service("cache", 50051),
    Service("router", 50052),
    Service("llm", 50053),
    Service("vision", 50055),
    Service("audio", 50056),
)
_CONTROL = Service(CONTROL, 50060, frozenset({*(service.name for service in _SERVICES), EDGE, OPERATOR}))
SERVICES: Mapping[str, Service] = {service.name: service for service in (*_SERVICES, _CONTROL)}
CONTEXT_SERVICES = tuple(name for name, service in SERVICES.items() if service.adds_context)
IDENTITIES = (*SERVICES, EDGE, OPERATOR, REDIS)
