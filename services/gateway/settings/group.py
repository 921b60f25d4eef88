"""The base of groups of settings."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Group(BaseModel):
    """Settings that are given together."""

    model_config = ConfigDict(extra="forbid", frozen=True)
