"""The time of an answer, and how its stages divide it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import Field

from services.gateway.settings.group import LONGEST_MS, Group
from services.gateway.settings.serving import Serving
from services.runtime.process.fixed import Fixed

StageName = Literal["cache", "router", "vision", "audio", "tools", "agent", "guard", "llm"]


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


class Timed(Serving):
    """The budget of an answer, and how its stages divide it."""

    default_budget_ms: int = Field(30_000, ge=1, description="Budget of a request that names none.")
    max_budget_ms: int = Field(120_000, ge=1, description="Largest budget; a larger one is reduced to it.")
    transcription_budget_ms: Fixed[int] = Field(
        86_400_000,
        ge=1,
        description="Largest budget of a transcription over HTTP, and its default: a day, because the audio service "
        "has its own limit (`recording_time_factor`).",
    )
    finish_reserve_ms: Fixed[float] = Field(
        10, ge=0, le=1_000, description="Kept back of each budget to send the last event; at most a tenth of it."
    )
    stages: Fixed[StageBudgets] = Field(StageBudgets(), description="The share and the cap of each stage.")
    stage_caps_ms: dict[StageName, Annotated[float, Field(gt=0, le=LONGEST_MS)]] = Field(
        {},
        description='Longest slice of a stage by its name: {"guard": 200}. Otherwise '
        + ", ".join(f"{name} {budget.cap_ms:,.0f}" for name, budget in StageBudgets())
        + ".",
    )
    own_stages: list[str] = Field([], description="Stages of your own, `package.module:Class` (docs/own-stage.md).")
    first_token_budget_ms: int = Field(0, ge=0, description="Longest time to the first text. 0: no limit.")
    kept_share: Fixed[float] = Field(
        0.4,
        ge=0,
        lt=1,
        description="Share of an answer's time that a late first text leaves to another replica or model, where there "
        "is one that is well. 0: none.",
    )
    floor_share: Fixed[float] = Field(
        0.5, ge=0, lt=1, description="Share of the budget that optional stages leave to generation; they are cut to it."
    )
    stall_ms: float = Field(
        10_000,
        ge=0,
        description="Longest silence within an answer; an HTTP answer ends after three times as long. 0: no limit.",
    )
    targets: dict[str, TargetSettings] = Field(
        {},
        description='Latency targets by stage, `ttft`, `usable` or `total`: {"ttft": {"p95_ms": 800}}; also '
        "`p50_ms`, `p99_ms`.",
    )

    @property
    def stage_budgets(self) -> StageBudgets:
        """The budgets of the stages, with the caps that an operator has set."""
        return self.stages.capped(self.stage_caps_ms)

    @property
    def silence_ms(self) -> float:
        """The longest silence after the first text of an answer by HTTP; 0: no limit."""
        return 3 * self.stall_ms if self.http.silence_ms is None else self.http.silence_ms
