"""Settings of the router."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator
from pydantic_settings import SettingsConfigDict

from services.runtime.process.config import ServiceSettings
from services.runtime.process.fixed import Fixed
from services.runtime.security.secrets import Url
from services.runtime.shared_state import RedisUrl

Milliseconds = Annotated[float, Field(gt=0, le=600_000)]
Dollars = Annotated[float, Field(ge=0, le=1_000)]


class ModelSettings(BaseModel):
    """A model of the catalogue. The expectations hold until there are observations."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(min_length=1, description="Its name; gateways find its address under it.")
    tier: Literal["fast", "balanced", "quality"] = Field(description="Its class.")
    context_tokens: int = Field(
        0, ge=0, description="The most tokens that prompt and answer may have together. 0: not known."
    )
    prompt_usd_per_mtok: Dollars = Field(0, description="Price of a million prompt tokens, in US dollars.")
    completion_usd_per_mtok: Dollars = Field(0, description="Price of a million generated tokens, in US dollars.")
    cached_prompt_usd_per_mtok: Dollars | None = Field(
        None,
        description="Price of a million prompt tokens that the provider reads from its cache, in US dollars. Default: "
        "the price of prompt tokens.",
    )
    cache_write_usd_per_mtok: Dollars | None = Field(
        None,
        description="Price of a million prompt tokens that the provider writes to its cache, in US dollars; of several "
        "such prices, that of the shortest time. Default: the price of prompt tokens.",
    )
    expected_ttft_ms: Milliseconds = Field(200, description="Expected time to first token.")
    expected_total_ms: Milliseconds = Field(1_000, description="Expected time to the last token.")
    sees: bool = Field(False, description="Whether it takes pictures as they are; the others receive labels.")
    identity: str = Field(
        "",
        max_length=64,
        description="What it is beside its name, for example a digest of its weights. Stored answers are given for the "
        "same identities alone; `hedgerow up` and `render` set it for a mesh file.",
    )


class RouterSettings(ServiceSettings):
    """Settings of the router."""

    model_config = SettingsConfigDict(env_prefix="HEDGEROW_ROUTER_")

    address: str = Field("127.0.0.1:50052", description="Where to serve gRPC, host:port.")
    models: tuple[ModelSettings, ...] = Field(description="The catalogue, as JSON. Names must be unique.", min_length=1)
    window_s: Fixed[float] = Field(
        300, gt=0, le=86_400, description="How far back the latency digests look, in seconds."
    )
    publish_interval_ms: Fixed[int] = Field(
        250, ge=10, le=60_000, description="Least time between two versions of the table, in milliseconds."
    )

    redis_url: RedisUrl = Url("")

    @field_validator("models")
    @classmethod
    def _unique(cls, models: tuple[ModelSettings, ...]) -> tuple[ModelSettings, ...]:
        names = [model.name for model in models]
        if len(names) != len(set(names)):
            raise ValueError("names must be unique")
        return models
