"""Settings of the guard."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from services.gateway.guard import denied
from services.gateway.settings.group import Group
from services.runtime.process.fixed import Fixed


class GuardSettings(Group):
    """Checks of requests and answers. A request may be stricter, never milder."""

    injection: Literal["off", "note", "refuse"] = Field(
        "off", description="Prompt injections in users' messages and tools' results; `note` only reports them."
    )
    injection_score: float = Field(
        0.85, gt=0, lt=1, description="Probability from which the classifier finds an injection."
    )
    secrets: Literal["off", "mask", "refuse"] = Field(
        "off", description="Keys, tokens and passwords in requests: `mask` replaces them in prompts."
    )
    personal: Literal["off", "mask", "refuse"] = Field("off", description="The same for personal data.")
    also: tuple[Literal["system", "prefix", "tools"], ...] = Field(
        (), description="Further texts that the guard checks: `system`, `prefix`, `tools`."
    )
    answer_secrets: Literal["off", "mask", "end"] = Field(
        "off", description="As `secrets`, in answers; `end` ends the answer."
    )
    answer_personal: Literal["off", "mask", "end"] = Field("off", description="As `personal`, in answers.")
    denied_phrases: tuple[str, ...] = Field(
        (), max_length=denied.MOST, description="Phrases that answers must not contain: whole words in any case."
    )
    denied_patterns: tuple[str, ...] = Field(
        (),
        max_length=denied.MOST,
        description=f"The same as regular expressions with matches of at most {denied.WIDEST} characters and without "
        "lookaround.",
    )
    answer_denied: Literal["mask", "end"] = Field(
        "mask", description="Treatment of denied phrases and patterns in an answer."
    )
    pattern_ms: Fixed[float] = Field(
        5, gt=0, le=1_000, description="Longest time of one search for one denied pattern."
    )
    late: Literal["open", "closed"] = Field(
        "closed",
        description="After a late guard: `open` lets text pass, `closed` refuses the request or ends the answer.",
    )

    @field_validator("denied_phrases")
    @classmethod
    def _phrases(cls, phrases: tuple[str, ...]) -> tuple[str, ...]:
        denied.check_phrases(phrases)
        return phrases

    @field_validator("denied_patterns")
    @classmethod
    def _patterns(cls, patterns: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in patterns:
            denied.check_pattern(pattern)
        return patterns

    @property
    def off(self) -> bool:
        """Whether there is nothing to look for."""
        asks = self.injection == self.secrets == self.personal == "off"
        screens = self.answer_secrets == self.answer_personal == "off"
        return asks and screens and not (self.denied_phrases or self.denied_patterns)


UNGUARDED = GuardSettings()
