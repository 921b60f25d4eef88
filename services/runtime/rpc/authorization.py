"""Who may call whom.

Where services prove to each other who they are (`tls_dir`), each call has a caller with an identity: the SPIFFE URI of
its certificate, `spiffe://hedgerow/<identity>`. Those that are not in a service's row are refused on every method,
before their request is read. In plain text nobody is known, and nobody is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hedgerow.identities import identity_of
from services.runtime.errors import CallerRefused

EDGE = "edge"  # what comes in from outside
GATEWAY = "gateway"
_OPERATOR = "operator"  # people and their tools
# The tenant that the edge has proven; of the gateway's calls to caches and to audio, whose they are.
TENANT_HEADER = "x-hedgerow-tenant"
EXPIRES_HEADER = "x-hedgerow-expires"  # of the token that the edge has checked, in seconds since 1970

CALLERS: Mapping[str, frozenset[str]] = {
    GATEWAY: frozenset({EDGE, _OPERATOR}),
    "cache": frozenset({GATEWAY, _OPERATOR}),
    "router": frozenset({GATEWAY, _OPERATOR}),
    "llm": frozenset({GATEWAY, _OPERATOR}),
    "vision": frozenset({GATEWAY, _OPERATOR}),
    "audio": frozenset({GATEWAY, _OPERATOR}),
    "control": frozenset({GATEWAY, "cache", "router", "llm", "vision", "audio", EDGE, _OPERATOR}),
}
_HEALTH = frozenset({"control", EDGE, _OPERATOR})  # may ask any service whether it serves

Admit = Callable[[Any], str]  # the caller's identity, from a grpc.aio.ServicerContext; raises CallerRefused


def anyone(context: Any) -> str:
    """`Admit` in plain text: whoever it is, it stays unknown."""
    return ""


def callers_of(service: str) -> Admit:
    """`Admit` for all that `service` serves, health apart."""
    return _only(CALLERS[service], service)


def probes_of(service: str) -> Admit:
    """`Admit` for health: also its own kind may ask, for a probe in its container has no other certificate."""
    return _only(CALLERS[service] | _HEALTH | {service}, service)


def _only(allowed: frozenset[str], service: str) -> Admit:
    def admit(context: Any) -> str:
        # Where a certificate has no SPIFFE URI, or more than one, gRPC gives none.
        identity = "".join(identity_of(uri.decode()) for uri in context.auth_context().get("peer_spiffe_id", ()))
        if identity not in allowed:
            raise CallerRefused(f"{identity or 'a caller without an identity'} may not call {service}")
        return identity

    return admit
