"""A backend is killed, restarted or frozen."""

from __future__ import annotations

import asyncio
import signal
import time
from typing import Any

import grpc
import pytest

from hedgerow.cache.v1 import cache_pb2, cache_pb2_grpc
from hedgerow.channel import open_channel
from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from launcher.processes import check_health
from tests.fault.asking import Asker, Outcome, asking
from tests.fault.mesh import ATTENTIVE, UNLIMITED, Mesh, Processes, killed, stats
from tests.fault.report import Report
from tests.forked import ServiceProcess
from tests.waiting import until

pytestmark = [pytest.mark.measures, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(60)]
_WORD = "word "  # the text of the simulated llm
_ON_TIME_S = 0.02  # how late an end may be


async def test_killing_the_cache_ends_its_calls_at_once_and_costs_no_answer(mesh: Mesh, report: Report):
    with report.case(1, "SIGKILL of the cache with lookups in flight") as row:
        mesh.cache.signal(signal.SIGSTOP)  # so that they are in flight for sure
        async with open_channel(mesh.cache.spec.address) as channel:
            waiting = [asyncio.create_task(_lookup(channel)) for _ in range(10)]
            asked = [asyncio.create_task(mesh.caller.ask(f"Killed {n}?", budget_ms=2_000)) for n in range(10)]
            await asyncio.sleep(0.05)
            killed = time.monotonic()
            mesh.cache.signal(signal.SIGKILL)
            ends = await asyncio.gather(*waiting)
        outcomes = await asyncio.gather(*asked)
        row.count(*outcomes)
        row.tally(failed=len(ends))
        assert {code for code, _ in ends} == {grpc.StatusCode.UNAVAILABLE}
        assert all(outcome.whole and outcome.degraded for outcome in outcomes)
        assert {outcome.final.cache.verdict for outcome in outcomes} == {pb.CACHE_VERDICT_UNAVAILABLE}
        row.detected(max(at for _, at in ends) - killed, 0.05)
        row.measured("answer", max(outcome.seconds for outcome in outcomes) * 1000, 2_000)
    with report.case(3, "SIGKILL of the cache, started again") as row:
        row.recovered(await _seconds_to_serve(mesh.launch_cache(), mesh.caller, row), 0.5)


async def _lookup(channel: grpc.aio.Channel) -> tuple[grpc.StatusCode, float]:
    """How and when a lookup ended."""
    stub: Any = cache_pb2_grpc.CacheServiceStub(channel)
    messages = [chat_pb2.Message(role=chat_pb2.ROLE_USER, content="Who is there?")]
    request = cache_pb2.LookupRequest(question=cache_pb2.Question(tenant="t", messages=messages))
    try:
        await stub.Lookup(request, timeout=20)
    except grpc.aio.AioRpcError as error:
        return error.code(), time.monotonic()
    return grpc.StatusCode.OK, time.monotonic()


async def _seconds_to_serve(process: ServiceProcess, caller: Asker, row: Any, **fields: Any) -> float:
    """From the moment a process serves to the first answer that it took its part in; asked all the while."""

    async def ready() -> float:
        await until(lambda: check_health(process.spec.address, 0.2), 60, holds="SERVING".__eq__)
        return time.monotonic()

    serving = asyncio.create_task(ready())
    outcomes = await caller.until(lambda outcome: outcome.ok, within_s=30, every_s=0.05, **fields)
    row.count(*outcomes)
    assert all(outcome.typed for outcome in outcomes)
    return max(0.0, outcomes[-1].ended - await serving)


