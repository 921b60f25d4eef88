"""The network between the gateway and a backend, or a caller and the gateway, goes bad."""

from __future__ import annotations

import asyncio
import time

import grpc
import pytest

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.config import TEMPLATE
from tests.fault.asking import Outcome, asking, times_s
from tests.fault.faulty_llm import WORD, Behaviour
from tests.fault.mesh import Mesh
from tests.fault.proxy import FaultProxy, Latency, LimitData, Slicer, Timeout
from tests.fault.report import Report, Row
from tests.waiting import until

pytestmark = [pytest.mark.measures, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(60)]
_ON_TIME_MS = 20  # how late an end may be


def _check_late(outcomes: list[Outcome], budget_ms: float, row: Row) -> None:
    """Every one ended, in a way the contract knows, at its budget."""
    assert all(outcome.typed for outcome in outcomes), outcomes
    row.measured("past the budget", max(0.0, max(o.seconds for o in outcomes) * 1000 - budget_ms), _ON_TIME_MS)


async def test_a_black_hole_before_the_model_ends_at_the_budget_and_heals(mesh: Mesh, report: Report):
    with report.case(6, "black hole between gateway and llm, both ways, then healed") as row:
        mesh.llm.behaviour = Behaviour(tokens=2_000, each_ms=20)
        patient = mesh.caller.start("Patient?", budget_ms=20_000, bypass=True, single_attempt=True)
        await patient.first_text()
        hole = time.monotonic()
        mesh.to_llm.add(Timeout())
        ending = asyncio.create_task(patient.end())
        outcomes = await mesh.caller.until(lambda o: o.unavailable, 25, budget_ms=200, bypass=True)
        row.count(*outcomes, end := await ending)
        row.detected(end.ended - hole, 2.0)
        assert end.final.finish_reason == chat_pb2.FINISH_REASON_INTERRUPTED
        assert {outcome.text for outcome in outcomes} <= {"", TEMPLATE}  # nothing of the model's
        _check_late(outcomes, 200, row)
        mesh.to_llm.heal()
        mesh.llm.behaviour = Behaviour()
        healed = time.monotonic()
        outcomes = await mesh.caller.until(lambda o: o.ok, 20, budget_ms=500, bypass=True)
        row.count(*outcomes)
        row.recovered(outcomes[-1].ended - healed, 2.0)


async def test_a_black_hole_before_the_cache_costs_its_slice_and_heals(mesh: Mesh, report: Report):
    with report.case(6, "black hole between gateway and cache, both ways, then healed") as row:
        hole = time.monotonic()
        mesh.to_cache.add(Timeout())
        outcomes = await mesh.caller.until(Outcome.cache_skipped, 25, budget_ms=500)
        row.count(*outcomes)
        row.detected(outcomes[-1].ended - hole, 2.0)
        assert all(outcome.whole and outcome.degraded for outcome in outcomes)
        _check_cache_slice(outcomes, row)
        mesh.to_cache.heal()
        healed = time.monotonic()
        outcomes = await mesh.caller.until(lambda o: o.ok, 20, budget_ms=500)
        row.count(*outcomes)
        row.recovered(outcomes[-1].ended - healed, 2.0)


def _check_cache_slice(outcomes: list[Outcome], row: Row) -> None:
    stages = [outcome.stage("cache") for outcome in outcomes]
    late = max(stage.spent_ms - stage.budget_ms for stage in stages)
    row.measured("past the slice", max(0.0, late), _ON_TIME_MS)


async def test_a_cache_that_accepts_and_never_speaks_costs_no_more_than_its_slice(mesh: Mesh, report: Report):
    with report.case(7, "cache accepts TCP and never speaks") as row:
        mesh.to_cache.add(Timeout())
        mesh.to_cache.cut()
        outcomes = [await mesh.caller.ask(f"Silent cache {number}?", budget_ms=500) for number in range(10)]
        row.count(*outcomes)
        assert all(outcome.whole and outcome.degraded for outcome in outcomes)
        _check_cache_slice(outcomes, row)


