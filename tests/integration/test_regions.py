"""Two regions on one machine, on loopback addresses of their own, behind the real Envoy.

The west (127.0.1.1) is where Envoy is; its llm says three words, the one of the east (127.0.2.1) says four.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest
import pytest_asyncio

from tests.fault.asking import MODEL, Asker, Outcome, asking, question
from tests.fault.mesh import processes
from tests.fault.replicated import Replicated, address, bootstrap, start_envoy, write_topology
from tests.forked import ServiceProcess
from tests.waiting import until

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(120)]
_HOSTS = {"west": "127.0.1.1", "east": "127.0.2.1"}
_REGIONS = {"west": {"latitude": 52.5, "longitude": 13.4}, "east": {"latitude": 35.7, "longitude": 139.7}}
_WORDS = {"west": 3, "east": 4}
_CATALOGUE = [{"name": MODEL, "tier": "fast", "context_tokens": 100_000}]


@dataclass
class Regions:
    """The processes of each region. `mesh` has the control plane, Envoy and its caller."""

    mesh: Replicated
    of: Mapping[str, dict[str, ServiceProcess]]

    @property
    def caller(self) -> Asker:
        return self.mesh.caller

    def kill(self, region: str, *services: str) -> None:
        killed = [self.of[region][service] for service in services or self.of[region]]
        for process in killed:
            process.signal(signal.SIGKILL)
        while any(process.exit_code is None for process in killed):
            time.sleep(0.001)

    async def again(self, region: str) -> None:
        """Start what ended there, and return when the control plane has it in service."""
        for service, process in self.of[region].items():
            if process.exit_code is not None:
                self.of[region][service] = self.mesh.starter.run(process.spec)
        await self.mesh.well()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def started(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Regions]:
    async with AsyncExitStack() as stack:
        yield await _start(stack, tmp_path_factory.mktemp("regions"))


async def _start(stack: AsyncExitStack, folder: Path) -> Regions:
    starter = await stack.enter_async_context(processes(folder))
    at = {
        region: {service: address(host) for service in ("gateway", "router", "llm")} for region, host in _HOSTS.items()
    }
    listed = {
        service: [{"address": at[region][service], "region": region} for region in at]
        for service in ("gateway", "router", "llm")
    }
    control, edge, file = address(), address(), folder / "topology.yaml"
    write_topology(file, edge, listed, regions=_REGIONS)
    controller = await starter.start("control", control, topology=str(file))
    of: dict[str, dict[str, ServiceProcess]] = {}
    for region, own in at.items():
        starter.environment = bootstrap(control, region)
        story = {"tokens": _WORDS[region], "each_ms": 5, "continues": True}
        gateway = {
            "cache_address": "",
            "router_address": "xds:///router",
            "llm_addresses": {MODEL: "xds:///llm"},
            "hedge": {"mode": "off"},  # a late answer may well be hedged to the other region
        }
        of[region] = {
            "router": starter.launch("router", own["router"], models=_CATALOGUE),
            "llm": starter.launch("simulated_llm", own["llm"], **story),
            "gateway": starter.launch("gateway", own["gateway"], **gateway),
        }
    await asyncio.gather(*(process.wait_serving() for own in of.values() for process in own.values()))
    envoy = await start_envoy(starter, folder, control, edge)
    caller = await stack.enter_async_context(asking(edge))
    mesh = Replicated(starter, None, controller, file, envoy, caller, {})  # type: ignore[arg-type]
    await mesh.well()
    return Regions(mesh, of)


@pytest_asyncio.fixture(loop_scope="module")
async def regions(started: Regions) -> AsyncIterator[Regions]:
    """Both, healthy before the test and again after it."""
    await _answered_by(started, "west")
    yield started
    for region in _HOSTS:
        await started.again(region)


def _region(outcome: Outcome) -> str:
    """The region of the llm that wrote an answer."""
    words = len(outcome.text.split())
    return next((region for region, said in _WORDS.items() if said == words), "")


async def _answered_by(regions: Regions, region: str) -> list[Outcome]:
    """Ask until a region has answered five questions in a row."""
    outcomes: list[Outcome] = []
    async with asyncio.timeout(30):
        while [_region(outcome) for outcome in outcomes[-5:]] != [region] * 5:
            outcomes.append(await _ask(regions))
    return outcomes


async def _ask(regions: Regions, **fields: object) -> Outcome:
    return await regions.caller.ask(f"Where {time.monotonic_ns()}?", **{"budget_ms": 20_000, **fields})


async def test_the_nearest_region_serves(regions: Regions):
    outcomes = [await _ask(regions) for _ in range(50)]
    assert Counter(_region(outcome) for outcome in outcomes) == {"west": 50}


async def test_when_a_region_dies_the_other_takes_over_and_when_it_returns_so_does_the_traffic(regions: Regions):
    regions.kill("west")
    outcomes = [await _ask(regions) for _ in range(50)]
    assert all(outcome.ok for outcome in outcomes), [outcome for outcome in outcomes if not outcome.ok]
    assert {_region(outcome) for outcome in outcomes} == {"east"}
    await regions.again("west")
    outcomes = await _answered_by(regions, "west")
    assert all(outcome.ok for outcome in outcomes)


async def test_answers_that_a_region_was_writing_when_it_died_are_finished_by_the_other(regions: Regions):
    for _ in range(60):  # what goes on elsewhere is paid from the retries that requests have earned
        await _ask(regions, max_tokens=1)
    words = 500  # of each, so that none is complete before all have begun
    asked = [regions.caller.start(f"Story {number}?", max_tokens=words, budget_ms=20_000) for number in range(8)]
    await asyncio.gather(*(stream.first_text() for stream in asked))
    regions.kill("west", "llm", "router")
    outcomes = await asyncio.gather(*(stream.end() for stream in asked))
    assert all(outcome.whole for outcome in outcomes), [outcome for outcome in outcomes if not outcome.whole]
    assert {len(outcome.text.split()) for outcome in outcomes} == {words}
    assert all("llm:resumed" in outcome.final.degraded for outcome in outcomes)


async def test_a_call_without_a_trace_is_in_envoys_log_with_the_one_that_the_gateway_made(regions: Regions):
    call = regions.caller.stub.Generate(question("Which trace?"), timeout=30)
    accepted = (await call.read()).events[0].accepted
    while await call.read() is not grpc.aio.EOF:
        pass
    assert dict(await call.trailing_metadata())["x-hedgerow-trace-id"] == accepted.trace_id
    await until(lambda: f'"trace_id":"{accepted.trace_id}"' in regions.mesh.envoy.log.read_text())
