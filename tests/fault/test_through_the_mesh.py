"""The same faults where every service is there twice, found over xDS, and called through Envoy."""

from __future__ import annotations

import asyncio
import math
import signal
import socket
import time
from collections import Counter
from contextlib import closing

import pytest

from hedgerow import Answer, AsyncClient
from launcher.processes import check_health
from tests.fault.asking import Outcome, times_s
from tests.fault.flood import healthy, in_turns
from tests.fault.load import (
    RATE,
    Load,
    edited_topology,
    failures_in,
    in_service,
    is_typed,
    once_known,
    refusals,
    write_topology,
)
from tests.fault.mesh import killed
from tests.fault.proxy import Timeout
from tests.fault.replicated import GRACE_MS, Replicated
from tests.fault.report import Report
from tests.waiting import until

pytestmark = [pytest.mark.measures, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(120)]
_NOTICED_S = 2.0


@pytest.mark.parametrize("service", ["gateway", "llm", "cache", "router"])
async def test_killing_one_of_a_pair_costs_no_more_than_its_calls(
    replicas: Replicated, report: Report, full_size: bool, service: str
):
    victim, load = replicas.pairs[service][0], Load(replicas.caller, full_size)
    with report.case(4, f"SIGKILL of one {service} (mesh), {RATE} requests/s") as row:
        await load.send(100)
        in_flight, killing = load.in_flight, asyncio.create_task(killed(victim))
        await load.send(300)
        gone = await killing
        outcomes = await load.outcomes()
        row.count(*outcomes)
        failures = failures_in(outcomes)
        row.measured("success", 100 * (1 - len(failures) / len(outcomes)), 99.5, " %", at_least=True)
        row.measured("failures", len(failures), max(in_flight, 2), "")
        assert all(outcome.began < gone for outcome in failures), (gone, failures)
        if service != "gateway":  # a gateway's own streams cannot be resumed
            assert not failures
    with report.case(3, f"SIGKILL of one {service} (mesh), started again") as row:
        again = replicas.again(victim)
        await until(lambda: check_health(again.spec.address, 0.2), 60, holds="SERVING".__eq__)
        ready = time.monotonic()
        await replicas.until(replicas.sees(again))
        row.recovered(time.monotonic() - ready, 0.5)
        row.count(await replicas.caller.ask("Back again?"))


