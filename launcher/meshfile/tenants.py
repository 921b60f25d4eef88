"""What may stand in a mesh file of its tenants."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from launcher.meshfile.fields import Digests, KeyFile, KeyNames, Permission
from launcher.meshfile.models import Section


class Tenant(Section):
    """Who may call, and what it may have; 0: no limit. Its API keys are never in the file."""

    key_env: KeyNames = Field([], description="Environment variables that hold an API key of its, one or several.")
    key_file: KeyFile | None = Field(None, description="A file that holds one, and nothing else.")
    key_sha256: Digests = Field(
        [], validate_default=True, description="SHA-256 of keys, in hexadecimal, one or several."
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
    max_tokens: int = Field(0, ge=0, description="The most tokens of an answer, also where a request does not say.")
    prompt: dict[str, Any] = Field(
        {},
        description="What becomes of its prompts: `diet` (`off`, `system`, `all`) and `conversation` (`whole`, `cut`, "
        "`summarize`: one longer than the context). Without it, as the gateway's setting `prompt` has it.",
    )
    untranslated: Literal["refuse", "omit"] | None = Field(
        None,
        description="What becomes of a field that the model's API does not have "
        "([HTTP](http.md#fields-left-out)). Without it, as the gateway's setting `untranslated` has it.",
    )
    check_forms: bool | None = Field(
        None, description="Whether its answers are held to their `response_format` where a request does not say it."
    )
    tools: list[Annotated[str, Field(pattern=r"^(\*|[A-Za-z0-9_*?-]+/.+)$")]] = Field(
        [], description="The tools of the mesh that it may use, as `source/name`, also with `*`."
    )
    provider: tuple[Permission, ...] = Field(
        (),
        description="What its requests may have a provider do beyond the answer: what costs more, or is kept or read "
        "there ([HTTP](http.md#what-needs-permission)).",
    )
    prefix_group: str = Field(
        "", max_length=256, description="Tenants with the same name here share what models have read of prompts."
    )
    warm: bool = Field(
        False, description="Whether models read the prompts of the gateway's setting `warm` for it before it asks."
    )
    guard: dict[str, Any] = Field(
        {}, description="What is looked for in its requests and answers: fields of the gateway's setting `guard`."
    )
    hits: dict[str, Any] = Field(
        {}, description="Which of its questions the cache may answer: fields of the gateway's setting `hits`."
    )

    @field_validator("key_sha256")
    @classmethod
    def _somebody(cls, digests: list[str], info: ValidationInfo) -> list[str]:
        if {"key_env", "key_file"} <= info.data.keys() and not (
            digests or info.data["key_env"] or info.data["key_file"]
        ):
            raise ValueError("a key is needed (key_env, key_file or key_sha256): nobody could be this tenant")
        return digests
