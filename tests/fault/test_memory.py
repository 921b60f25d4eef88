"""Memories that are filled to the brim."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import yaml

from launcher.processes import free_port
from tests.fault.asking import Asker, Outcome, asking
from tests.fault.faulty_llm import Behaviour, FaultyLlm
from tests.fault.memory import forget_peak, peak_mib
from tests.fault.mesh import PATIENT_LOOKUPS, Processes
from tests.fault.report import Report
from tests.fault.slow_cache import SlowCache, slow_cache
from tests.forked import ServiceProcess
from tests.keys import tenants
from tests.waiting import until

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(300)]
_COMPOSE = Path(__file__).parents[2] / "docker-compose.yml"
_MIB = 1 << 20
_LARGEST = 190_000  # bytes of a question, and of its answer; the cache takes 262,144 of both
_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class Scene:
    """A gateway whose memories have room for `room` bytes each, and its callers by tenant."""

    gateway: ServiceProcess
    cache: SlowCache
    room: int
    callers: dict[str, Asker]

    async def ask(self, tenant: str, numbers: Iterable[int]) -> list[Outcome]:
        """Questions of the largest size, some side by side."""
        limit = asyncio.Semaphore(_AT_ONCE)

        async def one(number: int) -> Outcome:
            async with limit:
                return await self.callers[tenant].ask(f"{number:06d} ".ljust(_LARGEST, "?"))

        return await asyncio.gather(*map(one, numbers))

    def looked_up(self, tenant: str, number: int) -> int:
        """How often the cache was asked for an answer."""
        return sum(key.startswith(f"{tenant} {number:06d} ") for key in self.cache.looked_up)

    async def keeps(self) -> bool:
        """Whether the gateway keeps answers by now: none that were begun before it followed the cache's removals."""
        await self.ask("b", (2,))
        return await self.metric("hedgerow_l1_cache_bytes") > 0

    async def metric(self, name: str) -> float:
        address = self.gateway.spec.environment["HEDGEROW_GATEWAY_METRICS_ADDRESS"]
        page = await asyncio.to_thread(lambda: urlopen(f"http://{address}/metrics").read().decode())
        return next((float(line.split()[-1]) for line in page.splitlines() if line.startswith(name)), 0.0)


@asynccontextmanager
async def _scene(starter: Processes, llm: FaultyLlm, room: int, **settings: object) -> AsyncIterator[Scene]:
    llm.behaviour = Behaviour(tokens=1, text="x" * _LARGEST)
    async with slow_cache() as cache:
        gateway = await starter.gateway(
            llm.address,
            cache_address=cache.address,
            metrics_address=f"127.0.0.1:{free_port()}",
            tenants=tenants("a", "b"),
            l1_cache_bytes=room,
            write_behind_bytes=room // 2,
            stages=PATIENT_LOOKUPS,
            **settings,
        )
        address = gateway.spec.address
        async with asking(address, "key-a") as a, asking(address, "key-b") as b:
            yield Scene(gateway, cache, room, {"a": a, "b": b})


def _limit_mib(service: str) -> float:
    """The memory limit of its container."""
    limit: Any = yaml.safe_load(_COMPOSE.read_text())["services"][service]["mem_limit"]
    return float(limit.removesuffix("m"))


async def test_the_near_cache_holds_what_it_has_room_for_and_lets_go_of_what_is_over(
    starter: Processes, llm: FaultyLlm, report: Report, full_size: bool
):
    room = 64 * _MIB if full_size else 2 * _MIB
    many = 3 * room // _LARGEST
    async with _scene(starter, llm, room, l1_cache_ttl_ms=60_000) as scene:
        with report.case(29, "the largest texts and answers, three times what the gateway's L1 cache holds") as row:
            await until(scene.keeps)
            row.count(*await scene.ask("b", range(2)))
            row.count(*await scene.ask("a", range(many)))
            assert row.ok + row.degraded == many + 2  # a lookup of that size may miss its budget
            kept = await scene.metric("hedgerow_l1_cache_bytes")
            assert 0.8 * room < kept <= room
            row.count(*await scene.ask("b", range(2)), *await scene.ask("a", (0, many - 1)))
            assert [scene.looked_up("b", number) for number in range(2)] == [1, 1]  # a tenant's share is its own
            assert [scene.looked_up("a", number) for number in (0, many - 1)] == [2, 1]  # the oldest made room
            row.measured("resident memory", peak_mib(scene.gateway), _limit_mib("gateway"), " MiB", slack=1)
    async with _scene(starter, llm, room, l1_cache_ttl_ms=60_000 if full_size else 5_000) as scene:
        with report.case(29, "entries of the L1 cache that have expired, without a request") as row:
            row.count(*await scene.ask("a", range(many)))
            assert await scene.metric("hedgerow_l1_cache_bytes") > 0
            await until(lambda: _is_zero(scene, "hedgerow_l1_cache_bytes"), 90)


async def test_answers_that_wait_for_a_cache_that_does_not_keep_up_take_no_more_room_than_there_is(
    starter: Processes, llm: FaultyLlm, report: Report, full_size: bool
):
    room = 64 * _MIB if full_size else 8 * _MIB
    many = 3 * room // 2 // (2 * _LARGEST)
    async with _scene(starter, llm, room, l1_cache_entries=0) as scene:
        scene.cache.freeze()
        with report.case(29, "the largest texts and answers, three times what may wait for a cache that hangs") as row:
            forget_peak(scene.gateway)
            row.count(*await scene.ask("b", range(1)), *await scene.ask("a", range(many)))
            assert row.ok + row.degraded == many + 1
            assert await scene.metric("hedgerow_write_behind_bytes") <= room // 2
            assert await scene.metric('hedgerow_write_behind_dropped_total{kind="store"}') > many // 3
            row.measured("resident memory", peak_mib(scene.gateway), _limit_mib("gateway"), " MiB", slack=1)
            scene.cache.thaw()
            await until(lambda: _is_zero(scene, "hedgerow_write_behind_bytes"), 30)
            await until(
                lambda: any(key.startswith(f"a {many - 1:06d}") for key in scene.cache.answers), 5
            )  # the newest


async def _is_zero(scene: Scene, metric: str) -> bool:
    return await scene.metric(metric) == 0
