"""Prompts, the system prompts that the gateway keeps, and which of them models have read before."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from services.gateway.settings.group import Group
from services.runtime.process.fixed import Fixed


class PromptSettings(Group):
    """Changes of prompts before a model reads them. A request may ask for fewer."""

    diet: Literal["off", "system", "all"] = Field(
        "system", description="Which messages are compressed: system messages, or the user's too."
    )
    whole: bool = Field(
        False, description="Leave a conversation beyond the model's context as it is, or else shorten it."
    )
    diet_from_bytes: Fixed[int] = Field(500, ge=1, description="Prompts from this size on.")
    diet_to_bytes: Fixed[int] = Field(
        16_384, ge=0, le=65_536, description="The most of a prompt's messages; those after it stay as they are."
    )
    max_examples: Fixed[int] = Field(4, ge=0, description="Examples a message keeps, one of each answer first. 0: all.")
    reserved_tokens: Fixed[int] = Field(
        256, ge=1, description="Kept of a context for an answer without `max_tokens`; half of it at most."
    )
    summary_model: str = Field("", description="The model that summarizes dropped turns. Empty: none.")
    summary_tokens: Fixed[int] = Field(128, ge=1, le=4_096, description="The most tokens of a summary.")
    summary_ms: Fixed[int] = Field(10_000, ge=1, le=600_000, description="The longest that a summary may take.")


class SystemPromptSettings(Group):
    """A system prompt that requests name, in variants by how hard a question looks."""

    version: str = Field("1", min_length=1, max_length=64, description="Version in the report of each answer.")
    default: str = Field(min_length=1, description="Text for questions of no class and for missing variants.")
    simple: str = Field("", description="Text for simple questions.")
    complex: str = Field("", description="Text for complex questions.")
    max_tokens: int = Field(1_000, ge=1, description="Largest variant, at 4 bytes a token.")

    @model_validator(mode="after")
    def _within_its_length(self) -> Self:
        for name in ("default", "simple", "complex"):
            tokens = -(-len(getattr(self, name).encode()) // 4)
            if tokens > self.max_tokens:
                raise ValueError(f"{name}: at most {self.max_tokens} tokens, got about {tokens}")
        return self


class WarmSettings(Group):
    """System prompts that models read in advance, so that an engine's prefix cache has them.

    Off unless it names some: to read a prompt is work for an engine, and costs money at a provider.
    """

    prompts: tuple[str, ...] = Field((), description="`system_prompts` that models read in advance; `*`: all.")
    tiers: tuple[Literal["fast", "balanced", "quality"], ...] = Field(
        ("fast", "balanced", "quality"), min_length=1, description="Tiers whose models read them."
    )
    every_ms: Fixed[int] = Field(
        240_000,
        ge=0,
        le=86_400_000,
        description="Interval between readings, below the five minutes that providers keep a prefix. 0: once for each "
        "replica, and again when it returns.",
    )
