"""Responses that the gateway stores."""

from __future__ import annotations

from pydantic import Field

from services.gateway.settings.group import Group
from services.runtime.process.fixed import Fixed


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
        description="Bytes of one tenant's stored responses; without a `redis_url` all tenants have four times as much "
        "memory. When either is full, the tenant, or that with the most, loses its least recently used response.",
    )
    bytes: Fixed[int | None] = Field(
        None, ge=1_048_576, description="Memory for all tenants' responses. None: four times `tenant_bytes`."
    )

    @property
    def memory_bytes(self) -> int:
        """Memory for all tenants' responses."""
        return self.bytes or 4 * self.tenant_bytes
