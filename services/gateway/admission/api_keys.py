"""The API keys of all tenants: whose each is, and until when.

Keys are kept as their SHA-256 alone, so neither the settings nor the tenants' file can give one away. A lookup hashes
what came and asks a dictionary, about 1 µs in all, so nothing is remembered between calls. It need not take constant
time: it compares digests, and no caller can choose a key whose digest comes byte by byte nearer to another.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from services.gateway.errors import KeyExpired
from services.gateway.settings.tenants import TenantSettings


class BadTenants(ValueError):
    """The tenants cannot be used as they are written; the message, for the operator, names the field at fault."""


class _Key(NamedTuple):
    tenant: str
    expires: float  # in seconds since 1970; infinite where it does not


class ApiKeys:
    """API keys by their SHA-256, in hexadecimal, with the tenant and the expiry of each. Raises `BadTenants` for a key
    of two tenants. For a key that occurs twice the first expiry counts."""

    def __init__(self, tenants: Mapping[str, TenantSettings]):
        self._keys: dict[str, _Key] = {}
        for name, own in tenants.items():
            for given in own.keys:
                digest, expires = given.sha256.lower(), given.expires.timestamp() if given.expires else math.inf
                other = self._keys.setdefault(digest, _Key(name, expires))
                if other.tenant != name:
                    raise BadTenants(f"tenants: {name}.keys: {digest[:8]}… is a key of {other.tenant} already")
                self._keys[digest] = _Key(name, min(other.expires, expires))

    def __len__(self) -> int:
        """The number of keys, expired ones included."""
        return len(self._keys)

    @property
    def may_expire(self) -> bool:
        """Whether any has an expiry, also one that is over: the clock may be set back."""
        return any(key.expires < math.inf for key in self._keys.values())

    def tenant_of(self, authorization: str | None, now: float) -> str | None:
        """The name of the tenant whose key is in an `authorization` header (`Bearer <key>`); None where no known one
        is. Raises `KeyExpired`."""
        scheme, _, key = (authorization or "").partition(" ")
        known = self._keys.get(hashlib.sha256(key.strip().encode()).hexdigest()) if scheme.lower() == "bearer" else None
        if known is None:
            return None
        if known.expires <= now:
            ended = datetime.fromtimestamp(known.expires, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            raise KeyExpired(f"authorization: this API key expired at {ended}")
        return known.tenant

    def tenants(self, now: float) -> set[str]:
        """The names of those with a key that has not expired."""
        return {key.tenant for key in self._keys.values() if key.expires > now}

    def next_expiry(self, now: float) -> float:
        """The next expiry in seconds since 1970; infinite if no key expires after `now`."""
        return min((key.expires for key in self._keys.values() if key.expires > now), default=math.inf)
