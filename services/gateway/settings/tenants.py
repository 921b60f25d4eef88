"""Settings of a tenant, as a file of tenants has them. A mesh file has the same keys (`launcher/meshfile/tenants.py`);
`admission/identity.py` makes a `Tenant` of them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from hedgerow.tenants import TOOL, Permission, as_tool, read_moment
from services.gateway.cache_eligibility.settings import DEFAULT_HITS, HitSettings
from services.gateway.settings.group import Group
from services.gateway.settings.guard import UNGUARDED, GuardSettings
from services.runtime import limits


class TenantPromptSettings(Group):
    """Changes of a tenant's prompts. A request overrides them."""

    diet: Literal["off", "system", "all"] | None = Field(None, description="Which messages are compressed.")
    conversation: Literal["whole", "cut", "summarize"] | None = Field(
        None,
        description="What becomes of a conversation that is longer than its model's context: it stays as it is, loses "
        "its first turns, or has them summed up, where the gateway has a `prompt.summary_model`.",
    )


def _in_full(given: Any) -> Any:
    return {"sha256": given} if isinstance(given, str) else given


Digest = Annotated[str, Field(pattern="^[0-9a-fA-F]{64}$")]


class KeyDigest(Group):
    """An API key of a tenant, by its SHA-256."""

    sha256: Digest = Field(description="SHA-256 of the key, in hexadecimal.")
    expires: Annotated[datetime, BeforeValidator(read_moment, json_schema_input_type=str)] | None = Field(
        None, description="Time from which the key is refused, in UTC unless it has an offset. Empty: never."
    )


def _one_or_many(given: Any) -> Any:
    return (given,) if isinstance(given, str) else given


_Tool = Annotated[str, AfterValidator(as_tool), WithJsonSchema({"type": "string", "pattern": TOOL})]
Tools = Annotated[tuple[_Tool, ...], BeforeValidator(_one_or_many, json_schema_input_type=_Tool | tuple[_Tool, ...])]
Permissions = Annotated[
    tuple[Permission, ...], BeforeValidator(_one_or_many, json_schema_input_type=Permission | tuple[Permission, ...])
]


class TenantSettings(Group):
    """Quotas and settings of a tenant. 0: no limit."""

    keys: tuple[Annotated[KeyDigest, BeforeValidator(_in_full, json_schema_input_type=Digest | KeyDigest)], ...] = (
        Field(
            (),
            description="SHA-256 of each of its API keys, in hexadecimal; "
            "`{sha256: …, expires: 2027-01-31T18:00:00Z}` for one that expires.",
        )
    )
    premium: bool = Field(False, description="Whether its requests are among the last to be shed.")
    weight: float = Field(1, gt=0, le=1_000, description="Share when tenants compete.")
    requests_per_s: float = Field(0, ge=0, description="Requests a second.")
    requests_burst: float = Field(10, ge=1, description="Requests at once after a rest.")
    tokens_per_minute: float = Field(
        0,
        ge=0,
        description="Prompt and completion tokens a minute, also at once after a rest. A second of a recording is 10.",
    )
    concurrency: int = Field(0, ge=0, description="Requests and open conversations at once.")
    max_budget_ms: int = Field(0, ge=0, description="Largest budget of its requests.")
    default_budget_ms: int = Field(0, ge=0, description="Budget of its requests that name none. 0: the gateway's.")
    max_tokens: int = Field(
        0, ge=0, le=limits.TOKENS, description="Most tokens of an answer, and the default. 0: no limit."
    )
    prompt: TenantPromptSettings = Field(
        TenantPromptSettings(), description="Keys `diet` and `conversation`; defaults are those of `prompt`."
    )
    untranslated: Literal["refuse", "omit"] | None = Field(None, description="Overrides the gateway's `untranslated`.")
    check_forms: bool | None = Field(None, description="Overrides the gateway's `response_format.check`.")
    tools: Tools = Field(
        (), description="Tools of the mesh that it may use, as `source/name`, also with `*`. Empty: none."
    )
    provider: Permissions = Field(
        (),
        description="Permissions for what costs more or stores data at a provider (docs/http.md). Empty: none; all "
        "for the tenant `local` without keys.",
    )
    prefix_group: str = Field(
        "",
        max_length=256,
        description="Tenants of one group share the prefixes that models have read; timing reveals their prompts' "
        "beginnings. Empty: not shared.",
    )

    warm: bool = Field(
        False,
        description="Whether models read the gateway's `warm` prompts in advance for it, and whether it may call "
        "`hedgerow warm`.",
    )
    guard: GuardSettings = Field(
        UNGUARDED, description="Checks of its requests and answers; defaults are those of `guard`."
    )
    hits: HitSettings = Field(
        DEFAULT_HITS, description="Which of its questions the cache may answer; defaults are those of `hits`."
    )
