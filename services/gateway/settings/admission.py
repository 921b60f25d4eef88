"""Which requests are refused under load, and which answers are kept."""

from __future__ import annotations

from pydantic import Field

from services.gateway.settings.group import Group
from services.runtime.process.fixed import Fixed


class ShedSettings(Group):
    """Which requests are refused first when it gets full. Score: premium +100, real-time +75, each repeat -50."""

    load: float = Field(
        0.85, gt=0, le=1, description="From this load on, low scores are shed. 1 is all places and the queue."
    )
    score: int = Field(50, description="Scores below this are low.", ge=-10_000, le=10_000)
    lag_ms: float = Field(50, gt=0, le=10_000, description="An event loop that runs this late is a load of 1.")
    cpu: float = Field(0.95, gt=0, le=64, description="Cores the process may use before its lag counts.")
    retry_after_ms: float = Field(1_000, ge=1, le=600_000, description="The least delay in a refusal.")


class KeptSettings(Group):
    """Answers with an `idempotency_key`, which outlast the connection of their client."""

    ms: int = Field(
        30_000,
        ge=1,
        le=3_600_000,
        description="Time for which an answer with an `idempotency_key` runs without a client, and is kept when "
        "complete.",
    )
    bytes: Fixed[int] = Field(
        67_108_864,
        ge=0,
        description="The most bytes they take, in each worker. When it is full, the tenant that has the most gives up "
        "its oldest one: whole ones without a client first, then those under way without a client, which end, then "
        "those that a client reads, which go on and are not kept.",
    )
