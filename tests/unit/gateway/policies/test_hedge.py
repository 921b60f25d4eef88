from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.gateway.policies.baseline import LatencyBaseline
from services.gateway.policies.hedge import Hedge, HedgeBudget, HedgeRule
from services.gateway.policies.race import Race
from services.runtime.errors import ServiceError, TooLate, Unavailable
from tests.clock import PausedClock, loop_clock, on_paused_loop

pytestmark = pytest.mark.paused
GONE = Unavailable("gone")


class Runner:
    """Begins, or fails, after a while."""

    def __init__(self, after_s: float, problem: ServiceError | None = None):
        self._after_s, self._problem = after_s, problem
        self.lost = self.left = False

    async def run(self) -> Runner:
        await asyncio.sleep(self._after_s)
        if self._problem:
            self.lost = True
            raise self._problem
        return self

    def lose(self) -> None:
        self.lost = True

    def leave(self) -> None:
        self.lost = self.left = True


def run_race(first: tuple, second: tuple | None, after_s: float | None, within_s: float = float("inf")):
    """(the winner's index, seconds it took, the runners); the index is None where the race raised."""

    async def main():
        runners, began = [], loop_clock()

        def start(script):
            runners.append(Runner(*script))
            return runners[-1].run()

        winner, error = None, None
        try:
            race = Race(
                after_s,
                lambda: second and asyncio.create_task(start(second)),
                lambda: began + within_s - loop_clock(),
                lambda: runners,
            )
            winner = await race.run(start(first))
        except ServiceError as caught:
            error = caught
        await asyncio.sleep(0)  # the cancelled task runs
        return winner and runners.index(winner), loop_clock() - began, runners, error

    return on_paused_loop(main())


@pytest.mark.parametrize(
    ("first", "second", "winner", "took_s", "error"),
    [
        pytest.param((5.0,), (0.2,), 1, 0.3, None, id="the first text wins"),
        pytest.param((0.2, GONE), (0.5,), 1, 0.6, None, id="a first call that fails leaves it to the second"),
        pytest.param((0.5,), (0.1, GONE), 0, 0.5, None, id="a second call that fails leaves it to the first"),
        pytest.param((0.2, GONE), (0.5, GONE), None, 0.6, Unavailable, id="all fail"),
        pytest.param((0.05, GONE), (0.1,), None, 0.05, Unavailable, id="one that fails early gets no second"),
        pytest.param((5.0,), (5.0,), None, 1.0, TooLate, id="the race ends at its time"),
    ],
)
def test_the_first_text_within_the_time_wins_and_all_others_lose(first, second, winner, took_s, error):
    won, seconds, runners, problem = run_race(first, second, 0.1, within_s=1.0)
    assert (won, seconds, type(problem)) == (winner, pytest.approx(took_s), error or type(None))
    assert [runner.lost for runner in runners] == [index != winner for index in range(len(runners))]
    assert len(runners) == (1 if took_s < 0.1 else 2)


async def test_a_second_call_that_cannot_be_had_yet_is_asked_for_again():
    asked = []

    def second():
        asked.append(loop_clock())
        return asyncio.create_task(Runner(0.1).run()) if len(asked) == 3 else None

    race = Race(1.0, second, lambda: float("inf"), lambda: [])
    asyncio.get_running_loop().call_later(1.1, race.set)

    began = loop_clock()
    await race.run(Runner(60.0).run())
    assert [at - began for at in asked] == pytest.approx([1.0, 1.1, 1.35])
    assert loop_clock() - began == pytest.approx(1.45)


async def test_a_race_that_is_cancelled_leaves_nobody_running():
    runner = Runner(5.0)
    race = Race(None, lambda: None, lambda: float("inf"), lambda: [runner])
    running = asyncio.create_task(race.run(runner.run()))
    await asyncio.sleep(1)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert runner.left


times = st.floats(0, 10, width=16)
outcomes = st.tuples(times, st.sampled_from([None, GONE]))


@settings(deadline=None)
@given(outcomes, outcomes | st.none(), times | st.none(), times)
def test_there_is_one_winner_at_most_and_everyone_else_has_lost(first, second, after_s, within_s):
    winner, took_s, runners, error = run_race(first, second, after_s, within_s)
    assert (winner is None) == (error is not None)
    assert [index for index, runner in enumerate(runners) if not runner.lost] == ([] if winner is None else [winner])
    assert took_s <= within_s + 1e-6


def warm(hedge: Hedge, values=range(1, 101)) -> Hedge:
    for value in values:
        hedge.saw(value / 100)
    return hedge


