"""Which constraints the engine gets, with a scripted trial, and the turns in which tenants have them tried."""

from __future__ import annotations

import asyncio

import pytest

from services.llm.config import ConstraintSettings
from services.llm.engine import Constraint
from services.llm.vllm.constraints import Constraints, TrialScheduler
from services.llm.vllm.grammar_sandbox import GrammarVerdict
from services.runtime.deadline import Deadline
from services.runtime.errors import InvalidInput, ShareUsed, TooLate
from tests.clock import loop_clock

pytestmark = pytest.mark.paused

SETTINGS = ConstraintSettings(cpu_ms=100, in_hand=2, share=0.25, burst_ms=500)
DIGITS = Constraint("regex", "[0-9]+")


class ScriptedTrial:
    """Takes `seconds` for each, and says `verdict`."""

    def __init__(self, verdict: GrammarVerdict, seconds: float = 0.0):
        self.verdict, self.seconds = verdict, seconds
        self.tried: list[Constraint] = []

    async def of(self, constraint: Constraint) -> GrammarVerdict:
        self.tried.append(constraint)
        await asyncio.sleep(self.seconds)
        return self.verdict

    async def close(self) -> None:
        pass


def make(trial: ScriptedTrial) -> Constraints:
    return Constraints(SETTINGS, trial, loop_clock)  # type: ignore[arg-type]


async def check(constraints: Constraints, constraint: Constraint = DIGITS, tenant: str = "a") -> None:
    await constraints.check(constraint, tenant, Deadline.never())


async def test_a_known_constraint_is_not_tried_again():
    constraints = make(trial := ScriptedTrial(GrammarVerdict("", 0.001, 0.002)))
    await asyncio.gather(check(constraints), check(constraints))
    await check(constraints)
    assert trial.tried == [DIGITS]


async def test_a_constraint_of_one_tenant_is_tried_again_for_another():
    constraints = make(trial := ScriptedTrial(GrammarVerdict("", 0.001, 0.002)))
    await check(constraints, tenant="a")
    await check(constraints, tenant="b")
    assert trial.tried == [DIGITS, DIGITS]


async def test_a_tenant_with_many_constraints_takes_no_other_s_place(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("services.llm.vllm.constraints._REMEMBERED", 4)
    constraints = make(trial := ScriptedTrial(GrammarVerdict("", 0.001, 0.002)))
    await check(constraints, tenant="b")
    for number in range(8):
        await check(constraints, Constraint("regex", f"{number}"))
    trial.tried.clear()
    await check(constraints, tenant="b")
    await check(constraints, Constraint("regex", "7"))
    assert trial.tried == []


async def test_a_refused_constraint_has_its_reason():
    constraints = make(ScriptedTrial(GrammarVerdict("more than\n 100 ms of work", 0.1, 0.2)))
    for _ in range(2):
        with pytest.raises(InvalidInput) as caught:
            await check(constraints)
        said = "response_format.regex: what the engine can follow (more than 100 ms of work), got [0-9]+"
        assert caught.value.message == said


@pytest.mark.parametrize("different", [True, False])
async def test_each_tenant_gets_its_share_of_the_time(different: bool):
    constraints = make(ScriptedTrial(GrammarVerdict("", 0.1, 0.1)))
    asked = [Constraint("regex", f"{number if different else 0}") for number in range(10)]
    checks = [check(constraints, constraint) for constraint in asked]
    outcomes = [(await asyncio.gather(each, return_exceptions=True))[0] for each in checks]
    assert 2 <= outcomes.count(None) <= 5  # as many as 500 ms are enough for
    refused = outcomes[-1]
    assert isinstance(refused, ShareUsed)
    await check(constraints, tenant="b")
    assert refused.retry_delay_s is not None
    await asyncio.sleep(refused.retry_delay_s)
    await check(constraints, asked[-1])


async def test_a_check_that_outlasts_its_caller_is_remembered():
    constraints = make(trial := ScriptedTrial(GrammarVerdict("", 0.001, 0.002), seconds=1.0))
    with pytest.raises(TooLate):
        await constraints.check(DIGITS, "a", Deadline.after(0.1, loop_clock))
    await asyncio.sleep(1)
    await check(constraints)
    assert trial.tried == [DIGITS]


class Workers:
    """Work that goes on until the test ends it; `order`: the admitted requests."""

    def __init__(self, scheduler: TrialScheduler):
        self._scheduler, self.order, self.end = scheduler, [], asyncio.Event()
        self.tasks: list[asyncio.Task[None]] = []

    async def come(self, *tenants: str) -> None:
        for tenant in tenants:
            self.tasks.append(asyncio.create_task(self._work(tenant)))
        await asyncio.sleep(0)

    async def _work(self, tenant: str) -> None:
        async with self._scheduler.turn(tenant):
            self.order.append(tenant)
            await self.end.wait()

    async def finish(self) -> list[object]:
        self.end.set()
        return await asyncio.gather(*self.tasks, return_exceptions=True)


async def test_tenants_take_turns_despite_unequal_demand():
    workers = Workers(TrialScheduler(most=4))
    await workers.come("a", "a", "a", "a", "b", "b")
    assert workers.order == ["a"]  # one at a time
    assert await workers.finish() == [None] * 6
    assert workers.order == ["a", "a", "b", "a", "b", "a"]


async def test_a_tenant_at_its_limit_gets_a_retry_delay():
    workers = Workers(TrialScheduler(most=2))
    await workers.come("a", "a", "a", "b")
    *_, refused, other = await workers.finish()
    assert isinstance(refused, ShareUsed)
    assert refused.retry_delay_s
    assert other is None
    await workers.come("a")  # its slots are free again
    assert workers.order[-1] == "a"


@pytest.mark.parametrize("leaves", [0, 1])
async def test_a_cancelled_caller_delays_no_other(leaves: int):
    workers = Workers(TrialScheduler(most=4))
    await workers.come("a", "b", "c")
    workers.tasks[leaves].cancel()
    await workers.finish()
    assert workers.order[-1] == "c"


async def test_a_caller_cancelled_in_its_turn_passes_it_on():
    workers = Workers(TrialScheduler(most=4))
    await workers.come("a", "b", "c")
    workers.end.set()
    while not workers.tasks[0].done():
        await asyncio.sleep(0)
    workers.tasks[1].cancel()
    await workers.finish()
    assert "c" in workers.order
