"""What callers without a credential can do to those who have one."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

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
class Doors:
    """Where one gateway, which has keys, can be asked: through an Envoy that lets nobody in without a credential,
    through one that leaves that to the gateway, and itself."""

    closed: str
    open: str
    gateway: ServiceProcess


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def doors(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Doors]:
    folder = tmp_path_factory.mktemp("doors")
    async with processes(folder) as starter, faulty_llm() as llm:
        gateway = await starter.gateway(llm.address, tenants=_TENANTS)
        closed = await start_edge(starter, folder / "closed", gateway, closed=True)
        yield Doors(closed, await start_edge(starter, folder / "open", gateway), gateway)


@_kinds
async def test_strangers_take_nothing_from_callers(doors: Doors, report: Report, full_size: bool, kind: str):
    with report.case(30, f"no credential: {_FAULTS[kind]}, through Envoy") as row:
        async with asking(doors.closed, _KEY) as caller:
            before = await _ask(caller, full_size)
            async with strangers(doors.closed, kind):
                during = await _ask(caller, full_size)
                assert await check_health(doors.closed, 5) == "SERVING"
        row.count(*during)
        row.slowed("p99", times_s(before), times_s(during))
        assert [each for each in during if not each.ok] == []


@pytest.mark.parametrize("kind", ["headers", "bodies"])
@pytest.mark.parametrize("key", ["", "wrong"])
async def test_a_gateway_keeps_no_place_for_who_has_no_good_key(
    doors: Doors, report: Report, full_size: bool, kind: str, key: str
):
    """Where Envoy cannot tell, each is refused by a gateway: that costs the time to refuse him, and no place."""
    async with asking(doors.open, _KEY) as caller, strangers(doors.open, kind, key=key):
        assert [each for each in await _ask(caller, full_size) if not each.ok] == []


@_kinds
async def test_strangers_straight_at_a_gateway_are_bounded(doors: Doors, report: Report, full_size: bool, kind: str):
    at = doors.gateway.spec.address
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
        call = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(), timeout=5)
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
