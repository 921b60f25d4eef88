from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.gateway.policies.baseline import LatencyBaseline
from services.gateway.policies.hedge import Hedge, HedgeBudget, HedgeMoment, HedgeRule
from tests.clock import PausedClock

pytestmark = pytest.mark.paused


def after_s_of(hedge: Hedge) -> float:
    moment = hedge.moment()
    assert moment
    return moment.after_s


def warm(hedge: Hedge, values=range(1, 101)) -> Hedge:
    for value in values:
        hedge.add_first_text(value / 100)
    return hedge


@pytest.mark.parametrize(("calls_every", "after_s"), [(1, 0.95), (2, 0.9)], ids=["every request", "half need no model"])
def test_the_adaptive_moment_is_the_percentile_of_recent_first_texts(calls_every: int, after_s: float):
    budget = HedgeBudget(0.05, 10)
    for number in range(1_000):
        budget.count_request()
        if number % calls_every == 0:
            budget.count_call()
    hedge = warm(Hedge(HedgeRule(percentile=95), budget, LatencyBaseline(0.3)))
    assert after_s_of(hedge) == pytest.approx(after_s, rel=0.03)


def test_without_recent_samples_a_hedge_uses_older_ones_or_the_expected_time():
    clock = PausedClock()
    usual = LatencyBaseline(0.3, clock)
    hedge = Hedge(HedgeRule(min_samples=100, window_s=60), HedgeBudget(0.05, 10), usual, clock)
    assert hedge.moment() == HedgeMoment(0.3, "the expected first-token time")
    for value in range(1, 51):
        hedge.add_first_text(value / 100)
        usual.add(value / 100)
    clock.advance(1)
    assert hedge.moment() == HedgeMoment(pytest.approx(0.48, rel=0.03), "the 95th percentile of the last ten minutes")
    for value in range(1, 101):
        hedge.add_first_text(value / 100)
    clock.advance(1)
    assert hedge.moment() == HedgeMoment(pytest.approx(0.9, rel=0.1), "the 95th percentile of the last 60 s")


@pytest.mark.parametrize(("mode", "after_s"), [("off", None), ("tied", 0.0), ("fixed", 0.15)])
def test_the_other_modes(mode, after_s):
    moment = warm(Hedge(HedgeRule(mode=mode), HedgeBudget(0.05, 10), LatencyBaseline(0.3))).moment()
    assert (moment and moment.after_s) == after_s


def test_a_race_without_budget_is_queued_and_the_longest_wait_is_served_next():
    budget = HedgeBudget(0.5, 10)
    first, second = asyncio.Event(), asyncio.Event()
    assert not budget.spend(first)
    assert not budget.spend(second)
    budget.count_request()
    budget.count_request()
    assert (first.is_set(), second.is_set()) == (True, False)
    assert not budget.spend(second)
    assert budget.spend(first)
    budget.count_request()
    budget.count_request()
    assert second.is_set()


def test_tenants_take_turns_at_the_budget():
    budget = HedgeBudget(share=0.5, burst=1)
    waiting = {"a1": asyncio.Event(), "a2": asyncio.Event(), "a3": asyncio.Event(), "b1": asyncio.Event()}
    for name, race in waiting.items():
        assert not budget.spend(race, name[0])
    served = list[str]()
    for _ in range(8):
        budget.count_request()
        for name in [name for name, race in waiting.items() if race.is_set()]:
            assert budget.spend(waiting.pop(name), name[0])
            served.append(name)
    assert served == ["a1", "b1", "a2", "a3"]


def test_a_race_that_leaves_the_queue_lets_the_next_one_go():
    budget = HedgeBudget(1, 10)
    first, second = asyncio.Event(), asyncio.Event()
    budget.spend(first)
    budget.spend(second)
    budget.count_request()
    budget.dequeue(first)
    assert second.is_set()
    assert budget.spend(second)


def test_a_queue_of_any_length_may_leave_when_its_first_race_is_woken():
    class Leaving:
        def set(self) -> None:
            budget.dequeue(self)

    budget = HedgeBudget(1, 10)
    for _ in range(2_000):
        assert not budget.spend(Leaving())
    budget.count_request()
    assert budget.spend(asyncio.Event()), "no race is in the queue any more"


def test_a_second_call_that_was_not_made_after_all_is_the_next_ones_in_line():
    budget = HedgeBudget(1, 10)
    budget.count_request()
    assert budget.spend(asyncio.Event())
    next_one = asyncio.Event()
    assert not budget.spend(next_one)
    budget.refund()
    assert next_one.is_set()
    assert budget.spend(next_one)


def test_calls_that_were_cancelled_late_keep_the_percentile_where_it_is():
    clock = PausedClock()
    hedge = warm(Hedge(HedgeRule(percentile=90, window_s=60), HedgeBudget(0.1, 10), LatencyBaseline(0.3, clock), clock))
    before = after_s_of(hedge)
    for _ in range(200):
        hedge.add_unanswered(0.01)
    assert after_s_of(hedge) == before
    hedge.add_unanswered(before + 1)
    clock.advance(1)
    assert after_s_of(hedge) >= before


@given(st.floats(0, 1), st.lists(st.sampled_from(["request", "hit", "spend"]), max_size=300))
def test_second_calls_stay_within_their_share_of_requests(share, steps):
    budget, requests, spent = HedgeBudget(share, 10), 0, 0
    for step in steps:
        if step == "spend":
            spent += budget.spend(asyncio.Event())
        else:
            budget.count_request()
            requests += 1
            if step == "request":
                budget.count_call()
    assert spent <= share * requests + 1e-6
    assert 0 <= budget.share_of_calls() <= 1


def test_a_budget_that_is_shared_keeps_what_is_needed_here_and_says_what_is_missing():
    budget, news = HedgeBudget(0.5, 10), asyncio.Event()
    assert budget.missing() == 1
    for _ in range(8):
        budget.count_request()
    assert (budget.missing(), budget.draw(), budget.missing()) == (0, 3, 0)
    assert budget.spend(asyncio.Event())
    assert not budget.spend(news)
    assert budget.wanting.is_set()
    budget.count_request()
    assert (budget.missing(), budget.draw()) == (0.5, 0)  # a race waits for it
    budget.put(0.5)
    assert news.is_set()
    assert budget.spend(news)


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["request", "spend", "exchange"])), max_size=300))
def test_second_calls_of_budgets_that_share_a_pool_stay_within_their_share_of_all_requests(steps):
    budgets, pool, requests, spent = [HedgeBudget(0.1, 5) for _ in range(3)], 0.0, 0, 0
    for index, step in steps:
        budget, news = budgets[index], asyncio.Event()
        match step:
            case "request":
                budget.count_request()
                requests += 1
            case "spend":
                spent += budget.spend(news)
                budget.dequeue(news)
            case "exchange":
                pool = min(5, pool + budget.draw())
                taken = min(pool, budget.missing())
                pool -= taken
                budget.put(taken)
    assert spent <= 0.1 * requests + 1e-6