@pytest.mark.parametrize(
    ("replicas", "continues", "fault"),
    [
        (1, False, "SIGKILL of the only llm in mid-stream"),
        (2, False, "SIGKILL of one of two llms in mid-stream"),
        (2, True, "the same, and the other can go on from a prefix"),
    ],
)
async def test_killing_the_model_in_the_middle_never_truncates_in_silence(
    starter: Processes, report: Report, replicas: int, continues: bool, fault: str
):
    settings = {"tokens": 60, "each_ms": 20, "continues": continues}
    cache, *llms = await asyncio.gather(
        starter.start("cache"), *(starter.start("simulated_llm", **settings) for _ in range(replicas))
    )
    gateway = await starter.gateway(*(llm.spec.address for llm in llms), cache_address=cache.spec.address)
    async with asking(gateway.spec.address) as caller:
        await asyncio.gather(*(caller.ask(f"Before {number}?", max_tokens=1, bypass=True) for number in range(60)))
        with report.case(2, fault) as row:  # by now enough requests have earned the retries that going on takes
            asked = [caller.start(f"Story {number}?") for number in range(10)]
            await asyncio.gather(*(stream.first_text() for stream in asked))
            killed = time.monotonic()
            llms[0].signal(signal.SIGKILL)
            outcomes = await asyncio.gather(*(stream.end() for stream in asked))
            row.count(*outcomes)
            for outcome in outcomes:
                _check_end(outcome, tokens=60)
            broken = [outcome for outcome in outcomes if not outcome.whole]
            if continues:
                assert broken == []
            if replicas == 1:
                assert len(broken) == len(outcomes)
                row.detected(max(outcome.ended for outcome in broken) - killed, 0.05)
            whole = sum(outcome.ok for outcome in outcomes)
            await until(lambda: stats(cache.spec.address), holds=lambda value: value.stores >= whole)
            await asyncio.sleep(0.2)  # more than a store takes
            assert (await stats(cache.spec.address)).stores == whole


def _check_end(outcome: Outcome, tokens: int) -> None:
    """A typed end with what there was, or all of it."""
    assert outcome.code is grpc.StatusCode.OK, outcome
    assert outcome.typed
    assert outcome.final.text == outcome.text
    if outcome.whole:
        assert outcome.text == _WORD * tokens
        return
    assert outcome.final.finish_reason == chat_pb2.FINISH_REASON_INTERRUPTED
    assert outcome.final.degraded
    assert (_WORD * tokens).startswith(outcome.text)


async def test_a_model_that_is_started_again_serves_again(starter: Processes, report: Report):
    llm = await starter.start("simulated_llm")
    gateway = await starter.gateway(llm.spec.address)
    async with asking(gateway.spec.address) as caller:
        with report.case(3, "SIGKILL of the only llm, started again") as row:
            row.count(await caller.ask())
            llm.signal(signal.SIGKILL)
            row.count(*await caller.until(lambda outcome: outcome.failed, within_s=5, budget_ms=200))
            again = starter.launch("simulated_llm", llm.spec.address)
            row.recovered(await _seconds_to_serve(again, caller, row), 0.5)


@pytest.mark.parametrize(
    ("frozen", "fault"),
    [
        (False, "SIGKILL of the only llm, started again after 1 s: calls that find it away"),
        (True, "SIGSTOP of the only llm until its connection is lost, then SIGCONT: calls that find it away"),
    ],
)
async def test_calls_that_find_the_only_replica_away_wait_for_it(
    starter: Processes, report: Report, frozen: bool, fault: str
):
    starter.environment |= ATTENTIVE
    llm = await starter.start("simulated_llm", tokens=4, first_ms=20, each_ms=5)
    gateway = await starter.gateway(llm.spec.address, limit__algorithm="fixed", limit__initial=4, limit__queue=8)
    async with asking(gateway.spec.address) as caller:
        with report.case(3, fault) as row:
            await caller.ask("Before?")
            llm.signal(signal.SIGSTOP if frozen else signal.SIGKILL)
            row.count(*await caller.until(_finds_it_away, within_s=10, budget_ms=200))
            asked = [asyncio.create_task(caller.ask(f"Away {number}?", budget_ms=20_000)) for number in range(40)]
            await asyncio.sleep(1)
            if frozen:
                llm.signal(signal.SIGCONT)
            else:
                llm = starter.run(llm.spec)
                await llm.wait_serving()
            back = time.monotonic()
            outcomes = await asyncio.gather(*asked)
            row.count(*outcomes)
            assert all(outcome.ok and "waited" in outcome.decided("start") for outcome in outcomes), outcomes
            row.recovered(min(outcome.ended for outcome in outcomes) - back, 0.5)


def _finds_it_away(outcome: Outcome) -> bool:
    """Whether the gateway knew that there is no connection, and waited for it in vain."""
    return outcome.unavailable and "no connection" in outcome.details


