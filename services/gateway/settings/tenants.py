"""Tenants."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from services.gateway.cache_eligibility.settings import NO_HITS_SAID, HitSettings
from services.gateway.permissions import Permission
from services.gateway.settings.group import Group
from services.gateway.settings.guard import UNGUARDED, GuardSettings


class TenantPromptSettings(Group):
    """Changes of a tenant's prompts. A request overrides them."""

    diet: Literal["off", "system", "all"] | None = Field(None, description="Which messages are compressed.")
    conversation: Literal["whole", "cut", "summarize"] | None = Field(
        None,
        description="What becomes of a conversation that is longer than its model's context: it stays as it is, loses "
        "its first turns, or has them summed up, where the gateway has a `prompt.summary_model`.",
    )


class TenantSettings(Group):
    """Quotas and settings of a tenant. 0: no limit."""

    keys: tuple[Annotated[str, Field(pattern="^[0-9a-fA-F]{64}$")], ...] = Field(
        (), description="SHA-256 of each of its API keys, in hexadecimal."
    )
    premium: bool = Field(False, description="Among the last to be shed.")
    weight: float = Field(1, gt=0, le=1_000, description="Its share when tenants compete.")
    requests_per_s: float = Field(0, ge=0, description="Requests a second.")
    requests_burst: float = Field(10, ge=1, description="Requests at once, saved up in quiet times.")
    tokens_per_minute: float = Field(
        0,
        ge=0,
        description="Prompt and completion tokens a minute, also its burst. A second of a recording is 10.",
    )
    concurrency: int = Field(0, ge=0, description="Requests and open conversations at once.")
    max_budget_ms: int = Field(0, ge=0, description="The most budget a request of its gets, in milliseconds.")
    default_budget_ms: int = Field(
        0, ge=0, description="Budget of a request of its that names none, in milliseconds. 0: the gateway's."
    )
    max_tokens: int = Field(
        0, ge=0, description="The most tokens of an answer, also where a request does not say. 0: no limit of its own."
    )
    prompt: TenantPromptSettings = Field(
        TenantPromptSettings(), description="Changes of its prompts; defaults are those of `prompt`."
    )
    untranslated: Literal["refuse", "omit"] | None = Field(
        None,
        description="What becomes of a field that the model's API does not have. Without it, as the gateway's setting "
        "of that name has it.",
    )
    check_forms: bool | None = Field(
        None,
        description="Whether its answers are held to their `response_format` where a request does not say it. Without "
        "it, as `response_format.check` has it.",
    )
    tools: tuple[Annotated[str, Field(pattern=r"^(\*|[A-Za-z0-9_*?-]+/.+)$")], ...] = Field(
        (),
        description="The tools of the mesh that it may use, as `source/name`, also with `*`. Empty: none; the tenant "
        "`local` of a gateway without keys may use all where nothing is said of it.",
    )
    provider: tuple[Permission, ...] = Field(
        (),
        description="What its requests may have a provider do beyond the answer, as `docs/http.md` lists it: what "
        "costs more (`n`, `server_tools`, `modalities`, `prediction`, `service_tier`, `speed`, `inference_geo`, "
        "`fallbacks`), comes before others' requests (`priority`), is not looked at here (`extra_body`), is kept at "
        "the provider (`store`, `background`, `prompt_cache_retention`), or is read there (`files`). Empty: nothing; "
        "the tenant `local` of a gateway without keys may all where nothing is said of it.",
    )
    prefix_group: str = Field(
        "",
        max_length=256,
        description="Tenants with the same name here reuse what a model has read of each other's prompts, as of a "
        "system prompt that they share; time and `cached_prompt_tokens` then reveal to each what the others' "
        "prompts begin with. Empty: not shared.",
    )

    warm: bool = Field(
        False,
        description="Whether models read the prompts of the gateway's `warm` for it before it asks, and whether it may "
        "have the mesh warmed (`hedgerow warm`). The tenant `local` of a gateway without keys: true where nothing is "
        "said of it.",
    )
    guard: GuardSettings = Field(
        UNGUARDED, description="Checks of its requests and answers; defaults are those of `guard`."
    )
    hits: HitSettings = Field(
        NO_HITS_SAID,
        description="Which of its questions the cache may answer, and how; defaults are those of `hits`.",
    )
