from __future__ import annotations

import random

import pytest
from pydantic import ValidationError

from services.router.config import ModelSettings, RouterSettings
from services.router.table import Observation, Outcome, Table
from services.runtime.routing import Demand, Tier, choose, rank
from tests.clock import PausedClock

WINDOW_S = 60.0
CATALOGUE = [ModelSettings(name="small", tier="fast", context_tokens=100, expected_ttft_ms=40, expected_total_ms=150)]


def seen(total_ms: float, outcome: Outcome = Outcome.OK, ttft_ms: float | None = 20) -> Observation:
    return Observation("small", ttft_ms, total_ms, outcome)


def test_observations_replace_expectations():
    table = Table(CATALOGUE, WINDOW_S, PausedClock())
    (model,) = table.models()
    assert (model.ttft.p50_ms, model.total.p95_ms, model.total.samples) == (40, 150, 0)
    assert table.observe([seen(500), seen(500), seen(700)]) == 3
    (model,) = table.models()
    assert model.total.p50_ms == pytest.approx(500, rel=0.02)
    assert model.total.samples == 3


def test_an_unknown_model_and_what_is_older_than_the_window_are_not_taken_and_change_nothing():
    table = Table(CATALOGUE, WINDOW_S, PausedClock())
    before = table.version
    assert table.observe([Observation("other", 1, 1, Outcome.OK)]) == 0
    assert table.observe([seen(500)], age_s=WINDOW_S + 1) == 0
    assert table.version == before


def test_failures_count_in_the_failure_rate_and_not_in_the_latency():
    table = Table(CATALOGUE, WINDOW_S, PausedClock())
    table.observe([seen(1, Outcome.FAILED, None), seen(100)])
    (model,) = table.models()
    assert model.failure_rate == pytest.approx(0.5)
    assert model.total.samples == 1


def test_two_models_of_one_name_are_refused():
    with pytest.raises(ValidationError, match="names must be unique"):
        RouterSettings(models=CATALOGUE * 2)


def test_observations_that_come_late_leave_with_their_own_time():
    clock = PausedClock()
    table = Table(CATALOGUE, WINDOW_S, clock)
    table.observe([seen(500)])
    assert table.observe([seen(900)], age_s=WINDOW_S / 2) == 1
    assert table.models()[0].total.samples == 2
    clock.advance(WINDOW_S * 0.7)
    assert table.models()[0].total.samples == 1
    clock.advance(WINDOW_S)
    assert table.models()[0].total.samples == 0


def chosen(table: Table, budget_ms: float) -> tuple[str, bool]:
    choice = choose(rank(table.models()), Demand(Tier.FAST, "Hi.", budget_ms, 10))
    return choice.model, choice.fallback


BOTH = [*CATALOGUE, ModelSettings(name="other", tier="fast", context_tokens=100, expected_total_ms=995)]


def test_a_model_with_all_answers_cut_does_not_meet_the_budget():
    table = Table(BOTH, WINDOW_S, PausedClock())
    table.observe([seen(980, Outcome.BUDGET)] * 200)
    assert chosen(table, 1_000) == ("other", False)


def test_one_cut_answer_in_twenty_meets_the_budget_and_three_do_not():
    table = Table(BOTH, WINDOW_S, PausedClock())
    table.observe([*[seen(500)] * 19, seen(980, Outcome.BUDGET)])
    assert chosen(table, 1_000) == ("small", False)
    table.observe([seen(980, Outcome.BUDGET)] * 2)
    assert chosen(table, 1_000) == ("other", False)


def test_answers_that_short_budgets_cut_say_nothing_of_the_time_that_others_need():
    table = Table(BOTH, WINDOW_S, PausedClock())
    table.observe([*[seen(100, Outcome.BUDGET)] * 100, *[seen(600)] * 10])
    model = table.models()[0]
    assert (model.total.p50_ms, model.total.p95_ms) == (pytest.approx(600, rel=0.02), pytest.approx(600, rel=0.02))
    assert model.total.samples == 110
    assert chosen(table, 900) == ("small", False)


def test_answers_that_were_cut_before_the_expected_time_leave_the_expectation():
    table = Table(BOTH, WINDOW_S, PausedClock())
    table.observe([seen(100, Outcome.BUDGET)])
    assert table.models()[0].total.p95_ms == 150


@pytest.mark.parametrize("seed", range(5))
def test_the_percentiles_of_answers_that_budgets_cut_at_random_are_those_of_answers_without_budgets(seed: int):
    rng, table = random.Random(seed), Table(CATALOGUE, WINDOW_S, PausedClock())
    needed = [rng.lognormvariate(6, 0.6) for _ in range(4_000)]  # milliseconds, half of them above 403
    for total_ms in needed:
        budget_ms = rng.choice((200, 500, 1_000, 10_000))
        table.observe([seen(budget_ms, Outcome.BUDGET) if total_ms > budget_ms else seen(total_ms)])
    total = table.models()[0].total
    needed.sort()
    assert total.p50_ms == pytest.approx(needed[2_000], rel=0.06)
    assert total.p95_ms == pytest.approx(needed[3_800], rel=0.1)
