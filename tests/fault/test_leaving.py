"""Callers cancel, and services are stopped with SIGTERM."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator
from typing import Any
from urllib.request import urlopen

import grpc
import psutil
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from hedgerow.cache.v1 import cache_pb2
from hedgerow.channel import open_channel
from hedgerow.chat.v1 import chat_pb2
from services.runtime.rpc.boundary import Call
from tests.fault.asking import Asker, Outcome, asking
from tests.fault.faulty_llm import WORD, Behaviour, FaultyLlm, serving
from tests.fault.mesh import Mesh, Processes
from tests.fault.proxy import FaultProxy
from tests.fault.report import Report
from tests.forked import ServiceProcess
from tests.waiting import until

pytestmark = [pytest.mark.measures, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(60)]
_LONG = Behaviour(tokens=2_000, each_ms=20)
_GRACE_S = 2.0
_ORDER_S = 0.01  # events of two connections cannot be ordered more closely


@pytest.mark.parametrize("way", ["cancels", "disconnects"])
async def test_the_engine_stops_when_its_caller_leaves(mesh: Mesh, report: Report, way: str):
    async with FaultProxy(mesh.gateway.spec.address) as proxy, asking(proxy.address) as caller:
        with report.case(13, f"the client {way}, 20 streams") as row:
            mesh.llm.behaviour = _LONG
            asked = [caller.start(f"Leaving {number}?") for number in range(20)]
            await asyncio.gather(*(stream.first_text() for stream in asked))
            assert mesh.llm.running == 20
            left = time.monotonic()
            if way == "disconnects":
                proxy.cut()
            for stream in asked:
                stream.cancel()
            await until(lambda: not mesh.llm.running, 10)
            row.tally(failed=len(asked))
            assert len(mesh.llm.cancelled) == 20
            row.detected(max(mesh.llm.cancelled) - left, 0.1)
            await until(lambda: not any(_gauges(mesh.gateway).values()), 10)


def _gauges(gateway: ServiceProcess) -> dict[str, float]:
    """A gateway's gauges of running and waiting work, by metric and labels."""
    with urlopen(f"http://{gateway.spec.environment['HEDGEROW_GATEWAY_METRICS_ADDRESS']}/metrics") as page:
        lines = page.read().decode().splitlines()
    found = [line.rpartition(" ") for line in lines if line.startswith(("hedgerow_in_flight", "hedgerow_waiting"))]
    return {name: float(value) for name, _, value in found}


class HangingCache:
    """A simulated cache that never answers a lookup, and notes when its callers leave, in monotonic seconds."""

    def __init__(self) -> None:
        self.cancelled: list[float] = []
        self.lookups = 0

    async def Lookup(self, request: cache_pb2.LookupRequest, call: Call) -> cache_pb2.LookupResponse:
        self.lookups += 1
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.append(time.monotonic())
            raise
        return cache_pb2.LookupResponse()

    async def WatchInvalidations(
        self, request: cache_pb2.WatchInvalidationsRequest, call: Call
    ) -> AsyncIterator[cache_pb2.WatchInvalidationsResponse]:
        yield cache_pb2.WatchInvalidationsResponse()
        await asyncio.Event().wait()


async def test_a_lookup_stops_when_its_caller_leaves(starter: Processes, llm: FaultyLlm, report: Report):
    service, cache = cache_pb2.DESCRIPTOR.services_by_name["CacheService"], HangingCache()
    async with serving(service, cache) as address:
        budgets = {"cache": {"share": 1, "cap_ms": 60_000}}
        gateway = await starter.gateway(llm.address, cache_address=address, stages=budgets, floor_share=0)
        async with asking(gateway.spec.address) as caller:
            with report.case(13, "the client cancels while the cache is asked, 20 calls") as row:
                asked = [caller.start(f"Looking up {number}?") for number in range(20)]
                await until(lambda: cache.lookups == 20, 10)
                left = time.monotonic()
                for stream in asked:
                    stream.cancel()
                await until(lambda: len(cache.cancelled) == 20, 10)
                row.tally(failed=len(asked))
                row.detected(max(cache.cancelled) - left, 0.1)
                assert llm.attempts == []
        await gateway.stop()


