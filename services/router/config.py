"""Settings of the router."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator
from pydantic_settings import SettingsConfigDict

from services.runtime import limits
from services.runtime.process.config import ServiceSettings
from services.runtime.process.fixed import Fixed
from services.runtime.security.secrets import Url
from services.runtime.shared_state import RedisUrl

Milliseconds = Annotated[float, Field(gt=0, le=600_000)]
Dollars = Annotated[float, Field(ge=0, le=1_000)]


class ModelSettings(BaseModel):
    """A model of the catalogue. The expectations hold until there are observations."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(min_length=1, description="Name, as in the gateway's `llm_addresses`.")
    tier: Literal["fast", "balanced", "quality"] = Field(description="Class of the model.")
    context_tokens: int = Field(
        0, ge=0, le=limits.TOKENS, description="Most tokens of prompt and answer together. 0: not known."
    )
    prompt_usd_per_mtok: Dollars = Field(0, description="For a million prompt tokens.")
    completion_usd_per_mtok: Dollars = Field(0, description="For a million generated tokens.")
    cached_prompt_usd_per_mtok: Dollars | None = Field(
        None, description="For prompt tokens from the provider's cache. Default: the prompt's price."
    )
    cache_write_usd_per_mtok: Dollars | None = Field(
        None, description="For prompt tokens written to it. Default: the same."
    )
    expected_ttft_ms: Milliseconds = Field(200, description="Expected time to the first token.")
    expected_total_ms: Milliseconds = Field(1_000, description="Expected time to the last token.")
    sees: bool = Field(False, description="Whether it receives pictures; other models receive labels.")
    identity: str = Field("", max_length=64, description="Identity beside the name, such as a digest of the weights.")


class RouterSettings(ServiceSettings):
    """Settings of the router."""

    model_config = SettingsConfigDict(env_prefix="HEDGEROW_ROUTER_")

    address: str = Field("127.0.0.1:50052", description="Address of gRPC, host:port.")
    models: tuple[ModelSettings, ...] = Field(description="The models, with unique names.", min_length=1)
    window_s: Fixed[float] = Field(
        300, gt=0, le=86_400, description="How far back the latency digests look, in seconds."
    )
    publish_interval_ms: Fixed[int] = Field(
        250, ge=10, le=60_000, description="Least time between two versions of the table, in milliseconds."
    )

    redis_url: RedisUrl = Url("")
    redis_timeout_ms: Fixed[float] = Field(
        250,
        ge=1,
        le=10_000,
        description="With `redis_url`: Redis counts as down when it takes longer for a call. What was to be shared is "
        "lost then.",
    )

    @field_validator("models")
    @classmethod
    def _unique(cls, models: tuple[ModelSettings, ...]) -> tuple[ModelSettings, ...]:
        names = [model.name for model in models]
        if len(names) != len(set(names)):
            raise ValueError("names must be unique")
        return models
