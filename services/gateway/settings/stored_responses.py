"""Responses that the gateway stores."""

from __future__ import annotations

from pydantic import Field

from services.gateway.settings.group import Group


class StoredResponseSettings(Group):
    """Responses of `/v1/responses` that a later request names as its `previous_response_id`."""

    ttl_ms: int = Field(
        0,
        ge=0,
        le=30 * 24 * 60 * 60 * 1000,
        description="Time for which responses are stored, with their conversations. 0: none. More than one worker "
        "needs a `redis_url`, and so do several gateways.",
    )
    tenant_bytes: int = Field(
        67_108_864,
        ge=1_048_576,
        description="Bytes of one tenant's stored responses. When they are full, it loses the least recently used one.",
    )
    bytes: int = Field(
        268_435_456,
        ge=1_048_576,
        description="Memory for stored responses without a `redis_url`. When it is full, the tenant with the most "
        "loses its least recently used one.",
    )
