"""A backend that accepts calls and says nothing, or says it far too late."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import grpc
import pytest
import pytest_asyncio

from tests.fault.asking import MODEL, Asker, Outcome, asking, p99_ms, times_s
from tests.fault.faulty_llm import Behaviour, FaultyLlm, faulty_llm
from tests.fault.mesh import UNLIMITED, Processes
from tests.fault.report import Report, Row

pytestmark = [pytest.mark.measures, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(120)]
_PER_S, _BUDGET_MS = 20, 1_000
_USUAL = Behaviour(first_ms=50, jitter_ms=10)
_WELL = Behaviour(first_ms=100)
_SILENT = {"silent": Behaviour(stall_after=0), "20 × too late": Behaviour(first_ms=1_000)}
_HISTORY = 40  # calls before: more than it takes to know what is usual


@dataclass(frozen=True, slots=True)
class _Asked:
    at_s: float  # after the load began
    outcome: Outcome


@pytest_asyncio.fixture(loop_scope="session")
async def other() -> AsyncIterator[FaultyLlm]:
    """A healthy neighbour."""
    async with faulty_llm() as running:
        running.behaviour = _WELL
        yield running


@pytest.fixture
def seconds(full_size: bool) -> float:
    """The seconds of load."""
    return 15.0 if full_size else 3.5


async def _load(caller: Asker, seconds: float, per_s: int = _PER_S) -> list[_Asked]:
    """Questions at a steady rate; no two are alike."""
    began = time.monotonic()

    async def ask(number: int) -> _Asked:
        await asyncio.sleep(number / per_s)
        at_s = time.monotonic() - began
        return _Asked(at_s, await caller.ask(f"Question {time.monotonic_ns()}?", budget_ms=_BUDGET_MS, model=""))

    return list(await asyncio.gather(*(ask(number) for number in range(int(seconds * per_s)))))


async def _break(how: str, llm: FaultyLlm, caller: Asker, knows: bool) -> None:
    """Have the backend do as `how` says, after it was well where `knows`."""
    if knows:
        llm.behaviour = _USUAL
        await asyncio.gather(*(caller.ask(f"Before {number}?", model="") for number in range(_HISTORY)))
    llm.behaviour = _SILENT[how]
    llm.attempts.clear()


def _tell(row: Row, load: Sequence[_Asked], llm: FaultyLlm) -> None:
    """The shares that were answered, and until when calls went to the silent one at the rate at which they came."""
    row.count(*(asked.outcome for asked in load))
    first = [asked.outcome.whole for asked in load if asked.at_s < 1]
    later = [asked.outcome.whole for asked in load if asked.at_s >= 2]
    row.measured("whole in the first second", 100 * sum(first) / len(first), 90, " %", at_least=True, slack=1.2)
    row.measured("whole after two seconds", 100 * sum(later) / len(later), 99.5, " %", at_least=True, slack=1.05)
    row.detected(_noticed_s(llm), 2.0)


def _noticed_s(llm: FaultyLlm) -> float:
    """When the calls stopped: a probe comes once a second."""
    times = [attempt.at - llm.attempts[0].at for attempt in llm.attempts]
    gaps = zip(times, [*times[1:], float("inf")], strict=True)
    return next(at for at, following in gaps if following - at > 0.5)


@pytest.mark.parametrize(("how", "knows"), [("silent", False), ("silent", True), ("20 × too late", True)])
async def test_a_healthy_model_beside_a_silent_one_gets_its_chance_in_time(
    starter: Processes, llm: FaultyLlm, other: FaultyLlm, report: Report, seconds: float, how: str, knows: bool
):
    gateway = await starter.gateway(llm_addresses={MODEL: llm.address, "other": other.address})
    async with asking(gateway.spec.address) as caller:
        await _break(how, llm, caller, knows)
        with report.case(26, f"llm {how}{'' if knows else ' from the start'}, another model is well") as row:
            load = await _load(caller, seconds)
            _tell(row, load, llm)
            assert all(asked.outcome.typed for asked in load)
            assert "llm:replaced" in load[0].outcome.final.degraded


@pytest.mark.parametrize(("how", "knows"), [("silent", False), ("silent", True), ("20 × too late", True)])
async def test_a_healthy_replica_beside_a_silent_one_gets_its_chance_in_time(
    starter: Processes, llm: FaultyLlm, other: FaultyLlm, report: Report, seconds: float, how: str, knows: bool
):
    gateway = await starter.gateway(llm.address, other.address)
    async with asking(gateway.spec.address) as caller:
        await _break(how, llm, caller, knows)
        with report.case(26, f"one of two llms {how}{'' if knows else ' from the start'}") as row:
            load = await _load(caller, seconds)
            _tell(row, load, llm)
            assert any("started" in asked.outcome.decided("hedge") for asked in load)


async def test_a_silent_model_that_is_alone_gives_typed_stand_ins_and_then_refuses_at_once(
    starter: Processes, llm: FaultyLlm, report: Report, seconds: float, full_size: bool
):
    # No more calls wait than the limiter's first limit, so that every refusal is the breaker's.
    gateway = await starter.gateway(llm.address, **UNLIMITED)
    async with asking(gateway.spec.address) as caller:
        await _break("silent", llm, caller, knows=False)
        with report.case(26, "the only llm silent from the start") as row:
            load = await _load(caller, seconds)
            row.detected(min(asked.at_s for asked in load if asked.outcome.failed), 2.0)
            # Of some forty the 99th percentile is the slowest.
            load += await _load(caller, 3.0, per_s=100 if full_size else 50)
            row.count(*(asked.outcome for asked in load))
            refused = [asked.outcome for asked in load if asked.outcome.failed]
            stood_in = [asked.outcome for asked in load if asked.outcome.final]
            assert all(outcome.final.degraded == ["llm:template"] and outcome.text for outcome in stood_in)
            assert {outcome.code for outcome in refused} == {grpc.StatusCode.UNAVAILABLE}
            assert all(outcome.retry_delay_s for outcome in refused)
            assert len(llm.attempts) <= len(stood_in)  # a refusal is immediate: no call was made
            row.measured("p99 of refusals", p99_ms(times_s(refused)), 10)  # a shared core shows here first
        llm.behaviour = _WELL
        healed = time.monotonic()
        await caller.until(lambda outcome: outcome.whole, within_s=10)
        row.recovered(time.monotonic() - healed, 2.0)
