"""Why the cache has no say, as stable words: `make docs` writes their table from here."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from services.gateway.cache_eligibility.wording import check_phrase
from services.gateway.labels import Label

Hits = Literal["off", "exact", "any"]
Scope = Literal["tenant", "user"]
_DAY_MS = 24 * 60 * 60 * 1000
_MEANING = (
    "`off`: neither looked up nor stored; `exact`: for the very same question; `any`: also for one that asks the same"
)


class Bypassed(Label):
    """Why the cache was left out, or had only this very question looked up (`CacheReport.reason`)."""

    REQUEST = "request", "the request says so: `cache.bypass`"
    TOOLS = "tools", "it has tools or their results"
    PREFIX = "prefix", "it continues a text"
    LOGPROBS = "logprobs", "it wants log-probabilities, which are not stored"
    PROVIDER = "provider", "it wants several answers, sound, files or searches (`n`, `modalities`, …)"
    UNASKED = "unasked", "cached answers were not requested: `hits.others`, `cache.use`"
    NO_USER = "no_user", "it names no end user, and answers are shared per end user: `hits.scope`, `cache.scope`"
    SAMPLED = "sampled", "its `temperature` is above 0: `hits.sampled`"
    TIME_BOUND = "time_bound", "it asks about now, today, the latest: `hits.time_bound`"
    PERSONAL = "personal", "it asks about the user's own records (my order, my bill): `hits.personal`"
    PRIVATE = "private", "the guard found secrets or personal data, or was not done"
    INCOMPLETE = "incomplete", "a picture or recording of the question is missing"
    TOO_LARGE = "too_large", "the cache does not store questions of this size or shape"
    NO_CACHE = "no_cache", "the gateway has no cache service"


class CategorySettings(BaseModel):
    """Questions whose answers are kept for a time of their own, and have wrong hits counted by themselves."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    words: tuple[str, ...] = Field(
        (),
        max_length=200,
        description="A question with one of these is of this category: whole words, `*` at the end of one for any "
        "ending, of at most 200 characters. Empty: only where a request names it.",
    )
    ttl_ms: int = Field(ge=1, le=30 * _DAY_MS, description="How long answers are kept, in milliseconds.")
    max_wrong: float | None = Field(
        None,
        gt=0,
        le=1,
        description="Wrong hits allowed, as a share of this category's lookups, where the cache has a `verdict` or a "
        "`verify_share`. The cache's own `max_wrong` where that is less, and if not set.",
    )

    @field_validator("words")
    @classmethod
    def _phrases(cls, words: tuple[str, ...]) -> tuple[str, ...]:
        for phrase in words:
            check_phrase(phrase)
        return words


class HitSettings(BaseModel):
    """Which questions may be answered from the cache, and how. A request may allow more (`CachePolicy.allow`)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    others: Hits = Field(
        "any", description=f"Requests that none of the next three is about, where they do not say it. {_MEANING}."
    )
    scope: Scope = Field(
        "tenant",
        description="Who shares stored answers: all end users of a tenant, or each `user` has its own. Then a request "
        "that names no end user is neither looked up nor stored. A request may ask for `user`.",
    )
    sampled: Hits = Field(
        "off",
        description=f"Requests with a `temperature` above 0. {_MEANING}. With a `seed` `off` means `exact`.",
    )
    time_bound: Hits = Field("off", description="The same for questions about now, today, the latest of something.")
    personal: Hits = Field("off", description="The same for questions about a record of who asks: my order, my bill.")
    categories: dict[Annotated[str, Field(pattern="^[a-z0-9_-]{1,64}$")], CategorySettings] = Field(
        {},
        max_length=100,
        description="Categories of questions, as JSON by name. The first whose words a question has counts, and its "
        "answers are hits within it alone; of a time-bound one they are `exact` hits, for as long as it says.",
    )
    ignore_case: bool = Field(
        False,
        description="Whether exact hits ignore case, in what the user says in one line of prose: `us` is `US` then.",
    )
    chars_per_s: float = Field(
        0,
        ge=0,
        le=1_000_000,
        description="The pace at which a hit's text comes, where a request names none, in characters a second: faster "
        "where the budget asks for it. 0: all of it at once. By HTTP of streams alone.",
    )
    revalidate_ms: int = Field(
        0,
        ge=0,
        le=30 * _DAY_MS,
        description="For how long after its time an answer is still given to its very question, at once and marked as "
        "stale, while one new answer is made behind it by a batch's right. At most the cache's own `stale_ms`. 0: not "
        "at all.",
    )


NO_HITS_SAID = HitSettings()
