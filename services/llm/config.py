"""Settings of the llm service."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic_settings import SettingsConfigDict

from hedgerow.engines import ENGINES, NAME_PATTERN
from services.llm.providers.config import AnthropicSettings, OpenAISettings
from services.runtime import limits
from services.runtime.process.config import ServiceSettings
from services.runtime.process.fixed import Fixed


class VllmSettings(BaseModel):
    """vLLM. Every field of vLLM's `AsyncEngineArgs` may be set, under its own name and with its own meaning.

    Those below are read here, too; None leaves vLLM's default. A name or a type unknown to vLLM stops the start.
    `max_model_len`, `dtype` and the others that only vLLM reads have no field here.
    """

    model_config = ConfigDict(extra="allow", frozen=True, protected_namespaces=())

    model: str = Field("", description="Folder of the model, or its name on the hub.")
    enforce_eager: bool | None = Field(
        None, description="Whether the model runs without compilation (docs/engines.md). None: on a CPU."
    )
    speculative_config: dict[str, Any] | None = Field(
        None, description='JSON, for example {"method": "draft_model", "model": "…", "num_speculative_tokens": 4}.'
    )
    max_pixels: Fixed[int] = Field(
        limits.PICTURE_PIXELS, ge=1, description="Largest picture that a model that sees takes."
    )
    tool_parser: str | None = Field(
        None,
        description="vLLM's parser of tool calls, such as `hermes`. Default: by chat template or name. Empty: tools "
        "in text.",
    )
    reasoning_parser: str | None = Field(
        None, description="vLLM's parser of thoughts, such as `qwen3`. None: by chat template or name. Empty: none."
    )
    cpu_kvcache_space_gib: float = Field(1, gt=0, description="On a CPU: memory for the key-value cache.")

    def engine_fields(self) -> dict[str, Any]:
        """Arguments of `AsyncEngineArgs`, unchanged."""
        own = {"max_pixels", "tool_parser", "cpu_kvcache_space_gib"}
        return {name: value for name, value in self.model_dump(exclude=own).items() if value is not None}


class ConstraintSettings(BaseModel):
    """The work that constraints (`response_format`) make for the vLLM engine. Each new one is tried in a process of its
    own before the engine gets it, where vLLM's backend for them is `guidance`, as it is unless
    `vllm.structured_outputs_config` names another."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    cpu_ms: float = Field(
        100, ge=1, le=10_000, description="The most processor time that one may take to make, and its first tokens."
    )
    in_hand: int = Field(4, ge=1, description="New ones of a tenant that are tried or wait for it; more are refused.")
    share: float = Field(0.25, gt=0, description="Cores that a tenant's constraints may take; more are refused.")
    burst_ms: float = Field(500, ge=1, description="Processor time for them that is saved up in quiet times.")


class LlmSettings(ServiceSettings):
    """Settings of the llm service."""

    model_config = SettingsConfigDict(env_prefix="HEDGEROW_LLM_", protected_namespaces=())

    address: str = Field("127.0.0.1:50053", description="Address of gRPC, host:port.")
    max_message_bytes: int = Field(
        limits.MODEL_MESSAGE_BYTES,  # a conversation is here twice where its caller's own words go on
        ge=1024,
        description="Largest message that is accepted.",
    )
    engine: str = Field(
        "vllm",
        pattern=NAME_PATTERN,
        description="What generates: `vllm`, `openai`, `anthropic`, or an engine of your own as "
        "`package.module:function`.",
    )
    model_name: str = Field("", description="Name that callers see. Empty: the last part of the engine's name.")
    identity: str = Field("", max_length=256, description="Identity of the model as in the router's `models`.")
    default_max_tokens: int | None = Field(
        None,
        ge=1,
        le=limits.TOKENS,
        description="Most tokens of an answer whose request names no limit. Empty: the model's; for Anthropic's API "
        "4,096, or half of the context.",
    )
    max_tokens_cap: int | None = Field(
        None, ge=1, le=limits.TOKENS, description="Most tokens of any answer. Empty: the model's limit."
    )
    vllm: VllmSettings = Field(VllmSettings(), description="The vLLM engine's settings.")
    constraints: Fixed[ConstraintSettings] = Field(ConstraintSettings(), description="Bounds of constrained decoding.")
    openai: OpenAISettings = Field(OpenAISettings(), description="The OpenAI-compatible engine's settings.")
    anthropic: AnthropicSettings = Field(AnthropicSettings(), description="The settings of Anthropic's engine.")

    @property
    def _engine_model(self) -> str:
        own = getattr(self, self.engine).model if self.engine in ENGINES else self.engine.partition(":")[0]
        return str(own)

    @property
    def public_name(self) -> str:
        """The name callers see."""
        return self.model_name or PurePath(self._engine_model).name
