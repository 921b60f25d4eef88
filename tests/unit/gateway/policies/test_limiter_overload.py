"""Which requests a limiter refuses, and when."""

from __future__ import annotations

import asyncio

import pytest
from prometheus_client import REGISTRY

from services.gateway.policies.limiter import Limiter
from services.gateway.policies.slot import Slot
from services.gateway.policies.work_shares import WorkShares
from services.runtime.deadline import Deadline
from tests.clock import PausedClock
from tests.unit.gateway.policies.limiting import HIGH, LOW, NORMAL, gate_of, refusal, request, settled, waiting

pytestmark = [pytest.mark.paused, pytest.mark.usefixtures("nobody_waits_on")]


async def test_from_the_shed_load_on_low_scores_are_refused_at_once():
    limiter = gate_of(slots=2, queue=2, shed_load=0.5)
    slot = await limiter.enter(request(NORMAL))
    assert limiter.load() == 0.25
    await limiter.enter(request(NORMAL))
    refused = await refusal(limiter.enter(request(NORMAL)))
    assert refused.metadata["why"] == "load"
    assert "llm demo: 2 of 2 slots taken, 0 of 2 waiting" in refused.message
    (task,) = await waiting(limiter, request(50))
    slot.release()
    assert isinstance(await task, Slot)


async def test_a_starved_process_refuses_low_scores_and_spares_nothing():
    pressure = [0.0]
    work = WorkShares(lambda: pressure[0], 0.85, PausedClock())
    work.spend("a", 1, 1)
    limiter = gate_of(slots=10, shed_load=0.85, pressure=work.pressure, pressure_refusal=work.refusal)
    assert limiter.spare() is not None
    pressure[0] = 0.9
    assert limiter.spare() is None
    assert (await refusal(limiter.enter(request(NORMAL)))).metadata["why"] == "pressure"
    assert (await limiter.enter(request(HIGH))).in_flight == 2
    assert (await limiter.enter(request(NORMAL, tenant="quiet"))).in_flight == 3


async def test_there_is_a_spare_slot_only_while_the_limiter_is_calm():
    limiter = gate_of(slots=2, queue=0, shed_load=0.5)
    spare = limiter.spare()
    assert spare is not None
    assert limiter.spare() is None  # half full
    spare.release()
    assert limiter.spare() is not None


async def test_in_a_full_queue_a_better_class_displaces_the_worst():
    limiter = gate_of(queue=2)
    await limiter.enter(request())
    low, normal = await waiting(limiter, request(LOW), request(NORMAL))
    (high,) = await waiting(limiter, request(HIGH))
    assert (await refusal(low)).metadata["why"] == "displaced"
    assert (await refusal(limiter.enter(request(LOW)))).metadata["why"] == "full"
    assert (normal.done(), high.done(), limiter.waiting) == (False, False, 2)


async def test_in_a_full_queue_a_flooding_tenant_gives_way_to_another_until_they_are_even():
    limiter = gate_of(queue=4)
    await limiter.enter(request())
    crowd = await waiting(limiter, *[request(tenant="flood")] * 4)
    await waiting(limiter, request(tenant="other"), request(tenant="other"))
    assert [task.done() for task in crowd] == [False, False, True, True]  # the newest were the last in turn
    assert (await refusal(limiter.enter(request(tenant="other")))).metadata["why"] == "full"
    assert (await refusal(limiter.enter(request(tenant="flood")))).metadata["why"] == "full"
    assert {(await refusal(task)).metadata["why"] for task in crowd[2:]} == {"displaced"}


