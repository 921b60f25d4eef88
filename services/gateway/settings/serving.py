"""Where the gateway serves, and how settings name the addresses of other services."""

from __future__ import annotations

from typing import Annotated, Literal, Self

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


class ReadySettings(Group):
    """The models and services that must have served once before the gateway is ready (`GET /ready`, gRPC health)."""

    models: int = Field(
        1,
        ge=0,
        le=1_000,
        description="Models that must have served once before the gateway is ready, at most all of `llm_addresses`. "
        "0: none.",
    )
    services: tuple[Literal["vision", "audio"], ...] = Field(
        (), description='Other services that must have served once: `["vision", "audio"]`.'
    )
    unreached_ms: int = Field(
        60_000,
        ge=0,
        le=3_600_000,
        description="Time for which a model that was never reached counts as starting, so that calls wait for it.",
    )


class Serving(ServiceSettings):
    """Where the gateway serves, and in how many processes."""

    address: str = Field("127.0.0.1:50050", description="Address of gRPC, host:port.")
    first_message_ms: Fixed[int] = Field(
        first_message.DEFAULT_MS,
        ge=1,
        le=600_000,
        description="The longest that a call's first message may take to arrive whole, from its headers on: headers "
        "alone hold a place.",
    )
    http_address: str = Field(
        "",
        validate_default=True,
        description="Address of HTTP for OpenAI's and Anthropic's APIs, host:port. Empty: none.",
    )
    ready: ReadySettings = Field(ReadySettings(), description="When the gateway is ready for requests.")
    http: HttpSettings = Field(HttpSettings(), description="What a caller by HTTP may take.")
    workers: int = Field(
        1,
        ge=1,
        le=256,
        description="Processes that share the ports. Each has its own L1 cache, limits and breakers, and serves "
        "metrics at the port of `metrics_address` plus its number.",
    )

    @field_validator("http_address")
    @classmethod
    def _plain_http_stays_here(cls, address: str, info: ValidationInfo) -> str:
        if address and not (info.data.get("plaintext") or info.data.get("tls_dir") or is_loopback(address)):
            raise ValueError(f"on loopback, or with a `tls_dir`, or `plaintext` true, got {shown(address)}")
        return address

    @field_validator("http")
    @classmethod
    def _room_for_a_message(cls, http: HttpSettings, info: ValidationInfo) -> HttpSettings:
        if http.max_waiting_bytes < (least := 2 * info.data.get("max_message_bytes", 0)):
            got = http.max_waiting_bytes
            raise ValueError(f"max_waiting_bytes: at least twice max_message_bytes, {least}, got {got}")
        return http

    @model_validator(mode="after")
    def _requires_what_it_has(self) -> Self:
        for service in self.ready.services:
            if not getattr(self, f"{service}_address", ""):
                raise ValueError(f"ready.services: those with an address, got {service} without {service}_address")
        return self

    @property
    def processes(self) -> int:
        """How many processes of the service share its ports."""
        return self.workers

    @property
    def shared_addresses(self) -> tuple[str, ...]:
        """The settings that say where it serves."""
        return ("address", "http_address") if self.http_address else ("address",)
