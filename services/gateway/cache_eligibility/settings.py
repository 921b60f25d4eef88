"""A tenant's cache settings: which questions may hit, for how long, and how a hit is sent."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from services.gateway.cache_eligibility.wording import check_phrase
from services.runtime import yaml_file

Hits = Literal["off", "exact", "any"]
Scope = Literal["tenant", "user"]
_DAY_MS = 24 * 60 * 60 * 1000


class CategorySettings(BaseModel):
    """Questions whose answers have a TTL and a count of wrong hits of their own."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    words: tuple[str, ...] = Field(
        (),
        max_length=200,
        description="Whole words of a question in it, `*` for any ending.",
    )
    ttl_ms: int = Field(ge=1, le=30 * _DAY_MS, description="Lifetime of its answers.")
    max_wrong: float | None = Field(
        None,
        gt=0,
        le=1,
        description="Allowed share of wrong hits; at most the cache's `max_wrong`.",
    )

    @field_validator("words")
    @classmethod
    def _phrases(cls, words: tuple[str, ...]) -> tuple[str, ...]:
        for phrase in words:
            check_phrase(phrase)
        return words


class HitSettings(BaseModel):
    """Which questions may be answered from the cache, and how. A request may permit more (`CachePolicy.allow`)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    others: Hits = Field(
        "any",
        description="Hits of a question: `off` none, `exact` of equal questions, `any` semantic ones too.",
    )
    scope: Scope = Field(
        "tenant",
        description="Stored answers for all end users of a tenant, or for each.",
    )
    sampled: Hits = Field(
        "off",
        description="As `others`, for requests with a `temperature` above 0. With a `seed`, `off` means `exact`.",
    )
    time_bound: Hits = Field("off", description="As `others`, for questions about now, today or the latest.")
    personal: Hits = Field("off", description="As `others`, for questions about the user's own records.")
    categories: dict[Annotated[str, Field(pattern="^[a-z0-9_-]{1,64}$")], CategorySettings] = Field(
        {},
        max_length=100,
        description="Categories of questions by name.",
    )
    ignore_case: bool = Field(
        False,
        description="Whether exact hits ignore case in single lines of prose.",
    )
    revalidate_ms: int = Field(
        0,
        ge=0,
        le=30 * _DAY_MS,
        description="Time after its lifetime in which an exact hit is still served, while a new answer is generated; "
        "at most the cache's `stale_ms`.",
    )

    @model_validator(mode="before")
    @classmethod
    def _with_words(cls, given: Any) -> Any:
        return yaml_file.with_words(cls, given)


DEFAULT_HITS = HitSettings()
