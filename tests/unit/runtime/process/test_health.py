"""Health checks and watches of different clients are independent."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from grpc_health.v1 import health_pb2

from services.runtime.errors import Exhausted
from services.runtime.process.health import WATCHES_PER_HOST, Health

SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
WHOLE = health_pb2.HealthCheckRequest()


class Watcher:
    """A call's context that records the statuses; one that does not read takes no second one."""

    def __init__(self, host: str = "127.0.0.1", reads: bool = True):
        self._host, self._room = host, asyncio.Semaphore(1_000 if reads else 0)
        self.sent: list[int] = []

    def peer(self) -> str:
        return f"ipv4:{self._host}:{id(self)}"

    async def write(self, response: Any) -> None:
        await self._room.acquire()
        self.sent.append(response.status)


async def turns() -> None:
    """Let all other tasks run."""
    for _ in range(10):
        await asyncio.sleep(0)


class Watches:
    """Tasks that watch, ended together."""

    def __init__(self, health: Health):
        self._health, self.tasks = health, set[asyncio.Task[None]]()

    async def begin(self, watcher: Watcher, request: Any = WHOLE) -> asyncio.Task[None]:
        task = asyncio.create_task(self._health.Watch(request, watcher))
        self.tasks.add(task)
        await turns()
        return task

    async def __aenter__(self) -> Watches:
        return self

    async def __aexit__(self, *exc: object) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


@pytest.fixture
def health() -> Health:
    made = Health()
    made.set("", NOT_SERVING)
    return made


async def test_a_watcher_gets_each_change_once(health: Health) -> None:
    async with Watches(health) as watches:
        await watches.begin(watcher := Watcher())
        await watches.begin(other := Watcher(), health_pb2.HealthCheckRequest(service="other"))
        health.set("", NOT_SERVING)
        await turns()
        for status in (SERVING, NOT_SERVING):
            health.set("", status)
            await turns()
        assert watcher.sent == [NOT_SERVING, SERVING, NOT_SERVING]
        assert other.sent == [UNKNOWN]


async def test_a_watcher_that_reads_nothing_keeps_nothing_from_others(health: Health) -> None:
    async with Watches(health) as watches:
        await watches.begin(stuck := Watcher(reads=False))
        await watches.begin(watcher := Watcher())
        health.set("", SERVING)
        await turns()
        assert (stuck.sent, watcher.sent) == ([], [NOT_SERVING, SERVING])


async def test_a_draining_server_reports_every_service_as_not_serving_and_nothing_after(health: Health) -> None:
    health.set("service", SERVING)
    async with Watches(health) as watches:
        await watches.begin(watcher := Watcher(), health_pb2.HealthCheckRequest(service="service"))
        health.leave()
        health.set("service", SERVING)
        await turns()
        assert watcher.sent == [SERVING, NOT_SERVING]


async def test_one_host_cannot_hold_all_watches(health: Health) -> None:
    async with Watches(health) as watches:
        first = await watches.begin(Watcher())
        for _ in range(WATCHES_PER_HOST - 1):
            watches.tasks.add(asyncio.create_task(health.Watch(WHOLE, Watcher())))
        await turns()
        with pytest.raises(Exhausted, match=f"{WATCHES_PER_HOST} watches from one host"):
            await health.Watch(WHOLE, Watcher())
        await watches.begin(elsewhere := Watcher("127.0.0.2"))
        assert elsewhere.sent == [NOT_SERVING]
        first.cancel()
        await turns()
        await watches.begin(later := Watcher())
        assert later.sent == [NOT_SERVING]
