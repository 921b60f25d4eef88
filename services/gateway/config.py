"""Settings of the gateway. Those of one area, such as `hedge`, are in `settings/`."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from services.gateway.cache_eligibility.settings import DEFAULT_HITS, HitSettings
from services.gateway.settings.answer_time import Timed
from services.gateway.settings.generation import (
    BreakerSettings,
    CascadeSettings,
    ExpectedSettings,
    HedgeSettings,
    JudgeSettings,
    LimitSettings,
    RetrySettings,
)
from services.gateway.settings.group import DEFAULT, OfProfile, Profile
from services.gateway.settings.guard import UNGUARDED, GuardSettings
from services.gateway.settings.prompt import PromptSettings, SystemPromptSettings, WarmSettings
from services.gateway.settings.response_format import ConstraintSettings
from services.gateway.settings.serving import Address, Addresses, KeptSettings, ShedSettings
from services.gateway.settings.tenants import TenantSettings
from services.gateway.settings.tools import ToolSettings
from services.runtime import limits
from services.runtime.process.config import ServiceSettings, is_loopback
from services.runtime.process.fixed import Fixed
from services.runtime.security.secrets import Url, shown
from services.runtime.shared_state import RedisUrl

KEY_WANTED = "a key of a tenant (in `tenants` or `tenants_file`)"
Method = Literal["embeddings", "rerank", "moderations"]
TEMPLATE = "I could not finish this answer in time. Please ask again."


class GatewaySettings(Timed):
    """Settings of the gateway."""

    model_config = SettingsConfigDict(env_prefix="HEDGEROW_GATEWAY_")

    profile: Profile = Field(DEFAULT, description="Defaults of other settings (docs/mesh-file.md#profiles).")
    untranslated: Literal["refuse", "omit"] = Field(
        "refuse", description="Treatment of [fields that the model's API lacks](http.md#fields-left-out)."
    )
    cache_address: str = Field(
        "127.0.0.1:50051",
        description="The cache service, also as xds:///name or ipv4:host:port,host:port. Empty: none.",
    )
    router_address: str = Field(
        "127.0.0.1:50052", description="The router, also as xds:///name or a list. Empty: none."
    )
    vision_address: str = Field("", description="The vision service, likewise. Empty: pictures are refused.")
    audio_address: str = Field(
        "", description="The audio service, likewise. Empty: recordings and conversations are refused."
    )
    stage_addresses: dict[str, Address] = Field(
        {}, description="Services of stages that add context: {stage: host:port}, also xds:///name."
    )
    llm_addresses: dict[str, Addresses] = Field(
        description="Addresses of each model's llm services: {name: host:port, name: [host:port, …]}, or xds:///name.",
        min_length=1,
    )
    serves: dict[str, tuple[Method, ...]] = Field(
        {}, description="Models of `llm_addresses` that do not chat: {name: [embeddings, rerank, moderations]}."
    )
    ready_wait_ms: Fixed[int] = Field(
        5_000, ge=0, description="At start, how long to wait for the router's first table."
    )
    l1_cache_entries: Fixed[int] = Field(
        10_000, ge=0, description="The most exact answers kept in the gateway. 0: none."
    )
    l1_cache_bytes: int = Field(67_108_864, ge=0, description="Memory for exact answers in each worker. 0: none.")
    write_behind_bytes: Fixed[int] = Field(
        33_554_432,
        ge=0,
        description="The most bytes, in each worker, of answers that wait for the cache to keep them, with their "
        "questions. When it is full, the oldest of the tenant that has the most is not kept.",
    )
    l1_cache_ttl_ms: Fixed[int] = Field(
        30_000,
        ge=1,
        description="How long an exact answer is kept here before the cache, which evicts unused ones, is asked again.",
    )
    max_messages: int = Field(256, ge=1, description="Most messages of a conversation.")
    max_content_bytes: int = Field(limits.CONTENT_BYTES, ge=1, description="Largest size of all messages together.")
    prompt: PromptSettings = Field(PromptSettings(), description="Changes of prompts before a model reads them.")
    judge: JudgeSettings = Field(
        JudgeSettings(), description="The judge of the stored answers that a cache with a `verify_share` draws."
    )
    cascade: CascadeSettings = Field(CascadeSettings(), description="When a fast model's answer will do.")
    guard: GuardSettings = Field(
        UNGUARDED, description="What is looked for in requests and answers of all tenants; one may have its own."
    )
    hits: HitSettings = Field(
        DEFAULT_HITS, description="Which questions the cache may answer, and how; a tenant may have its own."
    )
    kept: KeptSettings = Field(KeptSettings(), description="Answers that outlast the connection of their client.")
    tools: ToolSettings = Field(ToolSettings(), description="The tools that the mesh itself calls.")
    system_prompts: dict[str, SystemPromptSettings] = Field(
        {}, description="System prompts by the name that requests use."
    )
    warm: WarmSettings = Field(WarmSettings(), description="System prompts that models read in advance.")
    response_format: ConstraintSettings = Field(ConstraintSettings(), description="What answers may be constrained to.")
    max_images: Fixed[int] = Field(64, ge=1, le=64, description="Most pictures: what the vision service takes.")
    max_images_bytes: int = Field(limits.PICTURES_BYTES, ge=1, description="Largest size of all pictures together.")
    labels_per_image: int = Field(3, ge=1, le=100, description="Most labels of a picture for models without vision.")
    image_note: str = Field(
        "",
        max_length=1_000,
        pattern=r"^$|\{labels\}",
        description="Text of a picture for models without vision: `image: {labels}`. Empty: an English sentence.",
    )
    conversation_turns: Fixed[int] = Field(
        100,
        ge=1,
        le=100,
        description="How many earlier turns of a spoken conversation go along with a question, as far as the model's "
        "context holds them.",
    )
    conversation_idle_ms: Fixed[int] = Field(
        20_000,
        ge=100,
        le=3_600_000,
        description="The longest time without audio in a spoken conversation, which then ends; below the audio "
        "service's own `idle_timeout_ms`.",
    )
    conversation_queue_bytes: Fixed[int] = Field(
        262_144,
        ge=1_024,
        description="The most bytes of a conversation's audio that wait here for the audio service (8 s at 16 kHz, "
        "16 bit); a client that sends faster is held back. One message of any size may wait alone.",
    )
    tenant_queue_bytes: Fixed[int] = Field(
        4_194_304, ge=1_024, description="The same limit for all conversations of one tenant together."
    )
    max_batch: Fixed[int] = Field(64, ge=1, description="The most requests a batch may have.")
    tenants: dict[str, TenantSettings] = Field({}, description="Keys, quotas and settings of each tenant by name.")
    tenants_file: Path | None = Field(None, description="YAML file in addition to `tenants`; changes are followed.")
    edge_tokens: bool = Field(
        False, description="Admit the tenants of tokens that the edge has verified. Needs a `tls_dir`."
    )
    allow_anonymous: bool = Field(
        False,
        validate_default=True,
        description="Start beyond loopback without keys; every caller is then the tenant `local`.",
    )
    trust_traceparent: bool = Field(
        False,  # so that no caller fills the store of traces
        description=ServiceSettings.model_fields["trust_traceparent"].description,
    )
    redis_url: RedisUrl = Url("")
    redis_timeout_ms: Fixed[float] = Field(
        100,
        ge=1,
        le=10_000,
        description="The longest Redis may take to answer; then each gateway decides for itself until it is back.",
    )
    quota_lease_ms: Fixed[int] = Field(
        10_000,
        ge=100,
        le=600_000,
        description="With `redis_url`: when the slots that a gateway holds for its tenants' requests are released "
        "after it was killed.",
    )
    hedge: HedgeSettings = Field(HedgeSettings(), description="Second calls for late first texts.")
    retry: Fixed[RetrySettings] = Field(RetrySettings(), description="Another call for a failed one.")
    breaker: BreakerSettings = Field(BreakerSettings(), description="When a backend gets no more calls.")
    expected: Fixed[ExpectedSettings] = Field(ExpectedSettings(), description="How long backends usually need.")
    limit: LimitSettings = Field(LimitSettings(), description="How many calls a model gets at once.")
    shed: Fixed[ShedSettings] = Field(ShedSettings(), description="Which requests are refused first under load.")
    fallbacks: tuple[Literal["stale", "smaller", "template"], ...] = Field(
        ("stale", "smaller", "template"), description="Replacements of a late or broken model, in order."
    )
    template: str = Field(
        TEMPLATE, min_length=1, description="The fixed text. It never replaces an answer with a required form."
    )

    @classmethod
    def settings_customise_sources(
        cls, settings_cls: type[BaseSettings], *sources: PydanticBaseSettingsSource, **named: PydanticBaseSettingsSource
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (*super().settings_customise_sources(settings_cls, *sources, **named), OfProfile(settings_cls))

    @field_validator("llm_addresses")
    @classmethod
    def _one_list(cls, models: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
        listed = [address for addresses in models.values() for address in addresses if address.startswith("xds:")]
        for model, addresses in models.items():
            if len(addresses) > 1 and addresses[0] in listed:
                raise ValueError(f"{model}: addresses, or one xds:///name, got both or several")
            if listed.count(addresses[0]) > 1:
                raise ValueError(f"{model}: an xds:///name of its own, got {addresses[0]}, which another model has")
        return models

    @field_validator("serves")
    @classmethod
    def _others_chat(cls, serves: dict[str, tuple[Method, ...]], info: ValidationInfo) -> dict[str, tuple[Method, ...]]:
        models = info.data.get("llm_addresses", {})
        if unknown := next((name for name in serves if name not in models), ""):
            raise ValueError(f"models of `llm_addresses`, got {shown(unknown)}")
        if none := next((name for name, methods in serves.items() if not methods), ""):
            raise ValueError(f"{none}: embeddings, rerank or moderations, got none")
        if models and serves.keys() >= models.keys():
            raise ValueError(f"a model that chats is needed: {', '.join(serves)} serves other requests alone")
        return serves

    @field_validator("warm")
    @classmethod
    def _kept_prompts(cls, warm: WarmSettings, info: ValidationInfo) -> WarmSettings:
        kept = info.data.get("system_prompts", {})
        if unknown := next((name for name in warm.prompts if name != "*" and name not in kept), ""):
            known = ", ".join(kept) or "none"
            raise ValueError(f"prompts: `*`, or one of {known} (`system_prompts`), got {shown(unknown)}")
        return warm

    @field_validator("edge_tokens")
    @classmethod
    def _tokens_are_proven(cls, wanted: bool, info: ValidationInfo) -> bool:
        if wanted and not info.data.get("tls_dir"):
            raise ValueError(
                "`edge_tokens` requires `tls_dir`: plaintext connections cannot authenticate the edge proxy"
            )
        return wanted

    @field_validator("allow_anonymous")
    @classmethod
    def _closed_by_default(cls, allowed: bool, info: ValidationInfo) -> bool:
        """Checks the settings alone; the tenants' file is checked when it is read."""
        given = info.data
        if allowed and given.get("edge_tokens"):
            raise ValueError("false with `edge_tokens`, which admits no caller without a token")
        keys = any(tenant.keys for tenant in given.get("tenants", {}).values())
        known = keys or given.get("tenants_file") or given.get("edge_tokens")
        addresses = [given.get("address", ""), *filter(None, [given.get("http_address")])]
        beyond = next((address for address in addresses if not is_loopback(address)), "")
        if beyond and not (allowed or known):
            raise ValueError(f"{KEY_WANTED}, or true, to serve beyond loopback, at {shown(beyond)}")
        return allowed

    @cached_property
    def breakers(self) -> BreakerSettings:
        """The settings of `breaker`; those that were not given follow from other settings."""
        slow_ms = self.breaker.slow_ms or self.default_budget_ms / 3
        return self.breaker.model_copy(update={"slow_ms": slow_ms})

    @property
    def keeps(self) -> KeptSettings:
        """The settings of `kept`; those that were not given follow from other settings."""
        return self.kept.model_copy(update={"ms": self.kept.ms or self.default_budget_ms})

    @cached_property
    def chat_models(self) -> tuple[str, ...]:
        """The names of the models that chat."""
        return tuple(name for name in self.llm_addresses if name not in self.serves)

    def models_of(self, method: Method) -> tuple[str, ...]:
        """The names of the models that serve `method`."""
        return tuple(name for name, methods in self.serves.items() if method in methods)

    @property
    def anonymous(self) -> bool:
        """Whether every caller that can connect is admitted while no tenant has a key."""
        served = filter(None, (self.address, self.http_address))
        return not self.edge_tokens and (self.allow_anonymous or all(map(is_loopback, served)))