async def test_a_stopping_gateway_finishes_its_requests(starter: Processes, llm: FaultyLlm, report: Report):
    gateway = await starter.gateway(llm.address, grace_ms=int(_GRACE_S * 1000))
    llm.behaviour = Behaviour(tokens=40, each_ms=20)
    address = gateway.spec.address
    async with asking(address) as caller, asking(address) as other, open_channel(address) as channel:
        with report.case(14, "SIGTERM of the gateway under load") as row:
            not_serving = asyncio.create_task(_not_serving(channel))
            asked = [caller.start(f"Stopping {number}?") for number in range(20)]
            await asyncio.gather(*(stream.first_text() for stream in asked))
            short = asyncio.create_task(other.until(lambda o: o.failed, within_s=20, max_tokens=1))
            children = psutil.Process(gateway.pid).children(recursive=True)
            signalled = time.monotonic()
            gateway.signal(signal.SIGTERM)
            outcomes = await asyncio.gather(*(stream.end() for stream in asked))
            code = await gateway.wait(poll_s=0.005)
            exited, others = time.monotonic(), await short
            row.count(*outcomes, *others)
            assert all(outcome.ok and outcome.text == WORD * 40 for outcome in outcomes)
            assert await not_serving <= others[-1].ended + _ORDER_S
            assert all(outcome.typed for outcome in others)
            assert (code, [child for child in children if child.is_running()]) == (0, [])
            row.detected(await not_serving - signalled, 0.1)
            row.measured("exit", (exited - signalled) * 1000, (_GRACE_S + 0.5) * 1000)


async def _not_serving(channel: grpc.aio.Channel) -> float:
    """When health stops saying SERVING, in monotonic seconds."""
    stub: Any = health_pb2_grpc.HealthStub(channel)
    watch = stub.Watch(health_pb2.HealthCheckRequest(), timeout=30)
    async for reply in watch:
        if reply.status == health_pb2.HealthCheckResponse.NOT_SERVING:
            break
    watch.cancel()
    return time.monotonic()


@pytest.mark.parametrize("service", ["cache", "router"])
async def test_a_backend_that_a_gateway_follows_stops_in_time(
    starter: Processes, llm: FaultyLlm, report: Report, service: str
):
    settings = {"grace_ms": 500}
    backend = await (starter.router(**settings) if service == "router" else starter.start(service, **settings))
    gateway = await starter.gateway(llm.address, **{f"{service}_address": backend.spec.address})
    async with asking(gateway.spec.address) as caller:
        with report.case(14, f"SIGTERM of the {service}, which a gateway follows") as row:
            row.count(await caller.ask())
            signalled = time.monotonic()
            backend.signal(signal.SIGTERM)
            asked = asyncio.create_task(_ask_on(caller, backend))
            assert await backend.wait(poll_s=0.005) == 0
            row.measured("exit", (time.monotonic() - signalled) * 1000, 1_000)
            outcomes = await asked
            row.count(*outcomes)
            assert all(outcome.whole for outcome in outcomes)


async def _ask_on(caller: Asker, until_gone: ServiceProcess) -> list[Outcome]:
    outcomes = []
    while until_gone.exit_code is None:
        outcomes.append(await caller.ask(f"Question {time.monotonic_ns()}?", budget_ms=2_000))
    return outcomes


async def test_a_stream_longer_than_the_gateways_grace_has_a_typed_end(
    starter: Processes, llm: FaultyLlm, report: Report
):
    gateway = await starter.gateway(llm.address, grace_ms=300)
    llm.behaviour = _LONG
    async with asking(gateway.spec.address) as caller:
        with report.case(15, "SIGTERM of the gateway, streams longer than its grace of 300 ms") as row:
            outcomes, code, seconds = await _stop_under(caller, gateway)
            row.count(*outcomes)
            assert code == 0
            for outcome in outcomes:
                assert outcome.typed, outcome
                assert not outcome.whole
                assert outcome.unavailable or outcome.final.finish_reason == chat_pb2.FINISH_REASON_INTERRUPTED
            row.measured("exit", seconds * 1000, 800)
            await until(lambda: not llm.running, 10)


async def test_a_stream_longer_than_the_models_grace_has_a_typed_end(starter: Processes, report: Report):
    llm = await starter.start("simulated_llm", tokens=2_000, each_ms=20, grace_ms=300)
    gateway = await starter.gateway(llm.spec.address)
    async with asking(gateway.spec.address) as caller:
        with report.case(15, "SIGTERM of the llm, streams longer than its grace of 300 ms") as row:
            outcomes, code, seconds = await _stop_under(caller, llm)
            row.count(*outcomes)
            assert code == 0
            for outcome in outcomes:
                assert outcome.final is not None, outcome
                assert outcome.final.finish_reason == chat_pb2.FINISH_REASON_INTERRUPTED
                assert outcome.text == outcome.final.text
            row.measured("exit", seconds * 1000, 800)


async def _stop_under(caller: Asker, process: ServiceProcess) -> tuple[list[Outcome], int, float]:
    """Stop a process in the middle of ten streams: how they ended, its exit code, and seconds to its exit."""
    asked = [caller.start(f"Long {number}?") for number in range(10)]
    await asyncio.gather(*(stream.first_text() for stream in asked))
    signalled = time.monotonic()
    process.signal(signal.SIGTERM)
    outcomes = await asyncio.gather(*(stream.end() for stream in asked))
    code = await process.wait(poll_s=0.005)
    return list(outcomes), code, time.monotonic() - signalled
