"""Callers without a credential do not harm callers with one."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import grpc
import pytest
import pytest_asyncio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from hedgerow.channel import open_channel
from launcher.processes import check_health
from tests.fault.asking import Asker, Outcome, asking, times_s
from tests.fault.faulty_llm import faulty_llm
from tests.fault.mesh import processes
from tests.fault.replicated import start_edge
from tests.fault.report import Report
from tests.fault.strangers import strangers
from tests.forked import ServiceProcess
from tests.keys import digest

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(60)]
_KEY = "sesame"
_TENANTS = {"acme": {"keys": [digest(_KEY)]}}
_FAULTS = {
    "watches": "1,100 health watches",
    "headers": "1,100 questions' headers, and no body",
    "bodies": "1,100 questions' bodies, a byte a second",
}
_kinds = pytest.mark.parametrize("kind", _FAULTS)


@dataclass(frozen=True, slots=True)
class Entrances:
    """Three addresses of one gateway with keys: an Envoy that refuses callers without a credential (`closed`), an Envoy
    that leaves this to the gateway (`open`), and the gateway's own."""

    closed: str
    open: str
    gateway: ServiceProcess


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def entrances(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Entrances]:
    folder = tmp_path_factory.mktemp("entrances")
    async with processes(folder) as starter, faulty_llm() as llm:
        gateway = await starter.gateway(llm.address, tenants=_TENANTS)
        closed = await start_edge(starter, folder / "closed", gateway, closed=True)
        yield Entrances(closed, await start_edge(starter, folder / "open", gateway), gateway)


@_kinds
async def test_peers_without_a_credential_take_nothing_from_callers(
    entrances: Entrances, report: Report, full_size: bool, kind: str
):
    with report.case(30, f"no credential: {_FAULTS[kind]}, through Envoy") as row:
        async with asking(entrances.closed, _KEY) as caller:
            before = await _ask(caller, full_size)
            async with strangers(entrances.closed, kind):
                during = await _ask(caller, full_size)
                assert await check_health(entrances.closed, 5) == "SERVING"
        row.count(*during)
        row.slowed("p99", times_s(before), times_s(during))
        assert [each for each in during if not each.ok] == []


@pytest.mark.parametrize("kind", ["headers", "bodies"])
@pytest.mark.parametrize("key", ["", "wrong"])
async def test_a_call_without_a_valid_key_takes_no_slot_at_the_gateway(
    entrances: Entrances, report: Report, full_size: bool, kind: str, key: str
):
    """An Envoy that cannot authenticate passes each call on; the gateway refuses it, without a slot of the limiter."""
    async with asking(entrances.open, _KEY) as caller, strangers(entrances.open, kind, key=key):
        assert [each for each in await _ask(caller, full_size) if not each.ok] == []


@_kinds
async def test_peers_without_a_credential_at_a_gateway_are_bounded(
    entrances: Entrances, report: Report, full_size: bool, kind: str
):
    at = entrances.gateway.spec.address
    with report.case(30, f"no credential: {_FAULTS[kind]}, straight at a gateway") as row:
        async with asking(at, _KEY) as caller, strangers(at, kind):
            if kind == "watches":
                assert await _watched(at) is grpc.StatusCode.RESOURCE_EXHAUSTED
            during = await _ask(caller, full_size)
        row.count(*during)
        assert [each for each in during if not each.ok] == []


async def _watched(at: str) -> grpc.StatusCode:
    """How one more watch ends, or begins."""
    async with open_channel(at) as channel:
        health: Any = health_pb2_grpc.HealthStub(channel)
        call = health.Watch(health_pb2.HealthCheckRequest(), timeout=5)
        try:
            await call.read()
        except grpc.aio.AioRpcError as error:
            return error.code()
    return grpc.StatusCode.OK


async def _ask(caller: Asker, full_size: bool) -> list[Outcome]:
    return [
        await caller.ask(f"Who is there {time.monotonic_ns()}?", budget_ms=5_000)
        for _ in range(300 if full_size else 60)
    ]
