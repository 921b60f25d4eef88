"""The choice of a model: pure rules over a table of models and their live latency.

Every gateway applies them to the table that the router pushes, and the router checks its settings with them
(docs/adr/0007). They belong to neither service, so both may import them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum

from services.runtime.complexity import Complexity, classify
from services.runtime.errors import InvalidInput


class Tier(IntEnum):
    """The class of a model; a tier admits the ones above it. Numbers as in the contracts."""

    UNSPECIFIED = 0
    FAST = 1
    BALANCED = 2
    QUALITY = 3


@dataclass(frozen=True, slots=True)
class Latency:
    """Percentiles in milliseconds; `samples` of 0 says that they are the configured expectation, and a
    percentile is infinite where too many answers were cut to know it."""

    p50_ms: float
    p95_ms: float
    p99_ms: float
    samples: int = 0


@dataclass(frozen=True, slots=True)
class Model:
    """A row of the table. `context_tokens` of 0: not known. `failure_rate` is the share of recent requests that failed,
    0 to 1; `sees`: whether the model has vision. A price of the provider's cache that is None is that of other prompt
    tokens."""

    name: str
    tier: Tier
    context_tokens: int
    prompt_usd_per_mtok: float
    completion_usd_per_mtok: float
    ttft: Latency
    total: Latency
    failure_rate: float = 0.0
    sees: bool = False
    cached_prompt_usd_per_mtok: float | None = None
    cache_write_usd_per_mtok: float | None = None
    identity: str = ""  # what it is beside its name

    def cost_usd(self, prompt_tokens: int, completion_tokens: int, cached: int = 0, written: int = 0) -> float:
        """Of the prompt's tokens, `cached` were read from a provider's cache and `written` to it."""
        plain, read, write = self.prompt_usd_per_mtok, self.cached_prompt_usd_per_mtok, self.cache_write_usd_per_mtok
        millionths = prompt_tokens * plain + completion_tokens * self.completion_usd_per_mtok
        millionths += cached * (0 if read is None else read - plain)
        millionths += written * (0 if write is None else write - plain)
        return millionths / 1e6


@dataclass(frozen=True, slots=True)
class Demand:
    """The requirements of a question. `max_tokens` of 0 is not known; `max_cost_usd` of None has no limit. `answers`:
    how many it wants of one call. `pictures`: whether it takes a model with vision."""

    tier: Tier
    question: str
    budget_ms: float
    prompt_tokens: int
    max_tokens: int = 0
    max_cost_usd: float | None = None
    answers: int = 1
    pictures: bool = False


@dataclass(frozen=True, slots=True)
class Choice:
    """The chosen model, others to try if it fails (best first), and the reason."""

    model: str
    alternatives: tuple[str, ...]
    complexity: Complexity
    fallback: bool
    reason: str


_BROKEN = 0.5  # a model that fails more often than this comes after all others


_LABELS = {
    (tier, complexity): f"{tier.name.lower()}{f' ({complexity.name.lower()})' if complexity else ''}"
    for tier in Tier
    for complexity in Complexity
}


def rank(models: Iterable[Model]) -> list[Model]:
    """The models, fastest first; models that fail more often than they answer come last."""
    return sorted(models, key=lambda model: (model.failure_rate > _BROKEN, model.total.p50_ms))


def choose(ranked: Sequence[Model], demand: Demand) -> Choice:
    """The fastest model that meets tier, budget, context length and cost. Where none does, the fastest of the others,
    with `fallback` set.

    A model meets a budget when at least 95 of 100 recent answers were complete within it. An answer that an earlier
    budget has cut counts as longer than that budget (`services/router/table.py`). `ranked` comes from `rank` and is
    not empty. Raises `InvalidInput` where no model is within the cost, which is a hard limit.
    """
    ranked = affordable(ranked, demand)
    complexity, tier = Complexity.UNSPECIFIED, demand.tier
    if tier is Tier.UNSPECIFIED:
        complexity = classify(demand.question)
        tier = max(model.tier for model in ranked) if complexity is Complexity.COMPLEX else Tier.FAST
    missing = {model.name: _shortfall(model, tier, demand) for model in ranked}
    fitting = [model for model in ranked if not missing[model.name]]
    # The context is a hard limit too: a model that cannot hold the prompt is no fallback while another one can.
    standing_in = [model for model in ranked if missing[model.name] not in ("", "context")]
    order = [model.name for model in (*fitting, *(standing_in or ([] if fitting else ranked)))]
    label = _LABELS[tier, complexity]
    if fitting:
        reason = f"fastest {label} model within {demand.budget_ms:.0f} ms"
    else:
        lacking = ", ".join(f"{name}: {what}" for name, what in missing.items())
        reason = f"no {label} model within {demand.budget_ms:.0f} ms ({lacking}); the fastest is used"
    return Choice(order[0], tuple(order[1:]), complexity, not fitting, reason)


def affordable(models: Sequence[Model], demand: Demand) -> Sequence[Model]:
    """The models within the demanded cost. Raises `InvalidInput` if there is none."""
    limit = demand.max_cost_usd
    if limit is None:
        return models
    costs = {model.name: _most_cost_usd(model, demand) for model in models}
    if min(costs.values()) == math.inf:
        raise InvalidInput("max_cost_usd", "with max_tokens: no model's longest answer is known", f"{limit:.3g}")
    if not min(costs.values()) <= limit:  # nor NaN
        raise InvalidInput("max_cost_usd", f"at least {min(costs.values()):.3g} for this request", f"{limit:.3g}")
    return [model for model in models if costs[model.name] <= limit]


def _most_cost_usd(model: Model, demand: Demand) -> float:
    """The cost of answers with the most tokens."""
    if not (demand.max_tokens or model.context_tokens) and model.completion_usd_per_mtok:
        return math.inf
    most = demand.answers * (demand.max_tokens or max(model.context_tokens - demand.prompt_tokens, 0))
    plain, written = (model.cost_usd(demand.prompt_tokens, most, written=each) for each in (0, demand.prompt_tokens))
    return max(plain, written)  # the effect of the provider's cache is unknown beforehand


def _shortfall(model: Model, tier: Tier, demand: Demand) -> str:
    """The first demand that the model misses; empty: none."""
    if 0 < model.context_tokens < demand.prompt_tokens + max(demand.max_tokens, 1):
        return "context"
    if model.tier < tier:
        return "tier"
    if model.total.p95_ms > demand.budget_ms:
        return "budget"
    return ""
