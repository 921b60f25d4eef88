"""Tenants' keys, as a gateway's settings name them."""

from __future__ import annotations

import hashlib
from typing import Any

from services.gateway.settings.tenants import TenantSettings


def digest(key: str) -> str:
    """The SHA-256 of a key, in hexadecimal digits."""
    return hashlib.sha256(key.encode()).hexdigest()


def keyed(*keys: str) -> TenantSettings:
    """A tenant with these keys and no other settings."""
    return TenantSettings.model_validate({"keys": [digest(key) for key in keys]})


def tenants(*names: str) -> dict[str, Any]:
    """Tenants whose key is `key-<name>`."""
    return {name: {"keys": [digest(f"key-{name}")]} for name in names}