async def test_killing_one_of_two_replicas_costs_no_more_than_its_calls(starter: Processes, report: Report):
    llms = await asyncio.gather(*(starter.start("simulated_llm", tokens=4, first_ms=20, each_ms=5) for _ in range(2)))
    gateway = await starter.gateway(*(llm.spec.address for llm in llms), **UNLIMITED)
    async with asking(gateway.spec.address) as caller:
        with report.case(4, "SIGKILL of one of two replicas, 100 requests/s") as row:
            outcomes, in_flight, gone = await _kill_under_load(caller, llms[0], requests=600)
            row.count(*outcomes)
            broken = [outcome for outcome in outcomes if not outcome.whole]
            failures = len(broken)
            assert all(outcome.typed for outcome in outcomes)
            row.measured("success", 100 * (1 - failures / len(outcomes)), 99.5, " %", at_least=True)
            row.measured("failures", failures, max(in_flight, 2), "")
            assert all(outcome.began < gone for outcome in broken), (gone, broken)


async def _kill_under_load(caller: Asker, victim: ServiceProcess, requests: int) -> tuple[list[Outcome], int, float]:
    """Ask at 100 a second, kill in the middle; the outcomes, how many calls were under way at that moment, and when the
    process was gone (time.monotonic())."""
    tasks: list[asyncio.Task[Outcome]] = []
    in_flight, started = 0, time.monotonic()
    for number in range(requests):
        await asyncio.sleep(max(0.0, started + number / 100 - time.monotonic()))
        tasks.append(asyncio.create_task(caller.ask(f"Load {number}?", budget_ms=5_000)))
        if number == requests // 3:
            in_flight = sum(not task.done() for task in tasks)
            gone = asyncio.create_task(killed(victim))
    return list(await asyncio.gather(*tasks)), in_flight, await gone


async def test_a_frozen_cache_costs_its_slice_and_is_noticed(mesh: Mesh, report: Report):
    with report.case(5, "SIGSTOP of the cache, then SIGCONT") as row:
        frozen = time.monotonic()
        mesh.cache.signal(signal.SIGSTOP)
        try:
            outcomes = await mesh.caller.until(Outcome.cache_skipped, within_s=25, budget_ms=500)
            row.detected(outcomes[-1].ended - frozen, 2.0)
        finally:
            mesh.cache.signal(signal.SIGCONT)
        thawed = time.monotonic()
        row.count(*outcomes)
        assert all(outcome.whole and outcome.degraded for outcome in outcomes)
        late = max(outcome.stage("cache").spent_ms - outcome.stage("cache").budget_ms for outcome in outcomes)
        row.measured("past the slice", max(0.0, late), _ON_TIME_S * 1000)
        outcomes = await mesh.caller.until(lambda outcome: outcome.ok, within_s=20, budget_ms=500)
        row.count(*outcomes)
        row.recovered(outcomes[-1].ended - thawed, 2.0)


async def test_a_frozen_model_ends_at_the_budget_and_is_noticed(starter: Processes, report: Report):
    starter.environment |= ATTENTIVE
    llm = await starter.start("simulated_llm", tokens=100, each_ms=10)
    gateway = await starter.gateway(llm.spec.address)
    async with asking(gateway.spec.address) as caller:
        await caller.ask("Before?", max_tokens=1)  # a connection is made in the caller's time, before any budget
        with report.case(5, "SIGSTOP of the only llm in mid-stream, then SIGCONT") as row:
            patient = caller.start("Patient?", budget_ms=20_000, max_tokens=2_000, single_attempt=True)
            asked = [caller.start(f"Frozen {number}?", budget_ms=500) for number in range(10)]
            await asyncio.gather(*(stream.first_text() for stream in (patient, *asked)))
            frozen = time.monotonic()
            llm.signal(signal.SIGSTOP)
            outcomes = await asyncio.gather(*(stream.end() for stream in asked))
            row.count(*outcomes)
            for outcome in outcomes:
                assert outcome.final is not None, outcome
                assert outcome.final.finish_reason == chat_pb2.FINISH_REASON_BUDGET
                assert outcome.text
            row.measured("past the budget", max(o.seconds for o in outcomes) * 1000 - 500, _ON_TIME_S * 1000)
            row.count(end := await patient.end())
            assert end.final.finish_reason == chat_pb2.FINISH_REASON_INTERRUPTED
            row.detected(end.ended - frozen, 2.0)
            row.count(*await caller.until(lambda o: o.unavailable, within_s=25, budget_ms=200))
            thawed = time.monotonic()
            llm.signal(signal.SIGCONT)
            outcomes = await caller.until(lambda o: o.ok, within_s=20, budget_ms=500, max_tokens=4)
            row.count(*outcomes)
            row.recovered(outcomes[-1].ended - thawed, 2.0)
