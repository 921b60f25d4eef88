"""Where the gateway serves, which requests it refuses under load, which answers and responses it keeps, and how
settings name the addresses of other services."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from services.gateway.settings.group import Group
from services.gateway.settings.http import HttpSettings
from services.runtime.process.config import ServiceSettings, is_loopback
from services.runtime.process.fixed import Fixed
from services.runtime.rpc import first_message
from services.runtime.security.secrets import shown

Address = Annotated[str, Field(min_length=3)]
# One address may be given as a plain string; the same address twice is two replicas to hedge between.
Addresses = Annotated[
    tuple[Address, ...], Field(min_length=1), BeforeValidator(lambda v: (v,) if isinstance(v, str) else v)
]


class ShedSettings(Group):
    """Which requests are refused first when it gets full. Score: premium +100, real-time +75, each repeat -50. Of low
    scores those of the tenant with the most recent work, where the process itself is full (`work_shares.py`)."""

    load: float = Field(
        0.85, gt=0, le=1, description="From this load on, low scores are shed. 1 is all slots and the queue."
    )
    score: int = Field(50, description="Scores below this are low.", ge=-10_000, le=10_000)
    lag_ms: float = Field(50, gt=0, le=10_000, description="An event loop that runs this late is a load of 1.")
    cpu: float = Field(
        0.95,
        gt=0,
        le=64,
        description="Cores the process uses when its lag counts. For a lag alone, only large requests of tenants above "
        "their fair share are refused.",
    )
    retry_after_ms: float = Field(1_000, ge=1, le=600_000, description="The least delay in a refusal.")


class KeptSettings(Group):
    """Answers with an `idempotency_key`, which outlast the connection of their client."""

    ms: Fixed[int | None] = Field(
        None,
        ge=1,
        le=3_600_000,
        description="Time for which an answer with an `idempotency_key` runs without a client, and is kept when "
        "complete. None: `default_budget_ms`.",
    )
    bytes: Fixed[int] = Field(
        67_108_864,
        ge=0,
        description="Memory for these answers in each worker, in bytes. At the limit, the tenant with the most gives "
        "up one: the oldest whole one without a client, else one under way without a client, which ends, else one that "
        "a client reads, which goes on and is not kept.",
    )

    @property
    def lasts_s(self) -> float:
        """`ms` in seconds; 30 s, the default budget, where it is not derived."""
        return (self.ms or 30_000) / 1000


class StoredResponseSettings(Group):
    """Responses of `/v1/responses` that a later request names as its `previous_response_id`."""

    ttl_ms: int = Field(
        0,
        ge=0,
        le=30 * 24 * 60 * 60 * 1000,
        description="Time for which [responses](http.md#stored-responses) are stored. 0: none.",
    )
    tenant_bytes: int = Field(
        67_108_864,
        ge=1_048_576,
        description="Bytes of one tenant's stored responses; without Redis all tenants have four times as much.",
    )
    bytes: Fixed[int | None] = Field(
        None, ge=1_048_576, description="Memory for all tenants' responses. None: four times `tenant_bytes`."
    )

    @property
    def memory_bytes(self) -> int:
        """Memory for all tenants' responses."""
        return self.bytes or 4 * self.tenant_bytes


class ReadySettings(Group):
    """The models and services that must have served once before the gateway is ready (`GET /ready`, gRPC health)."""

    models: int = Field(1, ge=0, le=1_000, description="Models that must have served once before the gateway is ready.")
    services: tuple[Literal["vision", "audio"], ...] = Field(
        (), description='Other services that must have served once: `["vision", "audio"]`.'
    )
    unreached_ms: Fixed[int] = Field(
        60_000,
        ge=0,
        le=3_600_000,
        description="Time for which a model that was never reached, or whose connection is lost, counts as starting, "
        "so that calls wait for it.",
    )


class Serving(ServiceSettings):
    """Addresses and processes of the gateway."""

    address: str = Field("127.0.0.1:50050", description="Address of gRPC, host:port.")
    first_message_ms: Fixed[int] = Field(
        first_message.DEFAULT_MS,
        ge=1,
        le=600_000,
        description="The longest that a call's first message may take to arrive whole, from its headers on: headers "
        "alone hold a slot.",
    )
    http_address: str = Field(
        "",
        validate_default=True,
        description="Address of HTTP for OpenAI's and Anthropic's APIs, host:port. Empty: none.",
    )
    ready: ReadySettings = Field(ReadySettings(), description="When the gateway is ready for requests.")
    http: HttpSettings = Field(HttpSettings(), description="What a caller by HTTP may take.")
    responses: StoredResponseSettings = Field(
        StoredResponseSettings(), description="Responses that the gateway stores."
    )
    standing_streams: bool = Field(
        True,
        description="Send the calls to a service over one gRPC stream for each connection. False: each call is a gRPC "
        "call, for a proxy in between that balances calls.",
    )
    workers: int = Field(1, ge=1, le=256, description="Processes that share the ports (docs/operations.md#workers).")

    @field_validator("http_address")
    @classmethod
    def _plain_http_stays_here(cls, address: str, info: ValidationInfo) -> str:
        if address and not (info.data.get("plaintext") or info.data.get("tls_dir") or is_loopback(address)):
            raise ValueError(f"on loopback, or with a `tls_dir`, or `plaintext` true, got {shown(address)}")
        return address

    @model_validator(mode="after")
    def _requires_what_it_has(self) -> Self:
        for service in self.ready.services:
            if not getattr(self, f"{service}_address", ""):
                raise ValueError(f"ready.services: those with an address, got {service} without {service}_address")
        if self.responses.ttl_ms and self.workers > 1 and not getattr(self, "redis_url", ""):
            raise ValueError(f"responses.ttl_ms: 0, or a redis_url, got {self.workers} workers without a common store")
        return self

    def of_the_service(self) -> dict[str, Any]:
        """Without the settings of its process, and the number of processes."""
        return {name: value for name, value in super().of_the_service().items() if name != "workers"}

    @property
    def waiting_bytes(self) -> int:
        """Memory for bodies and gRPC messages that are being read."""
        return self.http.max_waiting_bytes or max(5 * self.http.max_body_bytes, 2 * self.max_message_bytes)

    @property
    def processes(self) -> int:
        """How many processes of the service share its ports."""
        return self.workers

    @property
    def shared_addresses(self) -> tuple[str, ...]:
        """The settings that say where it serves."""
        return ("address", "http_address") if self.http_address else ("address",)
