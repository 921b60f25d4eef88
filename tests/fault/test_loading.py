"""A model that loads: probes say that the gateway is not ready, and calls wait for the model within their budgets."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import grpc
import httpx
import pytest

from launcher.processes import check_health, free_port
from tests.fault.asking import MODEL, Asker, Outcome, asking
from tests.fault.mesh import Processes, killed
from tests.fault.report import Report
from tests.forked import ServiceProcess
from tests.waiting import until

pytestmark = [pytest.mark.measures, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(180)]
_BREAKS_AFTER = 5  # failures in a row, which open a breaker


async def _ready(http: httpx.AsyncClient) -> tuple[int, Any]:
    answer = await http.get("/ready")
    return answer.status_code, answer.json()


async def _health(process: ServiceProcess) -> str:
    return await check_health(process.spec.address, 1)


async def _ask_all(caller: Asker, calls: int, load_ms: int) -> list[Outcome]:
    asked = (caller.ask(f"Loading {number}?", budget_ms=load_ms + 20_000) for number in range(calls))
    return await asyncio.gather(*asked)


def _policies(outcome: Outcome) -> set[str]:
    return {decision.policy for decision in outcome.final.decisions} if outcome.final else set()


async def test_calls_to_a_model_that_loads_wait_for_it_and_the_gateway_is_not_ready_before(
    starter: Processes, report: Report, full_size: bool
):
    load_ms, calls, port = 27_000 if full_size else 1_500, 50 if full_size else 2 * _BREAKS_AFTER, free_port()
    alone = {"cache_address": "", "router_address": "", "http_address": f"127.0.0.1:{port}"}
    llm = starter.launch("simulated_llm", load_ms=load_ms)
    gateway = starter.launch("gateway", llm_addresses={MODEL: llm.spec.address}, **alone)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http, asking(gateway.spec.address) as caller:
        with report.case(53, f"{calls} calls while the only model loads for {load_ms / 1000:g} s, and probes") as row:
            await until(lambda: _health(gateway), 30, holds=lambda said: said == "NOT_SERVING")
            await until(lambda: _is_there(http), 30)
            asked = asyncio.create_task(_ask_all(caller, calls, load_ms))
            short = await caller.ask("Soon?", budget_ms=300)
            assert (short.code, "the model is starting" in short.details) == (grpc.StatusCode.UNAVAILABLE, True), short
            assert await _ready(http) == (503, {"status": "starting", "missing": ["llm"]})
            assert (await http.get("/health")).status_code == 200
            assert await _health(gateway) == "NOT_SERVING"
            await llm.wait_serving()
            served = time.monotonic()
            await until(lambda: _ready(http), 30, holds=lambda value: value == (200, {"status": "ready"}))
            row.measured("ready after the model", (time.monotonic() - served) * 1000, 200)
            assert await _health(gateway) == "SERVING"
            outcomes = await asked
            row.count(short, *outcomes)
            assert all(outcome.ok for outcome in outcomes)
            known = {"start", "limit"}  # with 50 at once some wait for a slot; no breaker opened, no call was retried
            assert all({"start"} <= _policies(outcome) <= known for outcome in outcomes)
            assert "to start" in outcomes[0].stage("llm").detail
            row.recovered(max(outcome.ended for outcome in outcomes) - served, 1)
        with report.case(53, "the only model is killed, and loads again: the gateway stays ready") as row:
            await killed(llm)
            gone = await caller.until(lambda outcome: outcome.unavailable, within_s=10, budget_ms=300)
            assert await _ready(http) == (200, {"status": "ready"})
            assert await _health(gateway) == "SERVING"
            again = starter.run(llm.spec)
            await until(lambda: _health(again), 30, holds=lambda said: said == "NOT_SERVING")
            assert all(outcome.typed for outcome in gone)
            waits = await caller.until(lambda outcome: outcome.ok, within_s=30, budget_ms=load_ms + 20_000)
            assert "start" in _policies(waits[-1])
            row.count(*gone, *waits)


async def _is_there(http: httpx.AsyncClient) -> bool:
    try:
        return (await http.get("/health")).is_success
    except httpx.TransportError:
        return False
