"""Budgets of the stages of an answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Self

from pydantic import Field

from services.gateway.settings.group import Group

StageName = Literal["cache", "router", "vision", "audio", "tools", "agent", "guard", "llm"]
LONGEST_MS = 600_000


class StageBudget(Group):
    """How much of the budget a stage may take: a share of the whole, but never more than the cap."""

    share: float = Field(gt=0, le=1, description="Share of the whole budget.")
    cap_ms: float = Field(gt=0, le=LONGEST_MS, description="The most it gets, in milliseconds.")


class StageBudgets(Group):
    """The budgets of the stages. The model gets at least what the stages before it leave, and all that they save."""

    cache: StageBudget = StageBudget(share=0.2, cap_ms=200)
    router: StageBudget = StageBudget(share=0.05, cap_ms=10)
    vision: StageBudget = StageBudget(share=0.25, cap_ms=1_000)
    audio: StageBudget = StageBudget(share=0.5, cap_ms=20_000)
    tools: StageBudget = StageBudget(share=0.3, cap_ms=5_000)
    agent: StageBudget = StageBudget(share=0.5, cap_ms=60_000)
    guard: StageBudget = StageBudget(share=0.1, cap_ms=50)
    llm: StageBudget = StageBudget(share=1, cap_ms=LONGEST_MS)

    def capped(self, caps_ms: Mapping[StageName, float]) -> Self:
        """These with other caps for some stages."""
        changed: dict[str, StageBudget] = {
            name: getattr(self, name).model_copy(update={"cap_ms": cap}) for name, cap in caps_ms.items()
        }
        return self.model_copy(update=changed)


class TargetSettings(Group):
    """Latency targets of a stage, in milliseconds. 0: none."""

    p50_ms: float = Field(0, ge=0, description="Half of the requests are faster.")
    p95_ms: float = Field(0, ge=0, description="95 of 100 are faster.")
    p99_ms: float = Field(0, ge=0, description="99 of 100 are faster.")