async def test_a_request_without_time_left_is_never_admitted():
    clock = PausedClock()
    limiter = gate_of(clock=clock, queue_s=60)
    slot = await limiter.enter(request())
    tired, expired, patient = await waiting(
        limiter, request(HIGH), request(HIGH, deadline=Deadline.after(5, clock)), request(LOW)
    )
    clock.advance(10)
    slot.release()
    await settled()
    assert (expired.done(), tired.done(), patient.done()) == (True, True, False)
    assert (await refusal(expired)).metadata["why"] == "expired"
    clock.advance(60)
    tired.result().release()
    assert (await refusal(patient)).metadata["why"] == "expired"
    assert (limiter.in_flight, limiter.waiting) == (0, 0)
    assert (await refusal(gate_of(0).enter(request(deadline=Deadline(clock(), clock))))).metadata["why"] == "expired"


async def test_a_request_that_waited_too_long_is_refused_though_no_slot_becomes_free():
    limiter = gate_of(queue_s=0.01)
    await limiter.enter(request())
    assert (await refusal(limiter.enter(request()))).metadata["why"] == "expired"
    assert limiter.waiting == 0


async def overloaded(clock: PausedClock, score: int = 100, **options) -> Limiter:
    """A limiter with a queue of five, to which two times ten came while its only slot was taken. It is empty again."""
    limiter = gate_of(queue=5, queue_s=1, clock=clock, **options)
    for _ in range(2):
        slot = await limiter.enter(request(score))
        tasks = await waiting(limiter, *[request(score)] * 10)
        clock.advance(1.1)
        slot.release()
        refusals = await asyncio.gather(*tasks, return_exceptions=True)
        assert len(refusals) == 10
    return limiter


async def wait_for(seconds: float, limiter: Limiter, clock: PausedClock) -> Slot:
    """The outcome of a request that waits until the only slot becomes free."""
    slot = await limiter.enter(request(100))
    (task,) = await waiting(limiter, request(100))
    clock.advance(seconds)
    slot.release()
    return await task


async def test_while_many_requests_are_shed_none_waits_long():
    clock = PausedClock()
    limiter = await overloaded(clock)
    assert (await refusal(wait_for(0.01, limiter, clock))).metadata["why"] == "expired"


async def test_in_overload_the_queue_is_no_room_for_low_scores():
    clock = PausedClock()
    limiter = await overloaded(clock, NORMAL, shed_load=0.85)
    await limiter.enter(request(100))
    assert (await refusal(limiter.enter(request()))).metadata["why"] == "load"


async def test_refused_callers_come_back_later_the_fuller_it_is_and_not_together():
    limiter = gate_of(queue=2, retry_after_s=2.0)
    await limiter.enter(request())
    early = [(await refusal(limiter.enter(request(deadline=Deadline(0.0))))).retry_delay_s for _ in range(20)]
    await waiting(limiter, request(), request())
    late = [(await refusal(limiter.enter(request()))).retry_delay_s for _ in range(20)]
    assert min(early) >= 2.0
    assert len(set(early)) > 1
    assert sum(late) > sum(early)


async def test_refusals_are_counted_by_class_and_reason():
    def count() -> float:
        labels = {"limiter": "llm demo", "class": "low", "why": "full"}
        return REGISTRY.get_sample_value("hedgerow_shed_total", labels) or 0

    limiter, before = gate_of(queue=0), count()
    await limiter.enter(request())
    await refusal(limiter.enter(request(LOW)))
    assert count() == before + 1
    assert REGISTRY.get_sample_value("hedgerow_in_flight", {"limiter": "llm demo"}) == 1


async def test_the_overload_of_one_class_leaves_the_wait_of_another():
    clock = PausedClock()
    limiter = await overloaded(clock, NORMAL)
    assert isinstance(await wait_for(0.5, limiter, clock), Slot)


async def test_a_tenant_within_its_share_is_not_shed_for_the_load_of_another():
    limiter = gate_of(slots=10, queue=0, shed_load=0.85)
    slots = [await limiter.enter(request(100, "flood")) for _ in range(9)]
    assert (await refusal(limiter.enter(request(NORMAL, "flood")))).metadata["why"] == "load"
    slots.append(await limiter.enter(request(NORMAL, "small")))
    for slot in slots:
        slot.release()
    assert limiter.in_flight == 0
