"""Settings of providers: HTTP servers of third parties."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationInfo, field_validator

from services.llm.engine import METHODS, Feature
from services.runtime import limits
from services.runtime.process.fixed import Fixed
from services.runtime.security.secrets import HeaderSecret, HttpUrl, Url


class ProviderSettings(BaseModel):
    """Settings of every provider."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    base_url: HttpUrl = Field(Url(""), description="URL up to and including /v1. Empty: the provider's own.")
    api_key: HeaderSecret = Field(SecretStr(""), description="The key. Empty: none is sent.")
    api_key_file: Path | None = Field(None, description="File that holds the key.")
    model: str = Field("", description="The provider's name of the model.")
    context_tokens: int = Field(
        0,
        ge=0,
        le=limits.TOKENS,
        description="Most tokens of prompt and answer together. 0: as the server's list of models says.",
    )
    features: tuple[Feature, ...] = Field((), description="Features of the model; requests for others are refused.")
    extra_headers: dict[str, SecretStr] = Field({}, description="Headers of every request.")
    extra_body: dict[str, Any] = Field({}, description="Fields of every request; they override others.")
    connect_timeout_ms: Fixed[int] = Field(2_000, ge=1, description="Time to open a connection.")
    read_timeout_ms: Fixed[int] = Field(
        600_000, ge=1, description="Longest silence of a provider, where the call has as much time."
    )
    max_connections: int = Field(1_024, ge=1, description="Answers in flight, and connections kept; further ones wait.")
    idle_timeout_ms: Fixed[int] = Field(90_000, ge=1, description="An unused connection is closed after that long.")
    warm_every_ms: Fixed[int] = Field(
        60_000,
        ge=0,
        description="Where it was asked nothing for that long it is asked for its list of models, which costs nothing, "
        "so that a connection is open for the next request; shorter than `idle_timeout_ms`. 0: never.",
    )
    http_version: Literal["1.1", "2"] = Field(
        "1.1", description="1.1: a connection for each answer. 2: one connection for all."
    )
    ca_file: str = Field("", description="PEM file of trusted CAs. Empty: the machine's own.")
    max_event_bytes: Fixed[int] = Field(
        3_145_728,
        ge=1024,
        description="Largest event of a stream, such as a generated picture; a larger one ends the answer. With what "
        "is around it, it fits a message to the gateway.",
    )
    max_answer_bytes: Fixed[int] = Field(
        67_108_864, ge=1024, description="Most bytes of an answer, with all that is around the text; it ends there."
    )

    @field_validator("api_key", "api_key_file")
    @classmethod
    def _one_credential(cls, key: SecretStr | Path | None, info: ValidationInfo) -> SecretStr | Path | None:
        url = info.data.get("base_url")
        if key and url and urlsplit(url.get_secret_value()).username is not None:
            raise ValueError("none together with a `base_url` with a user: both would be the same header")
        if info.field_name == "api_key_file" and key and info.data.get("api_key"):
            raise ValueError("none together with an `api_key`")
        return key

    @field_validator("api_key_file", mode="before")
    @classmethod
    def _empty_is_none(cls, given: object) -> object:
        return given or None

    @field_validator("extra_headers")
    @classmethod
    def _can_be_sent(cls, headers: dict[str, SecretStr]) -> dict[str, SecretStr]:
        for name, value in headers.items():
            if not (name.isascii() and name.replace("-", "").replace("_", "").isalnum()):
                raise ValueError("names of letters, digits, - and _")
            if not value.get_secret_value().isprintable():
                raise ValueError("values without control characters")
        return headers


OpenAIApi = Literal["chat_completions", "responses", "embeddings", "rerank", "moderations"]


class OpenAISettings(ProviderSettings):
    """A server with OpenAI's chat completions, its Responses, or both; or with embeddings, rerank and moderations."""

    apis: tuple[OpenAIApi, ...] = Field(
        (),
        description="APIs of the server (docs/engines.md#providers-by-url). Empty: chat completions, at "
        "api.openai.com also Responses.",
    )

    dialect: Literal["openai", "azure", "openrouter", "gemini"] = Field(
        "openai", description="Address and credential of the provider."
    )
    api_version: str = Field(
        "", description="For `azure` with a `base_url` that ends in /openai. Empty: the API without versions."
    )
    features: tuple[Feature, ...] = Field(
        (Feature.TOOLS, Feature.LOGPROBS, Feature.LOGIT_BIAS),
        description=ProviderSettings.model_fields["features"].description,
    )
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] | None = Field(
        None, description="The provider's field for the most tokens. Empty: by provider and model."
    )

    @field_validator("apis")
    @classmethod
    def _each_once(cls, apis: tuple[OpenAIApi, ...], info: ValidationInfo) -> tuple[OpenAIApi, ...]:
        if len(set(apis)) < len(apis):
            raise ValueError("each API once")
        if 0 < len(METHODS.intersection(apis)) < len(apis):
            raise ValueError("chat_completions and responses, or others: a model that chats has a service of its own")
        if apis[:1] == ("responses",) and Feature.PREFIX in info.data.get("features", ()):
            raise ValueError("not `responses` first with the feature `prefix`: it continues no beginning")
        return apis


class AnthropicSettings(ProviderSettings):
    """A server with Anthropic's Messages API."""

    features: tuple[Feature, ...] = Field(
        (Feature.TOOLS, Feature.IMAGES, Feature.TOP_K),
        description=ProviderSettings.model_fields["features"].description,
    )
    thinking: dict[str, Any] | None = Field(
        None,
        description='Value of `thinking` in requests, such as {"type": "adaptive"}. '
        "Left out after a tool's result, for required calls, and beside limits that the API refuses with it.",
    )

    @field_validator("features")
    @classmethod
    def _has_them(cls, features: tuple[Feature, ...]) -> tuple[Feature, ...]:
        if not {Feature.TOOLS, Feature.IMAGES, Feature.TOP_K}.issuperset(features):
            raise ValueError("tools, images and top_k: the API has no others")
        return features
