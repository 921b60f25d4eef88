"""A plan is data: the stages of an answer, what they wait for, and the slice of the budget each is sure of.

The arithmetic. Stages that wait for nothing start at once, each with the smaller of its cap and its share of the whole.
A stage that waits gets no more than what is left after the slowest stage before it has used its whole slice, so along
any path the slices never add up to more than the budget. Time that a stage does not use is not lost: a stage's real
budget is counted when it starts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StageClaim:
    """A stage and its claim on the budget: `share` of the whole (0 to 1), never more than `cap_ms`."""

    name: str
    share: float
    cap_ms: float
    required: bool = False
    after: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Slice:
    """The guaranteed budget of a stage in milliseconds, and its latest start. However late the stage starts, it ends by
    `ends_ms`."""

    stage: StageClaim
    budget_ms: float
    starts_ms: float
    ends_ms: float


@dataclass(frozen=True, slots=True)
class Plan:
    """The slices of one request, in the order in which they may start. `budget_ms` is the whole; the first text has
    `first_text_ms` of it."""

    budget_ms: float
    slices: tuple[Slice, ...]
    first_text_ms: float = float("inf")

    def __getitem__(self, name: str) -> Slice:
        return next(planned for planned in self.slices if planned.stage.name == name)


def make_plan(
    stages: Sequence[StageClaim], budget_ms: float, *, floor_share: float = 0.0, first_text_ms: float = float("inf")
) -> Plan:
    """Split `budget_ms`. `stages` are in dependency order; each `after` names earlier ones. Optional stages end when
    `floor_share` of the budget is left: that much is for what is required."""
    ends: dict[str, float] = {}
    slices = []
    for stage in stages:
        starts = max((ends[name] for name in stage.after), default=0.0)
        end = budget_ms if stage.required else budget_ms * (1 - floor_share)
        granted = max(0.0, min(stage.cap_ms, stage.share * budget_ms, end - starts))
        ends[stage.name] = starts + granted
        slices.append(Slice(stage, granted, starts, end))
    return Plan(budget_ms, tuple(slices), first_text_ms)
