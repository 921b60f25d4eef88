"""Tenants' keys, as a gateway's settings name them."""

from __future__ import annotations

import hashlib


def digest(key: str) -> str:
    """The SHA-256 of a key, in hexadecimal digits."""
    return hashlib.sha256(key.encode()).hexdigest()
