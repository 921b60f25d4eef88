"""A backend that is there, but fails."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Sequence
from itertools import pairwise

import grpc
import pytest

from tests.fault.asking import Asker, Outcome, asking
from tests.fault.faulty_llm import Attempt, Behaviour, FaultyLlm
from tests.fault.mesh import UNLIMITED, Processes
from tests.fault.report import Report

pytestmark = [pytest.mark.measures, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(60)]
_OPEN_S = 1.0  # how long a breaker stays open, by default; a fifth more or less
_ON_TIME_MS = 20  # how late an end may be, and how long a call may be on its way
# The breaker would end the failures before retries are worth counting.
_CLOSED = {"breaker__min_calls": 1_000_000, "breaker__in_a_row": 1_000_000}


async def _load(caller: Asker, requests: int, per_s: float, **fields: object) -> list[Outcome]:
    """Ask at a steady rate, whatever becomes of it."""
    started, tasks = time.monotonic(), []
    for number in range(requests):
        await asyncio.sleep(max(0.0, started + number / per_s - time.monotonic()))
        tasks.append(asyncio.create_task(caller.ask(f"Load {number}?", **fields)))
    return await asyncio.gather(*tasks)


@pytest.mark.parametrize("breaker", [False, True])
async def test_half_of_all_calls_failing_costs_a_fifth_more_attempts_at_most(
    starter: Processes, llm: FaultyLlm, report: Report, breaker: bool
):
    gateway = await starter.gateway(llm.address, **UNLIMITED, **({} if breaker else _CLOSED))
    llm.behaviour = Behaviour(fail_share=0.5)
    async with asking(gateway.spec.address) as caller:
        with report.case(11, f"llm 50 % UNAVAILABLE, breaker {'on' if breaker else 'out of reach'}") as row:
            outcomes = await _load(caller, requests=300, per_s=150, budget_ms=2_000)
            row.count(*outcomes)
            assert [outcome for outcome in outcomes if not (outcome.ok or outcome.unavailable)] == []
            most = 1.2 + 10 / len(outcomes)  # ten retries of the start beside a fifth
            row.measured("attempts per request", len(llm.attempts) / len(outcomes), most, "")
            assert len(llm.attempts) <= most * len(outcomes)
            if not breaker:
                assert len(llm.attempts) > 1.1 * len(outcomes)  # retries there are
                assert sum(outcome.ok for outcome in outcomes) > 0.52 * len(outcomes)


async def test_no_attempt_begins_past_the_deadline(starter: Processes, llm: FaultyLlm, report: Report, full_size: bool):
    gateway = await starter.gateway(llm.address, **_CLOSED, retry__max_share=1, retry__base_ms=50)
    llm.behaviour = Behaviour(fail_share=1, first_ms=40)
    async with asking(gateway.spec.address) as caller:
        with report.case(11, "llm 100 % UNAVAILABLE after 40 ms of a budget of 100 ms") as row:
            outcomes = await _load(caller, requests=100, per_s=100 if full_size else 40, budget_ms=100)
            row.count(*outcomes)
            due = {f"Load {number}?": o.ended - o.seconds + 0.1 for number, o in enumerate(outcomes)}
            assert len(llm.attempts) > len(outcomes)
            late = max(attempt.at - due[attempt.question] for attempt in llm.attempts)
            row.measured("attempt past the deadline", max(0.0, late * 1000), _ON_TIME_MS)
            assert all(outcome.typed for outcome in outcomes)
            row.measured("past the budget", max(0.0, max(o.seconds for o in outcomes) * 1000 - 100), _ON_TIME_MS)


async def test_a_breaker_opens_probes_with_one_call_and_closes_again(
    starter: Processes, llm: FaultyLlm, report: Report
):
    gateway = await starter.gateway(llm.address, **UNLIMITED)
    llm.behaviour = Behaviour(fail_share=1, first_ms=100)  # a probe takes its time: others must not join it
    async with asking(gateway.spec.address) as caller:
        with report.case(12, "llm 100 % UNAVAILABLE, then healed") as row:
            began = time.monotonic()
            row.count(*await caller.until(_refused_by_breaker, within_s=10, budget_ms=2_000))
            row.detected(time.monotonic() - began, 2.0)
            llm.reset()
            llm.behaviour = Behaviour(fail_share=1, first_ms=100)
            outcomes = await _load(caller, requests=175, per_s=50, budget_ms=2_000)
            row.count(*outcomes)
            assert all(outcome.unavailable for outcome in outcomes)
            assert llm.peak == 1
            _check_probes(llm.attempts)
            row.measured("calls let through while open", len(llm.attempts), 4, "")
            llm.behaviour = Behaviour()
            healed = time.monotonic()
            outcomes = await caller.until(lambda outcome: outcome.ok, within_s=20, budget_ms=2_000)
            row.count(*outcomes)
            row.recovered(outcomes[-1].ended - healed, 2.0)
            outcomes = await asyncio.gather(*(caller.ask(f"Closed {number}?") for number in range(20)))
            row.count(*outcomes)
            assert all(outcome.ok for outcome in outcomes)


def _refused_by_breaker(outcome: Outcome) -> bool:
    """Whether no attempt was made: an attempt takes 100 ms."""
    return outcome.unavailable and outcome.seconds < 0.05


def _check_probes(attempts: Sequence[Attempt]) -> None:
    """One call each time the breaker has been open for its time, and no other."""
    assert attempts, "never half open"
    gaps = [after.at - before.at for before, after in pairwise(attempts)]
    assert all(gap >= _OPEN_S * 0.75 for gap in gaps), gaps


async def test_an_exceptions_text_stays_in_its_process(starter: Processes, report: Report):
    secret = f"postgres://user:{secrets.token_hex(8)}@db"
    llm = await starter.start("faulty_llm", secret=secret)
    cache = await starter.start("cache")
    gateway = await starter.gateway(llm.spec.address, cache_address=cache.spec.address, log_level="DEBUG")
    async with asking(gateway.spec.address) as through, asking(llm.spec.address) as direct:
        with report.case(20, "engine raises with a secret in its message") as row:
            outcomes = await asyncio.gather(*(through.ask(f"Secret {number}?") for number in range(5)))
            row.count(*outcomes)
            code, seen = await _raw(direct)
            assert code is grpc.StatusCode.INTERNAL
            assert "internal error, correlation id " in seen
            assert seen.split("correlation id ")[1][:16] in llm.log.read_text()
            assert {outcome.code for outcome in outcomes} == {grpc.StatusCode.INTERNAL}  # and nowhere else was asked
            everything = [seen, repr(outcomes), *(process.log.read_text() for process in (llm, cache, gateway))]
            assert not any(part in text for text in everything for part in (secret, "postgres:"))


async def _raw(direct: Asker) -> tuple[grpc.StatusCode, str]:
    """The status of a call to the llm itself, and all that came with it."""
    request = b"\x0a\x06\x08\x02\x12\x02hi"  # messages { role: USER, content: "hi" }
    call = direct.channel.unary_stream("/hedgerow.llm.v1.LLMService/Generate")(request, timeout=10)
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await call.read()
    error = failed.value
    return error.code(), f"{error.details()} {error.initial_metadata()} {error.trailing_metadata()}"
