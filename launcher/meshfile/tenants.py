"""The keys of tenants in a mesh file."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, WithJsonSchema, field_validator

from hedgerow.tenants import A_NAME, TOOL, Permission, as_tool, is_name
from launcher.meshfile.expiry import Moment, written
from launcher.meshfile.fields import CallersKeyFile, Digest, KeyNames
from launcher.meshfile.models import Section


class KeyDigest(Section):
    """An API key, by its SHA-256."""

    sha256: Digest = Field(description="SHA-256 of the key, in hexadecimal.")
    expires: Moment | None = Field(
        None, description="Time from which the key is refused, in UTC unless it has an offset. Empty: never."
    )

    def for_gateway(self) -> str | dict[str, str]:
        """The tenant in the form of the gateway's file."""
        return {"sha256": self.sha256, "expires": written(self.expires)} if self.expires else self.sha256


def _one_or_many(given: Any) -> Any:
    return [given] if isinstance(given, str | dict) else given


def _in_full(given: Any) -> Any:
    if not isinstance(given, str | dict):
        raise ValueError("a SHA-256 is needed, in quotes where all of its digits are decimal")
    return {"sha256": given} if isinstance(given, str) else given


_Short = Digest | KeyDigest
KeyDigests = Annotated[
    list[Annotated[KeyDigest, BeforeValidator(_in_full)]],
    BeforeValidator(_one_or_many, json_schema_input_type=_Short | list[_Short]),
]


def _as_name(name: str) -> str:
    if not is_name(name):
        raise ValueError(f"a name of {A_NAME}")
    return name


TenantName = Annotated[str, AfterValidator(_as_name)]

_Tool = Annotated[str, AfterValidator(as_tool), WithJsonSchema({"type": "string", "pattern": TOOL})]
Tools = Annotated[list[_Tool], BeforeValidator(_one_or_many, json_schema_input_type=_Tool | list[_Tool])]
Permissions = Annotated[
    list[Permission], BeforeValidator(_one_or_many, json_schema_input_type=Permission | list[Permission])
]


class Tenant(Section):
    """A caller and its limits; 0: no limit. API keys are never in the file."""

    key_env: KeyNames = Field([], description="Environment variables with an API key each.")
    key_file: CallersKeyFile | None = Field(None, description="File with an API key alone.")
    key_sha256: KeyDigests = Field(
        [],
        validate_default=True,
        description="SHA-256 of API keys, in hexadecimal; `{sha256: …, expires: 2027-01-31T18:00:00Z}` for one that "
        "expires.",
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
    max_tokens: int = Field(0, ge=0, le=2**31 - 1, description="Most tokens of an answer, and the default.")
    prompt: dict[str, Any] = Field(
        {},
        description="Prompts: `diet` (`off`, `system`, `all`) and `conversation` beyond the context (`whole`, `cut`, "
        "`summarize`).",
    )
    untranslated: Literal["refuse", "omit"] | None = Field(
        None, description="Fields that the model's API lacks ([HTTP](http.md#fields-left-out))."
    )
    check_forms: bool | None = Field(None, description="Whether answers are checked against their `response_format`.")
    tools: Tools = Field([], description="Mesh tools that it may use, as `source/name`: `collections/search_*`.")
    provider: Permissions = Field(
        [], description="[Permissions](http.md#what-needs-permission) for what costs more or stores data at a provider."
    )
    prefix_group: str = Field(
        "", max_length=256, description="Tenants of one group share the prefixes that models have read."
    )
    warm: bool = Field(False, description="Whether models read the gateway's `warm` prompts in advance for it.")
    guard: dict[str, Any] = Field(
        {}, description="Checks of its requests and answers: fields of the gateway's `guard`."
    )
    hits: dict[str, Any] = Field({}, description="Questions that the cache may answer: fields of the gateway's `hits`.")

    @field_validator("key_sha256")
    @classmethod
    def _somebody(cls, digests: list[KeyDigest], info: ValidationInfo) -> list[KeyDigest]:
        if {"key_env", "key_file"} <= info.data.keys() and not (
            digests or info.data["key_env"] or info.data["key_file"]
        ):
            raise ValueError("a key is needed (key_env, key_file or key_sha256): no caller could be this tenant")
        return digests
