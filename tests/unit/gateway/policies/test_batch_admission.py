"""How batches go beside others."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from services.gateway.policies.batch_admission import BatchAdmission, BatchShare
from services.gateway.policies.concurrency_limit import FixedLimit
from services.gateway.policies.limiter import Limiter
from services.gateway.policies.slot import Shed, Slot, SlotRequest, score
from services.runtime.deadline import Deadline
from tests.clock import loop_clock

pytestmark = pytest.mark.paused
_BATCH = score(premium=False, realtime=False, attempt=0, background=True)


class Scene:
    """A limiter whose calls take a second each, and what happened at it: (name, when)."""

    def __init__(self, slots: int = 10, share: float = 0.5, queue: int = 100, beside: float = 0.1):
        self.pressure = 0.0
        self.limiter = Limiter(
            "llm demo",
            FixedLimit(slots),
            queue,
            0.2,
            clock=loop_clock,
            pressure=lambda: self.pressure,
            batches=BatchShare(share, beside),
        )
        self.began = loop_clock()
        self.served: list[tuple[str, float]] = []
        self.refused: list[str] = []
        self.most = 0

    async def item(
        self, name: str, pace: BatchAdmission, tenant: str, budget_s: float = 60, weight: float = 1, rank: int = _BATCH
    ) -> None:
        deadline = Deadline.after(budget_s, loop_clock)
        try:
            turn = await pace.turn(deadline)
            slot = await self.limiter.enter(SlotRequest(rank, tenant, weight, deadline, turn.end))
        except (TimeoutError, Shed):
            self.refused.append(name)
            return
        await self.call(name, slot)

    async def call(self, name: str, slot: Slot) -> None:
        self.served.append((name, loop_clock() - self.began))
        self.most = max(self.most, self.limiter.in_flight)
        try:
            await asyncio.sleep(1)
        finally:
            slot.release()

    async def interactive(self, tenant: str = "c") -> None:
        await self.call(
            "interactive", await self.limiter.enter(SlotRequest(0, tenant, 1, Deadline.after(5, loop_clock)))
        )

    def batch(self, name: str, number: int, tenant: str = "a", **how: float) -> list[asyncio.Task[None]]:
        pace = BatchAdmission()
        return [asyncio.create_task(self.item(name, pace, tenant, **how)) for _ in range(number)]

    def first(self, number: int) -> Counter[str]:
        return Counter(name for name, _ in self.served[:number])


async def test_all_of_a_batch_is_served_with_its_share_of_the_slots():
    scene = Scene()
    await asyncio.gather(*scene.batch("batch", 64))
    assert (len(scene.served), scene.most, scene.refused) == (64, 5, [])
    assert scene.served[-1][1] == pytest.approx(12)  # 64 / 5 rounds of a second


async def test_interactive_requests_get_a_slot_at_once_beside_batches():
    scene = Scene()
    batches = [*scene.batch("one", 64, "a"), *scene.batch("two", 64, "b")]
    await asyncio.sleep(0.5)
    for _ in range(20):
        asked = loop_clock()
        await asyncio.gather(*(scene.interactive() for _ in range(5)))
        assert loop_clock() - asked == pytest.approx(1)  # without a wait
    await asyncio.gather(*batches)
    assert (len(scene.served), scene.refused) == (228, [])


async def test_batches_never_take_the_last_slots_nor_come_before_waiting_requests():
    scene = Scene(slots=10, share=1, beside=1)
    batch = scene.batch("batch", 64)
    await asyncio.sleep(0.5)
    assert scene.limiter.in_flight == 9  # 0.85 of the slots, rounded up
    waiting = [asyncio.create_task(scene.interactive()) for _ in range(3)]
    await asyncio.sleep(0.1)
    assert scene.limiter.waiting == 2  # none of which is the batch's
    await asyncio.sleep(0.05)
    assert scene.limiter.load() < 0.85  # others are not shed because a batch waits
    for task in [*batch, *waiting]:
        task.cancel()
    outcomes = await asyncio.gather(*batch, *waiting, return_exceptions=True)
    assert not any(isinstance(outcome, Exception) for outcome in outcomes)


async def test_beside_interactive_requests_a_batch_has_one_slot_in_ten():
    scene, seen = Scene(slots=20), list[int]()
    batch = scene.batch("batch", 100)
    await asyncio.sleep(0.5)
    seen.append(scene.limiter.in_flight)
    await scene.interactive()
    for _ in range(3):
        await asyncio.gather(scene.interactive())
        seen.append(scene.limiter.in_flight)
    await asyncio.sleep(5.5)
    seen.append(scene.limiter.in_flight)
    await asyncio.gather(*batch)
    assert seen == [10, 2, 2, 2, 10]


@pytest.mark.parametrize(("other", "weight", "least", "most"), [("b", 1, 16, 24), ("a", 1, 16, 24), ("b", 2, 23, 31)])
async def test_two_batches_share_also_those_of_one_tenant(other: str, weight: float, least: int, most: int):
    scene = Scene()
    first = scene.batch("one", 60, "a")
    await asyncio.sleep(2.5)
    done = len(scene.served)
    await asyncio.gather(*first, *scene.batch("two", 60, other, weight=weight))
    del scene.served[:done]
    assert least <= scene.first(40)["two"] <= most


async def test_of_one_tenant_the_batch_of_higher_priority_goes_first():
    scene = Scene()
    cheap = scene.batch("cheap", 30)
    await asyncio.sleep(0.5)
    dear = scene.batch("dear", 10, rank=_BATCH + 75)
    await asyncio.gather(*cheap, *dear)
    assert scene.first(15)["dear"] >= 8  # of its items four are on their way at once


async def test_an_item_waits_for_as_long_as_its_budget_lasts_and_is_then_refused():
    scene = Scene(slots=2)
    await asyncio.gather(*scene.batch("batch", 10, budget_s=3.5))
    assert (len(scene.served), len(scene.refused)) == (4, 6)
    assert loop_clock() - scene.began == pytest.approx(4)  # the last one served, which began in time
    assert scene.limiter.in_flight == 0


async def test_a_refused_item_has_a_retry_delay():
    scene = Scene(slots=1)
    await scene.limiter.enter(SlotRequest(0, "c", 1, Deadline.never()))
    deadline = Deadline.after(1, loop_clock)
    with pytest.raises(Shed) as refused:
        await scene.limiter.enter(SlotRequest(_BATCH, "a", 1, deadline, lambda: None))
    assert refused.value.metadata["why"] == "expired"
    assert refused.value.retry_delay_s
    assert "1 of 1 slots taken, no spare slot for a batch" in refused.value.message


async def test_under_pressure_batches_wait_until_it_falls():
    scene = Scene()
    scene.pressure = 2.0
    batch = scene.batch("batch", 2)
    await asyncio.sleep(5)
    assert scene.served == []
    scene.pressure = 0.0
    await asyncio.gather(*batch)
    assert scene.served[0][1] == pytest.approx(5, abs=0.1)
