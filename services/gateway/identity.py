"""Who is asking: the tenant comes from the credential and from nothing else."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from services.gateway.errors import KeyUnknown

LOCAL = "local"  # the one tenant of a gateway without keys


class Identity:
    """Tenants by the SHA-256 of their API keys, in hexadecimal: the keys themselves are nowhere at rest."""

    def __init__(self, keys: Mapping[str, str]):
        self._tenants = {digest.lower(): tenant for digest, tenant in keys.items()}

    def tenant(self, authorization: str | None) -> str:
        """The tenant of an `authorization` header (`Bearer <key>`); raises `KeyUnknown`."""
        if not self._tenants:
            return LOCAL
        scheme, _, key = (authorization or "").partition(" ")
        tenant = self._tenants.get(hashlib.sha256(key.strip().encode()).hexdigest())
        if scheme.lower() != "bearer" or tenant is None:
            raise KeyUnknown("authorization: a bearer token that this gateway knows is required")
        return tenant
