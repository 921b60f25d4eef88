"""Settings of the gateway."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field
from pydantic_settings import SettingsConfigDict

from services.runtime.config import ServiceSettings

Address = Annotated[str, Field(min_length=3)]


class StageBudget(BaseModel):
    """How much of the budget a stage may take: a share of the whole, but never more than the cap."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    share: float = Field(gt=0, le=1, description="Share of the whole budget.")
    cap_ms: float = Field(gt=0, le=600_000, description="The most it gets, in milliseconds.")


class StageBudgets(BaseModel):
    """The budgets of the stages. The model gets at least what the stages before it leave, and all that they save."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    cache: StageBudget = StageBudget(share=0.2, cap_ms=200)
    router: StageBudget = StageBudget(share=0.05, cap_ms=10)
    llm: StageBudget = StageBudget(share=1, cap_ms=600_000)


class GatewaySettings(ServiceSettings):
    """Settings of the gateway."""

    model_config = SettingsConfigDict(env_prefix="HEDGEROW_GATEWAY_")

    address: str = Field("127.0.0.1:50050", description="Where to serve gRPC, host:port.")
    cache_address: str = Field("127.0.0.1:50051", description="The cache service. Empty: no cache.")
    router_address: str = Field("127.0.0.1:50052", description="The router. Empty: no routing.")
    llm_addresses: dict[str, Address] = Field(
        description="The llm service of each model, as JSON: {name: host:port}. The first stands in without a router.",
        min_length=1,
    )
    default_budget_ms: int = Field(30_000, ge=1, description="Budget of a request that names none.")
    max_budget_ms: int = Field(120_000, ge=1, description="The most any request gets; a larger budget is cut to it.")
    finish_reserve_ms: float = Field(
        10, ge=0, le=1_000, description="Kept back of each budget to send the last event; at most a tenth of it."
    )
    stages: StageBudgets = Field(StageBudgets(), description="The budget of each stage, as JSON.")
    ready_wait_ms: int = Field(5_000, ge=0, description="At start, how long to wait for the router's first table.")
    near_cache_entries: int = Field(10_000, ge=0, description="Exact answers kept in the gateway. 0: none.")
    near_cache_ttl_ms: int = Field(
        30_000, ge=1, description="How long one is kept before the cache is asked again, which keeps it from eviction."
    )
    max_messages: int = Field(64, ge=1, description="The most messages a conversation may have.")
    max_content_bytes: int = Field(262_144, ge=1, description="The most bytes all messages may have together.")
    max_batch: int = Field(64, ge=1, description="The most requests a batch may have.")
    api_keys: dict[str, str] = Field(
        {}, description="SHA-256 of each API key, in hexadecimal, and its tenant. Empty: no keys, one tenant `local`."
    )