@pytest.mark.parametrize("way", ["straight", "through Envoy"])
async def test_an_answer_survives_its_gateway(replicas: Replicated, report: Report, full_size: bool, way: str):
    gateways = replicas.pairs["gateway"]
    both = "ipv4:" + ",".join(gateway.spec.address for gateway in gateways)
    # The gateway that is left has to have room for all of them, also on a busy machine: it refuses what is too much.
    rate, seconds = (RATE, 6) if full_size else (RATE // 2, 4)
    victim, words, streams = gateways[0], 40, seconds * rate
    with report.case(39, f"SIGKILL of one of two gateways, {rate} streams/s by the SDK, {way}") as row:
        async with AsyncClient(replicas.edge if way == "through Envoy" else both) as client:

            async def ask(number: int) -> Answer:
                return await client.ask(f"Stream {way} {number}?", budget_ms=5_000, max_tokens=words, cache="bypass")

            began, asked = time.monotonic(), list[asyncio.Task[Answer]]()
            for number in range(streams):
                await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
                asked.append(asyncio.create_task(ask(number)))
                if number == streams // 2:
                    victim.signal(signal.SIGKILL)
            answers = await asyncio.gather(*asked)
        resumed = sum("llm:resumed" in answer.degraded for answer in answers)
        row.tally(ok=len(answers) - resumed, degraded=resumed)
        assert {answer.text for answer in answers} == {"word " * words}, "words were repeated or lost"
        assert resumed, "no answer was under way when the gateway was killed"


@pytest.mark.parametrize("service", ["gateway", "llm"])
async def test_freezing_one_of_a_pair_is_noticed_and_healed(
    replicas: Replicated, report: Report, full_size: bool, service: str
):
    frozen, load = replicas.pairs[service][0], Load(replicas.caller, full_size, budget_ms=1_000)
    with report.case(5, f"SIGSTOP of one {service} (mesh), then SIGCONT") as row:
        frozen.signal(signal.SIGSTOP)
        began = time.monotonic()
        try:
            sending = asyncio.create_task(load.send(6 * RATE))
            await replicas.until(lambda mesh: not replicas.sees(frozen)(mesh))
            row.detected(time.monotonic() - began, _NOTICED_S)
            await sending
            known = await once_known(replicas, full_size)
        finally:
            frozen.signal(signal.SIGCONT)
        thawed = time.monotonic()
        await replicas.until(replicas.sees(frozen))
        row.recovered(time.monotonic() - thawed, 2.0)
        outcomes = await load.outcomes()
        row.count(*outcomes, *known)
        assert all(map(is_typed, outcomes))
        assert not failures_in(known)


@pytest.mark.parametrize("service", ["gateway", "llm"])
async def test_a_black_hole_before_one_of_a_pair_is_noticed_and_heals(
    replicas: Replicated, report: Report, full_size: bool, service: str
):
    proxy, load = replicas.proxies[service], Load(replicas.caller, full_size, budget_ms=1_000)
    with report.case(6, f"black hole before one {service} (mesh), then healed") as row:
        proxy.add(Timeout())
        began = time.monotonic()
        sending = asyncio.create_task(load.send(6 * RATE))
        await replicas.until(lambda mesh: not in_service(mesh, proxy.address))
        row.detected(time.monotonic() - began, _NOTICED_S)
        await sending
        known, outcomes = await once_known(replicas, full_size), await load.outcomes()
        row.count(*outcomes, *known)
        assert all(map(is_typed, outcomes))
        assert not failures_in(known)
        proxy.heal()
        healed = time.monotonic()
        await replicas.until(lambda mesh: in_service(mesh, proxy.address))
        row.recovered(time.monotonic() - healed, 2.0)


@pytest.mark.parametrize("service", ["gateway", "llm"])
async def test_a_silent_replica_of_a_pair_gets_no_calls(
    replicas: Replicated, report: Report, full_size: bool, service: str
):
    proxy = replicas.proxies[service]
    with report.case(7, f"one {service} (mesh) accepts TCP and never speaks") as row:
        proxy.add(Timeout())
        proxy.cut()
        await replicas.until(lambda mesh: not in_service(mesh, proxy.address))
        outcomes = await once_known(replicas, full_size)
        row.count(*outcomes)
        late = max(outcome.seconds for outcome in outcomes) * 1000 - 1_000
        row.measured("past the budget", max(0.0, late), 20)
        assert not failures_in(outcomes)


@pytest.mark.parametrize("service", ["gateway", "llm", "cache", "router"])
async def test_stopping_one_replica_of_a_pair_costs_nothing(
    replicas: Replicated, report: Report, full_size: bool, service: str
):
    leaving, load = replicas.pairs[service][0], Load(replicas.caller, full_size, max_tokens=20)
    with report.case(14, f"SIGTERM of one {service} (mesh), {RATE} requests/s") as row:
        await load.send(50)
        signalled = time.monotonic()
        leaving.signal(signal.SIGTERM)
        sending = asyncio.create_task(load.send(150))
        code = await leaving.wait(poll_s=0.005)
        row.measured("exit", (time.monotonic() - signalled) * 1000, GRACE_MS + 500)
        await sending
        outcomes = await load.outcomes()
        row.count(*outcomes)
        assert code == 0
        assert not failures_in(outcomes)


async def test_streams_that_outlast_a_gateways_grace_end_in_a_typed_way(replicas: Replicated, report: Report):
    leaving = replicas.pairs["gateway"][0]
    with report.case(15, "SIGTERM of one gateway (mesh), streams longer than its grace") as row:
        asked = [replicas.caller.start(f"Long {n}?", max_tokens=1_000, bypass=True) for n in range(10)]
        await asyncio.gather(*(stream.first_text() for stream in asked))
        signalled = time.monotonic()
        leaving.signal(signal.SIGTERM)
        code = await leaving.wait(poll_s=0.005)
        row.measured("exit", (time.monotonic() - signalled) * 1000, GRACE_MS + 500)
        outcomes = await asyncio.gather(*(stream.end() for stream in asked))
        row.count(*outcomes)
        assert code == 0
        cut = failures_in(list(outcomes))
        assert cut, "each gateway served some of the calls"
        assert len(cut) < len(outcomes)
        assert all(outcome.text for outcome in cut)


async def test_a_control_plane_that_is_away_changes_nothing(replicas: Replicated, report: Report, full_size: bool):
    load = Load(replicas.caller, full_size)
    with report.case(3, "SIGKILL of the control plane, started again (mesh)") as row:
        replicas.control.signal(signal.SIGKILL)
        await load.send(2 * RATE)
        again = replicas.again(replicas.control)
        sending = asyncio.create_task(load.send(4 * RATE))
        await again.wait_serving()
        await replicas.well()
        await sending
        outcomes = await load.outcomes()
        row.count(*outcomes)
        assert not failures_in(outcomes)
        undegraded = sum(not outcome.degraded for outcome in outcomes)
        # The cache has 200 ms of each call. On a slow machine a process that starts takes that time away, and a breaker
        # leaves the cache alone for a while: which is in the table, and no fault of this one.
        row.measured("undegraded", 100 * undegraded / len(outcomes), 99, " %", at_least=True, slack=math.inf)


async def test_redis_that_is_away_costs_no_answer(replicas: Replicated, report: Report, full_size: bool):
    load = Load(replicas.caller, full_size)
    with report.case(3, "SIGKILL of Redis, started again (mesh)") as row:
        await load.send(RATE)
        await replicas.redis.kill()
        await load.send(2 * RATE)
        await replicas.redis.start()
        await load.send(2 * RATE)
        outcomes = await load.outcomes()
        row.count(*outcomes)
        assert not failures_in(outcomes)
        marks = Counter(label for outcome in outcomes for label in outcome.final.degraded)
        assert set(marks) == {"cache:local"}, "answers from the replica's memory alone are marked"


async def test_a_configuration_refused_by_envoy_is_reported_and_the_good_one_stays(replicas: Replicated):
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with edited_topology(replicas.topology) as topology:
            topology["edge"]["address"] = f"127.0.0.1:{taken.getsockname()[1]}"
            write_topology(replicas.topology, topology)
            mesh = await replicas.until(lambda mesh: any(refusals(mesh)), within_s=30)
            assert "cannot bind" in " ".join(refusals(mesh))
            assert (await replicas.caller.ask("Still there?")).ok
    await replicas.until(lambda mesh: not any(refusals(mesh)), within_s=30)


async def test_a_drill_in_the_topology_reaches_the_gateways_own_calls_and_ends_with_it(replicas: Replicated):
    def drilled(outcome: Outcome) -> bool:
        return "delayed" in outcome.decided("drill")

    with edited_topology(replicas.topology) as topology:
        topology["services"]["llm"]["drill"] = {"delay_ms": 20, "delay_percent": 100}
        write_topology(replicas.topology, topology)
        outcomes = await replicas.caller.until(drilled, within_s=30, bypass=True)
        assert all(outcome.whole for outcome in outcomes)
    await replicas.caller.until(lambda outcome: not drilled(outcome), within_s=30, bypass=True)


async def test_a_flood_of_cancelled_calls_at_the_edge(replicas: Replicated, report: Report, full_size: bool):
    with report.case(17, "flood of cancelled calls on one connection (mesh)") as row:
        before, during, bare = await in_turns(replicas.caller, replicas.edge, 4 if full_size else 1)
        row.count(*during)
        row.slowed("p99", times_s(before), times_s(during), bare=bare)


async def test_a_thousand_silent_connections_at_the_edge(replicas: Replicated, report: Report):
    before = await healthy(replicas.caller)
    host, _, port = replicas.edge.rpartition(":")
    with report.case(17, "1,000 silent connections (mesh)") as row:
        silent = [await asyncio.open_connection(host, int(port)) for _ in range(1_000)]
        try:
            during = await healthy(replicas.caller)
        finally:
            for _, writer in silent:
                writer.close()
        row.count(*during)
        row.slowed("p99", times_s(before), times_s(during))
        assert not failures_in(during)
