"""What groups of settings have in common."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Group(BaseModel):
    """Settings that are given together."""

    model_config = ConfigDict(extra="forbid", frozen=True)
