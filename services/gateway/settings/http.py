"""The HTTP API."""

from __future__ import annotations

from pydantic import Field

from services.gateway.settings.group import Group
from services.runtime import limits
from services.runtime.process.fixed import Fixed


class HttpSettings(Group):
    """Limits of HTTP callers: bytes, time, connections."""

    max_body_bytes: int = Field(
        limits.HTTP_BODY_BYTES, ge=1_024, description="Largest body of a request that may hold pictures or recordings."
    )
    max_text_body_bytes: Fixed[int] = Field(
        limits.HTTP_TEXT_BODY_BYTES,
        ge=1_024,
        description="Largest body of embeddings, rerank, moderations and reports of wrong answers.",
    )
    max_waiting_bytes: Fixed[int | None] = Field(
        None,
        ge=2_048,
        description="Memory for bodies and gRPC messages that are being read, in each worker; a tenant may hold as "
        "much as stays free. None: five times `max_body_bytes`, or twice `max_message_bytes` if that is more.",
    )
    max_json_values: Fixed[int] = Field(
        limits.JSON_VALUES,
        ge=1_000,
        description="Of a JSON body, altogether, without the names in its objects: counted before any is made. Of a "
        "message by gRPC ten times `max_json_items`, or five times `max_messages` where that is more.",
    )
    max_json_items: Fixed[int] = Field(
        limits.JSON_ITEMS,
        ge=100,
        description="Elements of one array, or members of one object, of a JSON body, or of one field of a message by "
        "gRPC. Of `messages` and `input` four times `max_messages`, where that is more.",
    )
    max_header_bytes: Fixed[int] = Field(
        65_536, ge=1_024, description="Largest path and headers of a request, without blanks."
    )
    max_connections: int = Field(4_096, ge=1, description="Connections at once, in each worker.")
    max_connections_of_one: Fixed[int | None] = Field(
        None,
        ge=1,
        description="Connections of one address, in each worker; further ones are closed. None: half of "
        "`max_connections`.",
    )
    header_ms: Fixed[int] = Field(
        10_000, ge=1, le=600_000, description="The longest a request's headers may take, from its first byte on."
    )
    body_ms: Fixed[int] = Field(
        30_000, ge=1, le=600_000, description="The longest that a request's body may take, from its headers on."
    )
    write_ms: Fixed[int] = Field(
        20_000,
        ge=1,
        le=600_000,
        description="The longest a client may take to read what waits for it, or 1 MiB of that.",
    )
    keep_alive_ms: Fixed[int] = Field(
        620_000,
        ge=0,
        le=3_600_000,
        description="Time for which an idle connection is kept: longer than load balancers keep one (Google's 600 s, "
        "Azure's 240 s, Amazon's 60 s), so that none sends a request while it is closed.",
    )
    heartbeat_ms: Fixed[int] = Field(
        10_000,
        ge=100,
        le=600_000,
        description="After so long without a byte, a stream has a comment. The first one sends the headers, with 200.",
    )
    silence_ms: Fixed[int | None] = Field(
        None,
        ge=0,
        le=600_000,
        description="Longest silence after an answer's first text, for requests that name none; then it ends with an "
        "error. 0: no limit. None: three times `stall_ms`, so that another replica can go on before.",
    )
    cors_origins: tuple[str, ...] = Field((), description='Origins whose pages may call; `["*"]`: all.')

    @property
    def connections_of_one(self) -> int:
        """How many connections one address may have."""
        return self.max_connections_of_one or -(-self.max_connections // 2)