@pytest.mark.parametrize(("calls_every", "after_s"), [(1, 0.95), (2, 0.9)], ids=["every request", "half need no model"])
def test_the_adaptive_moment_is_the_percentile_of_recent_first_texts(calls_every: int, after_s: float):
    budget = HedgeBudget(0.05, 10)
    for number in range(1_000):
        budget.request()
        if number % calls_every == 0:
            budget.call()
    hedge = warm(Hedge(HedgeRule(percentile=95), budget, LatencyBaseline(0.3)))
    assert hedge.after_s() == pytest.approx(after_s, rel=0.03)


def test_where_there_are_few_samples_those_of_a_longer_time_count_and_before_any_what_is_expected():
    clock = PausedClock()
    usual = LatencyBaseline(0.3, clock)
    hedge = Hedge(HedgeRule(min_samples=100, window_s=60), HedgeBudget(0.05, 10), usual, clock)
    assert (hedge.after_s(), hedge.basis) == (0.3, "what is expected")
    for value in range(1, 51):
        hedge.saw(value / 100)
        usual.came(value / 100)
    clock.advance(1)
    assert hedge.after_s() == pytest.approx(0.48, rel=0.03)
    assert hedge.basis == "the 95th percentile of the last ten minutes"
    for value in range(1, 101):
        hedge.saw(value / 100)
    clock.advance(1)
    assert hedge.after_s() > 0.8
    assert hedge.basis == "the 95th percentile of the last 60 s"


@pytest.mark.parametrize(("mode", "after_s"), [("off", None), ("tied", 0.0), ("fixed", 0.15)])
def test_the_other_modes(mode, after_s):
    assert warm(Hedge(HedgeRule(mode=mode), HedgeBudget(0.05, 10), LatencyBaseline(0.3))).after_s() == after_s


def test_who_finds_nothing_to_spend_gets_in_line_and_the_longest_wait_is_next():
    budget = HedgeBudget(0.5, 10)
    first, second = asyncio.Event(), asyncio.Event()
    assert not budget.spend(first)
    assert not budget.spend(second)
    budget.request()
    budget.request()
    assert (first.is_set(), second.is_set()) == (True, False)
    assert not budget.spend(second)
    assert budget.spend(first)
    budget.request()
    budget.request()
    assert second.is_set()


def test_who_leaves_the_line_lets_the_next_one_go():
    budget = HedgeBudget(1, 10)
    first, second = asyncio.Event(), asyncio.Event()
    budget.spend(first)
    budget.spend(second)
    budget.request()
    budget.leave(first)
    assert second.is_set()
    assert budget.spend(second)


def test_a_second_call_that_was_not_made_after_all_is_the_next_ones_in_line():
    budget = HedgeBudget(1, 10)
    budget.request()
    assert budget.spend(asyncio.Event())
    next_one = asyncio.Event()
    assert not budget.spend(next_one)
    budget.refund()
    assert next_one.is_set()
    assert budget.spend(next_one)


def test_calls_that_were_cancelled_late_keep_the_percentile_where_it_is():
    clock = PausedClock()
    hedge = warm(Hedge(HedgeRule(percentile=90, window_s=60), HedgeBudget(0.1, 10), LatencyBaseline(0.3, clock), clock))
    before = hedge.after_s()
    for _ in range(200):
        hedge.gave_up(0.01)
    assert hedge.after_s() == before
    hedge.gave_up(before + 1)
    clock.advance(1)
    assert hedge.after_s() >= before


@given(st.floats(0, 1), st.lists(st.sampled_from(["request", "hit", "spend"]), max_size=300))
def test_second_calls_stay_within_their_share_of_requests(share, steps):
    budget, requests, spent = HedgeBudget(share, 10), 0, 0
    for step in steps:
        if step == "spend":
            spent += budget.spend(asyncio.Event())
        else:
            budget.request()
            requests += 1
            if step == "request":
                budget.call()
    assert spent <= share * requests + 1e-6
    assert 0 <= budget.share_of_calls() <= 1


def test_a_budget_that_is_shared_keeps_what_is_needed_here_and_says_what_is_missing():
    budget, news = HedgeBudget(0.5, 10), asyncio.Event()
    assert budget.missing() == 1
    for _ in range(8):
        budget.request()
    assert (budget.missing(), budget.draw(), budget.missing()) == (0, 3, 0)
    assert budget.spend(asyncio.Event())
    assert not budget.spend(news)
    assert budget.wanting.is_set()
    budget.request()
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
                budget.request()
                requests += 1
            case "spend":
                spent += budget.spend(news)
                budget.leave(news)
            case "exchange":
                pool = min(5, pool + budget.draw())
                taken = min(pool, budget.missing())
                pool -= taken
                budget.put(taken)
    assert spent <= 0.1 * requests + 1e-6
