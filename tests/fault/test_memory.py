"""Memories that are filled to the brim."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.request import urlopen

import pytest

from hedgerow.cache.v1 import cache_pb2
from launcher.processes import free_port
from services.runtime.rpc.boundary import Call
from tests.fault.asking import Asker, Outcome, asking
from tests.fault.faulty_llm import Behaviour, FaultyLlm, serving
from tests.fault.memory import container_mib, forget_peak, peak_mib
from tests.fault.mesh import PATIENT_LOOKUPS, Processes
from tests.fault.report import Report
from tests.forked import ServiceProcess
from tests.keys import tenants
from tests.waiting import until

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(300)]
_SERVICE = cache_pb2.DESCRIPTOR.services_by_name["CacheService"]
_MIB = 1 << 20
_LARGEST = 190_000  # bytes of a question, and of its answer; the cache takes 262,144 of both
_AT_ONCE = 8


class SlowCache:
    """A simulated cache that keeps everything, and stores nothing while it is frozen. Its key of a question is the last
    message's text."""

    def __init__(self) -> None:
        self.answers: dict[str, cache_pb2.Answer] = {}
        self.looked_up: list[str] = []
        self._go = asyncio.Event()
        self._go.set()

    def freeze(self) -> None:
        """Stores wait from now on."""
        self._go.clear()

    def thaw(self) -> None:
        self._go.set()

    async def Lookup(self, request: cache_pb2.LookupRequest, call: Call) -> cache_pb2.LookupResponse:
        key = _key(request.question)
        self.looked_up.append(key)
        if answer := self.answers.get(key):
            return cache_pb2.LookupResponse(verdict=cache_pb2.VERDICT_EXACT, answer=answer, key=key, ttl_ms=600_000)
        return cache_pb2.LookupResponse(verdict=cache_pb2.VERDICT_MISS, key=key)

    async def Store(self, request: cache_pb2.StoreRequest, call: Call) -> cache_pb2.StoreResponse:
        await self._go.wait()
        key = _key(request.question)
        self.answers[key] = request.answer
        return cache_pb2.StoreResponse(key=key, ttl_ms=600_000)

    async def WatchInvalidations(
        self, request: cache_pb2.WatchInvalidationsRequest, call: Call
    ) -> AsyncIterator[cache_pb2.WatchInvalidationsResponse]:
        yield cache_pb2.WatchInvalidationsResponse()
        await asyncio.Event().wait()


def _key(question: cache_pb2.Question) -> str:
    return f"{question.tenant} {question.messages[-1].content[:40]}"


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
    async with serving(_SERVICE, cache := SlowCache()) as address:
        gateway = await starter.gateway(
            llm.address,
            cache_address=address,
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
            row.measured("resident memory", peak_mib(scene.gateway), container_mib("gateway"), " MiB", slack=1)
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
            row.measured("resident memory", peak_mib(scene.gateway), container_mib("gateway"), " MiB", slack=1)
            scene.cache.thaw()
            await until(lambda: _is_zero(scene, "hedgerow_write_behind_bytes"), 30)
            await until(
                lambda: any(key.startswith(f"a {many - 1:06d}") for key in scene.cache.answers), 5
            )  # the newest


async def _is_zero(scene: Scene, metric: str) -> bool:
    return await scene.metric(metric) == 0
