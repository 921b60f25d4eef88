"""Authorization between services.

With mutual TLS (`tls_dir`) each call has a caller with an identity: the SPIFFE URI of
its certificate, `spiffe://hedgerow/<identity>`. Those that are not among a service's callers are refused on
every method, before their request is read. In plaintext callers are unknown, and none is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hedgerow.identities import CONTROL, EDGE, OPERATOR, SERVICES, identity_of
from services.runtime.errors import CallerRefused

# The tenant that the edge has proven; of the gateway's calls to other services, whose they are.
TENANT_HEADER = "x-hedgerow-tenant"
EXPIRES_HEADER = "x-hedgerow-expires"  # of the token that the edge has checked, in seconds since 1970

_HEALTH = frozenset({CONTROL, EDGE, OPERATOR})  # may ask any service whether it serves

Admit = Callable[[Any], str]  # the caller's identity, from a grpc.aio.ServicerContext; raises CallerRefused


def anyone(context: Any) -> str:
    """`Admit` for plaintext, which does not identify the caller."""
    return ""


def callers_of(service: str) -> Admit:
    """`Admit` for all that `service` serves, health apart."""
    return _only(SERVICES[service].callers, service)


def probes_of(service: str) -> Admit:
    """`Admit` for health: also its own kind may ask, for a probe in its container has no other certificate."""
    return _only(SERVICES[service].callers | _HEALTH | {service}, service)


def _only(allowed: frozenset[str], service: str) -> Admit:
    def admit(context: Any) -> str:
        # Where a certificate has no SPIFFE URI, or more than one, gRPC gives none.
        identity = "".join(identity_of(uri.decode()) for uri in context.auth_context().get("peer_spiffe_id", ()))
        if identity not in allowed:
            raise CallerRefused(f"{identity or 'a caller without an identity'} may not call {service}")
        return identity

    return admit
