"""How models are called: hedges, retries, breakers, limits, and which model answers."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from services.gateway.settings.group import Group
from services.runtime.process.fixed import Fixed


class HedgeSettings(Group):
    """A second call where the first text is late; the first text wins and the other call is cancelled."""

    mode: Literal["adaptive", "fixed", "tied", "off"] = Field(
        "adaptive",
        description="Time of a second call: `adaptive` after a percentile of recent first-token times, `fixed` "
        "after `delay_ms`, `tied` at once.",
    )
    percentile: Fixed[float] = Field(95, gt=0, lt=100, description="For `adaptive`: after which percentile.")
    delay_ms: float = Field(150, ge=0, le=60_000, description="For `fixed`: time to wait for the first text.")
    min_samples: Fixed[int] = Field(
        100,
        ge=1,
        description="For `adaptive`: where there are fewer in the window, those of the last ten minutes count, or what "
        "is expected.",
    )
    window_s: Fixed[float] = Field(
        60, gt=0, le=3_600, description="For `adaptive`: age of the first-token times that count."
    )
    max_share: float = Field(
        0.05, ge=0, le=1, description="Most second calls as a share of requests, and 10 more in a short run."
    )
    burst: Fixed[float] = Field(10, ge=1, description="The most second calls at once, saved up in quiet times.")
    across_models: bool = Field(False, description="Whether another model may take the second call.")


class RetrySettings(Group):
    """Another call where the first was UNAVAILABLE, throttled or silent before its first text."""

    max_share: float = Field(
        0.2,
        ge=0,
        le=1,
        description="The most retries, as a share of all requests, and `burst` more in a short run or after a start.",
    )
    burst: float = Field(10, ge=1, description="The most retries at once: at the start, or saved up in quiet times.")
    base_ms: float = Field(5, ge=0, le=10_000, description="Backoff before the retry: a random time up to this.")


class ExpectedSettings(Group):
    """The baseline of each backend until it has answered often enough: a call with less time and no answer is no
    sample. A router's table overrides it for models."""

    cache_ms: float = Field(50, gt=0, le=600_000, description="For a lookup.")
    vision_ms: float = Field(250, gt=0, le=600_000, description="For the pictures of a request.")
    audio_ms: float = Field(5_000, gt=0, le=600_000, description="For a recording.")
    tool_ms: float = Field(500, gt=0, le=600_000, description="For a call of a tool.")
    first_text_ms: float = Field(
        300, gt=0, le=600_000, description="For a model's first text; also when to hedge while little is known."
    )


class BreakerSettings(Group):
    """When a backend gets no more calls, and when it is tried again."""

    window_s: Fixed[float] = Field(10, gt=0, le=600, description="How far back calls count, in seconds.")
    min_calls: Fixed[int] = Field(5, ge=1, description="Fewer calls than this say nothing yet.")
    in_a_row: Fixed[int] = Field(5, ge=1, description="Failures in a row that open it at once.")
    failure_rate: Fixed[float] = Field(0.5, gt=0, le=1, description="Share of failed calls that opens it.")
    slow_rate: Fixed[float] = Field(0.9, gt=0, le=1, description="Share of slow calls that opens it.")
    slow_ms: Fixed[float | None] = Field(
        None,
        gt=0,
        description="Time to the first text from which a call is slow; nine slow calls of ten open the breaker. None: "
        "a third of `default_budget_ms`.",
    )
    open_ms: Fixed[float] = Field(
        1_000, gt=0, le=600_000, description="How long it stays open before one call may probe."
    )

    @property
    def slow_s(self) -> float:
        """The time to the first text from which a call is slow, in seconds."""
        return (self.slow_ms or 10_000) / 1000


class LimitSettings(Group):
    """The concurrency limit of a model, and the waits for it."""

    algorithm: Literal["gradient2", "aimd", "fixed"] = Field(
        "gradient2", description="How the limit follows first-token and queue times; `fixed` stays at `initial`."
    )
    initial: int = Field(20, ge=1, le=10_000, description="Calls in flight at the start.")
    min: int = Field(10, ge=1, le=10_000, description="Lowest limit.")
    max: int = Field(200, ge=1, le=10_000, description="Highest limit.")
    queue: Fixed[int] = Field(100, ge=0, le=10_000, description="Requests that may wait for a slot.")
    queue_ms: float = Field(200, ge=0, le=60_000, description="Longest wait for a slot; then the request is shed.")
    batch_share: Fixed[float] = Field(
        0.5,
        gt=0,
        le=1,
        description="The most of a model's slots for batch items, while no interactive request waits and the load "
        "is below `shed.load`.",
    )
    batch_share_beside: Fixed[float] = Field(
        0.1, gt=0, le=1, description="The same after an interactive request in the last 5 s; at least one slot."
    )


class CascadeSettings(Group):
    """When a fast model's answer will do, where a request asks for a cascade."""

    min_mean_logprob: Fixed[float] = Field(
        -0.3,
        ge=-100,
        le=0,
        description="Least mean log-probability of the fast model's tokens, for requests that name none.",
    )


class JudgeSettings(Group):
    """The judge of stored answers that a cache with a `verify_share` draws."""

    model: str = Field("", description="The model that judges stored answers. Empty: that of the quality tier.")
    at_once: Fixed[int] = Field(
        4,
        ge=0,
        description="How many stored answers are judged at once; further ones are dropped. 0: none. A tenant may have "
        "as many as are free, so one alone has half.",
    )
    ms: Fixed[int] = Field(
        10_000,
        ge=1,
        le=600_000,
        description="The longest that a judgement may take, the wait for a spare slot included.",
    )
