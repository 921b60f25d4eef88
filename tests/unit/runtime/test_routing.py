from __future__ import annotations

import pytest

from services.runtime.complexity import Complexity
from services.runtime.errors import InvalidInput
from services.runtime.routing import Demand, Latency, Model, Tier, choose, rank


def model(name: str, tier: Tier, total_ms: float, **changes: object) -> Model:
    latency = Latency(total_ms, total_ms * 2, total_ms * 3)
    facts = {"context_tokens": 2048, "prompt_usd_per_mtok": 1.0, "completion_usd_per_mtok": 2.0, **changes}
    return Model(name, tier, ttft=latency, total=latency, **facts)  # type: ignore[arg-type]


FAST, QUALITY = model("small", Tier.FAST, 100), model("large", Tier.QUALITY, 400)


def demand(**changes: object) -> Demand:
    facts = {
        "tier": Tier.UNSPECIFIED,
        "question": "What is latency?",
        "budget_ms": 5_000,
        "prompt_tokens": 10,
        **changes,
    }
    return Demand(**facts)  # type: ignore[arg-type]


def test_a_simple_question_goes_to_the_fastest_model():
    choice = choose(rank([QUALITY, FAST]), demand())
    assert (choice.model, choice.complexity, choice.fallback) == ("small", Complexity.SIMPLE, False)
    assert choice.alternatives == ("large",)


def test_a_complex_question_goes_to_a_quality_model():
    assert choose(rank([FAST, QUALITY]), demand(question="Tell me a story about a fox.")).model == "large"


def test_a_complex_question_goes_to_the_best_tier_that_there_is():
    """Models of a mesh file are balanced unless it says otherwise, and the request demands no tier."""
    balanced = model("medium", Tier.BALANCED, 400)
    for models, reason in (([FAST, balanced], "fastest balanced (complex)"), ([FAST], "fastest fast (complex)")):
        choice = choose(rank(models), demand(question="Tell me a story about a fox."))
        assert (choice.model, choice.fallback) == (models[-1].name, False)
        assert choice.reason.startswith(reason)


def test_a_tier_admits_the_ones_above_it():
    balanced = choose(rank([FAST, QUALITY]), demand(tier=Tier.BALANCED))
    assert (balanced.model, balanced.complexity) == ("large", Complexity.UNSPECIFIED)


def test_the_fastest_stands_in_when_no_model_meets_the_budget_and_it_is_said():
    choice = choose(rank([FAST, QUALITY]), demand(tier=Tier.QUALITY, budget_ms=300))
    assert (choice.model, choice.fallback) == ("small", True)
    assert "large: budget" in choice.reason
    assert "small: tier" in choice.reason


def test_a_model_that_cannot_hold_the_prompt_stands_in_for_nothing():
    tiny = model("tiny", Tier.QUALITY, 1, context_tokens=8)
    choice = choose(rank([tiny, FAST]), demand(tier=Tier.QUALITY))
    assert (choice.model, choice.alternatives) == ("small", ())


def test_an_unknown_context_length_is_no_reason_against_a_model():
    unknown = model("unknown", Tier.FAST, 10, context_tokens=0)
    choice = choose(rank([unknown, FAST]), demand(prompt_tokens=1_000_000, max_tokens=100_000))
    assert (choice.model, choice.alternatives, choice.fallback) == ("unknown", (), False)


def test_an_unlimited_answer_has_no_known_maximum_cost():
    unknown = model("unknown", Tier.FAST, 10, context_tokens=0)
    assert choose(rank([unknown, FAST]), demand(max_cost_usd=1)).model == "small"
    assert choose(rank([unknown]), demand(max_tokens=100, max_cost_usd=1)).model == "unknown"
    with pytest.raises(InvalidInput, match="max_cost_usd: with max_tokens"):
        choose(rank([unknown]), demand(max_cost_usd=1))
    free = model("free", Tier.FAST, 10, context_tokens=0, completion_usd_per_mtok=0.0)
    assert choose(rank([free]), demand(max_cost_usd=1)).model == "free"


def test_a_model_that_costs_too_much_is_passed_over():
    cheap = model("cheap", Tier.FAST, 200, completion_usd_per_mtok=0.1, prompt_usd_per_mtok=0.1)
    assert choose(rank([FAST, cheap]), demand(max_tokens=100, max_cost_usd=0.000_05)).model == "cheap"


def test_a_model_that_costs_too_much_is_neither_alternative_nor_fallback():
    cheap = model("cheap", Tier.FAST, 9_000, completion_usd_per_mtok=0.1, prompt_usd_per_mtok=0.1)
    choice = choose(rank([FAST, cheap]), demand(tier=Tier.QUALITY, max_tokens=100, max_cost_usd=0.000_05))
    assert (choice.model, choice.alternatives, choice.fallback) == ("cheap", (), True)


def test_if_every_model_costs_too_much_the_error_has_the_least_cost():
    with pytest.raises(InvalidInput, match=r"max_cost_usd: at least 0\.00021 for this request, got 1e-06"):
        choose(rank([FAST, QUALITY]), demand(max_tokens=100, max_cost_usd=0.000_001))
    with pytest.raises(InvalidInput, match="got nan"):
        choose(rank([FAST, QUALITY]), demand(max_cost_usd=float("nan")))


def test_a_model_that_mostly_fails_comes_last():
    broken = model("broken", Tier.FAST, 1, failure_rate=0.9)
    assert [row.name for row in rank([broken, FAST])] == ["small", "broken"]