async def test_a_model_that_accepts_and_never_speaks_ends_at_the_budget(mesh: Mesh, report: Report):
    with report.case(7, "llm accepts TCP and never speaks") as row:
        mesh.to_llm.add(Timeout())
        mesh.to_llm.cut()
        asked = [mesh.caller.start(f"Silent {number}?", budget_ms=500, bypass=True) for number in range(10)]
        outcomes = [await stream.end() for stream in asked]
        row.count(*outcomes)
        assert {outcome.text for outcome in outcomes} <= {"", TEMPLATE}  # nothing of the model's
        _check_late(outcomes, 500, row)


async def test_a_slow_cache_is_cut_off_and_nothing_else_suffers(mesh: Mesh, report: Report):
    mesh.llm.behaviour = Behaviour(tokens=4, first_ms=20, each_ms=5)
    before = await asyncio.gather(*(mesh.caller.ask(f"B {n}?", budget_ms=500, bypass=True) for n in range(10)))
    with report.case(8, "cache 10 × slower than its slice of 100 ms") as row:
        mesh.to_cache.add(Latency(1_000), "downstream")
        slow = [mesh.caller.start(f"Slow cache {number}?", budget_ms=500) for number in range(10)]
        siblings = await asyncio.gather(*(mesh.caller.ask(f"S {n}?", budget_ms=500, bypass=True) for n in range(10)))
        outcomes = [await stream.end() for stream in slow]
        row.count(*outcomes, *siblings)
        for outcome in outcomes:
            assert outcome.whole
            assert outcome.stage("cache").outcome in (pb.STAGE_OUTCOME_OVERRUN, pb.STAGE_OUTCOME_SKIPPED)
            assert outcome.final.cache.verdict == pb.CACHE_VERDICT_UNAVAILABLE
        assert all(sibling.ok for sibling in siblings)
        _check_late([*outcomes, *siblings], 500, row)
        _check_cache_slice(outcomes, row)
        row.slowed("p99 of siblings", times_s(before), times_s(siblings))


async def test_a_slow_cache_and_a_slow_model_together_end_at_the_budget(mesh: Mesh, report: Report):
    mesh.llm.behaviour = Behaviour(tokens=100, first_ms=20, each_ms=5)
    with report.case(8, "cache 10 × slower, and an answer that needs more than is left") as row:
        mesh.to_cache.add(Latency(1_000), "downstream")
        outcomes = await asyncio.gather(*(mesh.caller.ask(f"Both slow {n}?", budget_ms=300) for n in range(10)))
        row.count(*outcomes)
        for outcome in outcomes:
            assert outcome.final.finish_reason == chat_pb2.FINISH_REASON_BUDGET
            assert "llm:budget" in outcome.final.degraded
            assert (WORD * 100).startswith(outcome.text)
            assert outcome.text
        _check_late(outcomes, 300, row)


async def test_a_reset_in_the_middle_of_a_message_gives_no_part_of_it(mesh: Mesh, report: Report):
    with report.case(9, "reset in the middle of the llm's first message") as row:
        mesh.llm.behaviour = Behaviour(tokens=1, text="x" * 60_000)
        mesh.to_llm.add(LimitData(20_000), "downstream")
        outcome = await mesh.caller.ask("Cut first?", budget_ms=5_000)
        row.count(outcome)
        assert outcome.code is grpc.StatusCode.UNAVAILABLE
        assert outcome.text == ""
        await _check_not_stored(mesh, "Cut first?")
    with report.case(9, "reset in the middle of the llm's second message") as row:
        mesh.llm.behaviour = Behaviour(tokens=3, text="x" * 30_000, each_ms=50)
        mesh.to_llm.add(LimitData(50_000), "downstream")
        outcome = await mesh.caller.ask("Cut second?", budget_ms=5_000)
        row.count(outcome)
        assert outcome.final.finish_reason == chat_pb2.FINISH_REASON_INTERRUPTED
        assert outcome.final.degraded
        assert outcome.text == outcome.final.text == "x" * 30_000
        await _check_not_stored(mesh, "Cut second?")


