"""The base of groups of settings, and the profiles: sets of defaults under one name. An operator's settings override
the profile's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource

from services.runtime import limits, yaml_file

Profile = Literal["latency", "transparent"]
DEFAULT: Profile = "latency"
LONGEST_MS = 600_000  # the timeout of OpenAI's clients
# By profile: defaults that differ from those of the fields.
PROFILES: Mapping[Profile, Mapping[str, Any]] = {
    "latency": {},
    "transparent": {
        "default_budget_ms": LONGEST_MS,
        "max_budget_ms": LONGEST_MS,
        "hits": {"others": "off"},
        "prompt": {"diet": "off", "whole": True},
        "response_format": {"check": False},
        # A provider limits its concurrent calls itself: it refuses further ones, and the limit adapts to that.
        "limit": {"initial": 200, "max": 1_000, "queue_ms": 8_000},
        # An answer in one piece, or after hidden reasoning, begins when it is complete.
        "breaker": {"slow_ms": 120_000},
        "http": {"silence_ms": 120_000},
        # A guard that has no time for a long conversation would refuse it.
        "stage_caps_ms": {"guard": 30_000},
        "max_messages": limits.LONG_MESSAGES,
        "max_content_bytes": limits.LONG_CONTENT_BYTES,
    },
}


class Group(BaseModel):
    """Settings that are given together."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _with_words(cls, given: Any) -> Any:
        return yaml_file.with_words(cls, given)


class OfProfile(PydanticBaseSettingsSource):
    """The defaults of the profile that is named in a source of higher priority."""

    def __init__(self, settings: type[BaseSettings]):
        super().__init__(settings)

    def get_field_value(self, field: Any, field_name: str) -> tuple[Any, str, bool]:
        raise AssertionError("not used: a profile is read as a whole")

    def __call__(self) -> dict[str, Any]:
        return dict(PROFILES.get(self.current_state.get("profile", DEFAULT), {}))  # pydantic refuses other names
