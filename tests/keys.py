"""Tenants' keys, as a gateway's settings name them."""

from __future__ import annotations

import hashlib
from typing import Any


def digest(key: str) -> str:
    """The SHA-256 of a key, in hexadecimal digits."""
    return hashlib.sha256(key.encode()).hexdigest()


def tenants(*names: str) -> dict[str, Any]:
    """Tenants whose key is `key-<name>`."""
    return {name: {"keys": [digest(f"key-{name}")]} for name in names}
