from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.gateway.policies.race import Race
from services.runtime.errors import ServiceError, TooLate, Unavailable
from tests.clock import loop_clock, on_paused_loop

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

    def cancel_as_slow(self, *, late: bool) -> None:
        self.lost = True

    def cancel(self) -> None:
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


async def test_a_second_call_that_begins_just_before_the_time_ends_wins():
    loop, second = asyncio.get_running_loop(), Runner(0.1)

    def start() -> asyncio.Task[Runner]:
        task = asyncio.create_task(second.run())
        loop.call_soon(task.add_done_callback, lambda _: race._time_out())  # in the turn in which the race sees it
        return task

    race = Race(0.1, start, lambda: float("inf"), lambda: [second])
    assert await race.run(Runner(60.0).run()) is second
    assert not second.lost


times = st.floats(0, 10, width=16)
outcomes = st.tuples(times, st.sampled_from([None, GONE]))


@settings(deadline=None)
@given(outcomes, outcomes | st.none(), times | st.none(), times)
def test_there_is_one_winner_at_most_and_all_other_calls_have_lost(first, second, after_s, within_s):
    winner, took_s, runners, error = run_race(first, second, after_s, within_s)
    assert (winner is None) == (error is not None)
    assert [index for index, runner in enumerate(runners) if not runner.lost] == ([] if winner is None else [winner])
    assert took_s <= within_s + 1e-6
