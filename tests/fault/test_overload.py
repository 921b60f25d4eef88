"""More than there is room for."""

from __future__ import annotations

import asyncio
import math
import signal
import socket
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from bench import overload
from bench.jagged.latency import Mixture, Profile
from bench.load import Outcome as Came
from tests.fault.asking import Asker, Outcome, asking, times_s
from tests.fault.flood import healthy, in_turns
from tests.fault.mesh import Mesh, Processes
from tests.fault.replicated import start_edge
from tests.fault.report import Report, Row

pytestmark = [pytest.mark.measures, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(120)]
_CROWD = 50  # calls on a connection


async def _compare(caller: Asker, before: list[Outcome], row: Row) -> None:
    """The healthy caller now, against what it was."""
    outcomes = await healthy(caller)
    row.count(*outcomes)
    assert all(outcome.ok for outcome in outcomes)
    row.slowed("p99", times_s(before), times_s(outcomes))


async def test_a_flood_of_cancelled_calls_leaves_a_healthy_caller_alone(
    starter: Processes, report: Report, full_size: bool
):
    gateway = await starter.gateway((await starter.start("simulated_llm")).spec.address)
    with report.case(17, "flood of cancelled calls on one connection") as row:
        async with asking(gateway.spec.address) as caller:
            before, during, bare = await in_turns(caller, gateway.spec.address, 4 if full_size else 1)
        row.count(*during)
        assert all(outcome.ok for outcome in during)
        row.slowed("p99", times_s(before), times_s(during), bare=bare)


async def test_silent_connections_leave_a_healthy_caller_alone(mesh: Mesh, report: Report):
    before = await healthy(mesh.caller)
    with report.case(17, "1,000 silent connections") as row:
        async with _silent(mesh.gateway.spec.address, 1_000):
            await _compare(mesh.caller, before, row)


async def test_clients_beyond_an_unannounced_stream_limit_get_a_response(starter: Processes, tmp_path: Path):
    """Each is answered, or refused by the gateway in its own words: none is reset, which says nothing."""
    gateway = await starter.gateway((await starter.start("simulated_llm")).spec.address)
    edge = await start_edge(starter, tmp_path / "edge", gateway)
    async with AsyncExitStack() as stack:
        callers = [await stack.enter_async_context(asking(edge)) for _ in range(8)]
        gateway.signal(signal.SIGSTOP)  # connections that Envoy opens meanwhile lack the gateway's HTTP/2 settings
        asked = [asyncio.create_task(each.ask("Who is there?", budget_ms=20_000)) for each in callers * _CROWD]
        await asyncio.sleep(0.5)
        gateway.signal(signal.SIGCONT)
        outcomes = await asyncio.gather(*asked)
    assert {each.code for each in outcomes} <= {grpc.StatusCode.OK, grpc.StatusCode.RESOURCE_EXHAUSTED}, outcomes


@pytest.mark.timeout(240)
async def test_three_times_the_capacity_costs_the_excess_and_no_more(
    tmp_path: Path, report: Report, full_size: bool, monkeypatch: pytest.MonkeyPatch
):
    seconds, alone_s, callers_s = (60.0, 6.0, 3.0) if full_size else (6.0, 4.0, 2.0)
    if not full_size:  # a third of the requests, for machines that have other work besides
        monkeypatch.setattr(overload, "PROFILE", Profile(Mixture(median_ms=400, sigma=0.25), each_ms=9))
        monkeypatch.setattr(overload, "RECOVERY_S", 8.0)
    with report.case(16, f"3 × the measured capacity for {seconds:.0f} s, then half of it") as row:
        async with overload.arranged(tmp_path) as arrangement:
            capacity = max((await arrangement.capacity_rps(callers_s, (24,))).values())
            unloaded_p99_ms = overload.p99_ms(await arrangement.unloaded(capacity, alone_s))
            both = await arrangement.level_then_recovery(3, capacity, seconds)
        samples = [sample for sample in both if sample.at_s < seconds]
        came = Counter(sample.outcome for sample in samples)
        row.tally(came.pop(Came.OK, 0), came.pop(Came.DEGRADED, 0), came.total())
        level: dict[str, Any] = overload.summary(3, samples, seconds, capacity)
        assert level["failed"] == 0, level  # refused is what the excess is, and nothing else
        row.measured("goodput", 100 * level["goodput_of_peak"], 90, " % of the peak", at_least=True)
        row.measured("admitted p99", level["admitted_p99_ms"] / unloaded_p99_ms, 2, " × unloaded")
        row.measured("rejection p50", level["rejection_p50_ms"], 10)
        # Five calls of 500 make it: where the machine stood still for a second, it is that second.
        row.measured("rejection p99", level["rejection_p99_ms"], 10, slack=math.inf, bare=row.bare_p99_ms())
        let_in = {name: count / (count + level["rejected"][name]) for name, count in level["admitted"].items()}
        # Normal and low ones are both below the score that sheds, and too few are admitted to compare them.
        assert min(let_in["critical"], let_in["high"]) > max(let_in["normal"], let_in["low"]), level
        row.measured("critical let in", 100 * let_in["critical"], 95, " %", at_least=True)
        after = [sample for sample in both if sample.at_s >= seconds]
        recovery_s = overload.recovery_s(after, seconds, 1.5 * unloaded_p99_ms)
        assert recovery_s is not None
        row.recovered(recovery_s, 5.0)


@asynccontextmanager
async def _silent(address: str, count: int) -> AsyncIterator[None]:
    """TCP connections that never send a byte."""
    host, _, port = address.rpartition(":")
    loop, sockets = asyncio.get_running_loop(), []
    try:
        for _ in range(count):
            sockets.append(client := socket.socket())
            client.setblocking(False)
            await asyncio.wait_for(loop.sock_connect(client, (host, int(port))), 10)
        yield
    finally:
        for client in sockets:
            client.close()
