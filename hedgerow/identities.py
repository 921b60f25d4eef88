"""How the processes of a mesh are named in their certificates, for the SDK, the CLI and the services alike."""

from __future__ import annotations

TRUST_DOMAIN = "hedgerow"
_PREFIX = f"spiffe://{TRUST_DOMAIN}/"


def uri_of(identity: str) -> str:
    """The SPIFFE URI of an identity: `spiffe://hedgerow/gateway`."""
    return f"{_PREFIX}{identity}"


def identity_of(uri: str) -> str:
    """`gateway` of `spiffe://hedgerow/gateway`; an URI of another trust domain as it is, which is in nobody's row."""
    return uri.removeprefix(_PREFIX)


def server_name_of(identity: str) -> str:
    """The DNS name of an identity, which a caller checks: `gateway.hedgerow`."""
    return f"{identity}.{TRUST_DOMAIN}"
