from __future__ import annotations

import asyncio

import pytest

from services.llm.vllm.scheduler import Scheduler
from services.runtime.errors import ShareUsed

pytestmark = pytest.mark.paused


class Workers:
    """Work that goes on until the test ends it; `order`: the admitted requests."""

    def __init__(self, scheduler: Scheduler):
        self._scheduler, self.order, self.end = scheduler, [], asyncio.Event()
        self.tasks: list[asyncio.Task[None]] = []

    async def come(self, *tenants: str) -> None:
        for tenant in tenants:
            self.tasks.append(asyncio.create_task(self._work(tenant)))
        await asyncio.sleep(0)

    async def _work(self, tenant: str) -> None:
        async with self._scheduler.turn(tenant):
            self.order.append(tenant)
            await self.end.wait()

    async def finish(self) -> list[object]:
        self.end.set()
        return await asyncio.gather(*self.tasks, return_exceptions=True)


async def test_tenants_take_turns_whoever_asks_more():
    workers = Workers(Scheduler(most=4))
    await workers.come("a", "a", "a", "a", "b", "b")
    assert workers.order == ["a"]  # one at a time
    assert await workers.finish() == [None] * 6
    assert workers.order == ["a", "a", "b", "a", "b", "a"]


async def test_who_has_enough_inside_is_told_when_to_come_back():
    workers = Workers(Scheduler(most=2))
    await workers.come("a", "a", "a", "b")
    *_, refused, other = await workers.finish()
    assert isinstance(refused, ShareUsed)
    assert refused.retry_delay_s
    assert other is None
    await workers.come("a")  # its places are free again
    assert workers.order[-1] == "a"


@pytest.mark.parametrize("leaves", [0, 1])
async def test_who_goes_away_holds_up_nobody(leaves: int):
    workers = Workers(Scheduler(most=4))
    await workers.come("a", "b", "c")
    workers.tasks[leaves].cancel()
    await workers.finish()
    assert workers.order[-1] == "c"


async def test_who_is_called_and_goes_in_the_same_turn_passes_it_on():
    workers = Workers(Scheduler(most=4))
    await workers.come("a", "b", "c")
    workers.end.set()
    while not workers.tasks[0].done():
        await asyncio.sleep(0)
    workers.tasks[1].cancel()
    await workers.finish()
    assert "c" in workers.order