async def _check_not_stored(mesh: Mesh, question: str) -> None:
    """Once the network is well, the mesh generates the answer again."""
    await asyncio.sleep(0.1)  # more than a store takes
    mesh.heal()
    await mesh.caller.until(lambda outcome: outcome.ok, within_s=10)
    again = await mesh.caller.ask(question)
    assert (again.text, again.final.cache.verdict) == (WORD * 4, pb.CACHE_VERDICT_MISS)


async def test_a_reset_in_the_middle_of_a_lookups_reply_is_no_hit(mesh: Mesh, report: Report):
    mesh.llm.behaviour = Behaviour(tokens=1, text="x" * 60_000)
    question = f"Long answer {time.monotonic_ns()}?"
    await until(lambda: mesh.caller.ask(question), 10, holds=lambda outcome: outcome.final.cache.key)
    with report.case(9, "reset in the middle of the cache's reply") as row:
        mesh.llm.behaviour = Behaviour(tokens=2)
        mesh.to_cache.add(LimitData(20_000), "downstream")
        mesh.to_cache.cut()  # the gateway's own copy of the answer goes with the connection
        outcomes = await mesh.caller.until(lambda o: o.ok, within_s=10)
        outcome = await mesh.caller.ask(question, budget_ms=5_000)
        row.count(outcome, *outcomes)
        assert outcome.final.cache.verdict == pb.CACHE_VERDICT_UNAVAILABLE
        assert outcome.whole
        assert outcome.degraded
        assert outcome.text == WORD * 2


async def test_a_reset_between_caller_and_gateway_is_unavailable(mesh: Mesh, report: Report):
    async with FaultProxy(mesh.gateway.spec.address) as proxy, asking(proxy.address) as caller:
        with report.case(9, "reset in the middle of the gateway's message") as row:
            mesh.llm.behaviour = Behaviour(tokens=1, text="x" * 60_000)
            proxy.add(LimitData(20_000), "downstream")
            outcome = await caller.ask("Cut on the way back?", bypass=True)
            row.count(outcome)
            assert (outcome.code, outcome.text, outcome.final) == (grpc.StatusCode.UNAVAILABLE, "", None)
        proxy.heal()
        await asyncio.wait_for(caller.channel.channel_ready(), 10)
        mesh.llm.reset()
        with report.case(9, "reset in the middle of the caller's request") as row:
            proxy.add(LimitData(20_000), "upstream")
            outcome = await caller.ask("x" * 100_000, bypass=True)
            row.count(outcome)
            assert (outcome.code, outcome.final) == (grpc.StatusCode.UNAVAILABLE, None)
            assert mesh.llm.attempts == []


async def test_single_bytes_make_the_right_answer(mesh: Mesh, report: Report):
    async with FaultProxy(mesh.gateway.spec.address) as proxy, asking(proxy.address) as caller:
        with report.case(10, "1-byte segments on every connection") as row:
            for each in (proxy, mesh.to_llm, mesh.to_cache, mesh.to_router):
                each.add(Slicer(1))
            outcomes = await asyncio.gather(
                *(caller.ask(f"Sliced {number}?", budget_ms=20_000) for number in range(10))
            )
            row.count(*outcomes)
            assert all(outcome.text == WORD * 4 and outcome.whole for outcome in outcomes)


async def test_single_bytes_that_take_too_long_end_at_the_budget(mesh: Mesh, report: Report):
    with report.case(10, "1-byte segments 20 ms apart between gateway and llm") as row:
        mesh.to_llm.add(Slicer(1, delay_us=20_000), "downstream")
        outcomes = await asyncio.gather(*(mesh.caller.ask(f"Drip {n}?", budget_ms=400, bypass=True) for n in range(5)))
        row.count(*outcomes)
        assert not any(outcome.ok for outcome in outcomes)
        _check_late(outcomes, 400, row)
