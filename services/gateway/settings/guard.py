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
        0.85, gt=0, lt=1, description="From which probability on the classifier's word counts, beside its patterns."
    )
    secrets: Literal["off", "mask", "refuse"] = Field(
        "off",
        description="Keys, tokens and passwords in requests: `mask` them in what models read. Such a request is "
        "neither looked up in the cache nor stored, and shares no generation.",
    )
    personal: Literal["off", "mask", "refuse"] = Field(
        "off",
        description="The same for personal data: addresses of mail, telephone numbers, cards, bank accounts, national "
        "identity numbers.",
    )
    also: tuple[Literal["system", "prefix", "tools"], ...] = Field(
        (),
        description="Which other texts the guard looks through, as JSON: `system` messages, the `prefix` that an "
        "answer continues, the descriptions and parameters of `tools`. Without it they count as the "
        "application's own words.",
    )
    answer_secrets: Literal["off", "mask", "end"] = Field(
        "off", description="Keys, tokens and passwords in answers: `mask` them, or `end` the answer before them."
    )
    answer_personal: Literal["off", "mask", "end"] = Field("off", description="The same for personal data.")
    denied_phrases: tuple[str, ...] = Field(
        (), max_length=denied.MOST, description="What answers may not say, however it is capitalized: whole words."
    )
    denied_patterns: tuple[str, ...] = Field(
        (),
        max_length=denied.MOST,
        description=f"The same as regular expressions with matches of at most {denied.WIDEST} characters, that look at "
        "nothing around them.",
    )
    answer_denied: Literal["mask", "end"] = Field("mask", description="What becomes of what is denied.")
    pattern_ms: Fixed[float] = Field(
        5, gt=0, le=1_000, description="The longest that one denied pattern may look at a time."
    )
    late: Literal["open", "closed"] = Field(
        "closed",
        description="What a guard does that is not done within its slice (`stage_caps_ms`), or a denied pattern that "
        "looks for longer than 5 ms at a time: `open` lets the request or answer pass, which is then marked; `closed` "
        "refuses the one and ends the other.",
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
