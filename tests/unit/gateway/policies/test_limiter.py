"""Which request gets a slot, waits or is refused, on a paused clock. Two tests use timers of the loop."""

from __future__ import annotations

import asyncio
import gc
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.gateway.policies.concurrency_limit import Sample
from services.gateway.policies.limiter import Limiter
from services.gateway.policies.slot import Slot, SlotRequest
from services.runtime.deadline import Deadline
from tests.clock import PausedClock
from tests.unit.gateway.policies.limiting import (
    HIGH,
    LOW,
    NORMAL,
    Adjustable,
    gate_of,
    refusal,
    request,
    settled,
    waiting,
)

pytestmark = [pytest.mark.paused, pytest.mark.usefixtures("nobody_waits_on")]


STILL = PausedClock()


async def order_of(limiter: Limiter, first: Slot, tasks: list[asyncio.Task[Slot]]) -> list[int]:
    """The order in which the waiters are let in, each leaving before the next."""
    served: list[int] = []
    first.release()
    while len(served) < len(tasks):
        await settled()
        (new,) = [at for at, task in enumerate(tasks) if task.done() and at not in served]
        served.append(new)
        tasks[new].result().release()
    return served


def test_a_free_slot_is_given_without_a_task_switch():
    entering = gate_of().enter(request())
    with pytest.raises(StopIteration) as ended:
        entering.send(None)
    assert ended.value.value.in_flight == 1


async def test_a_released_slot_goes_to_a_waiting_request():
    limiter = gate_of()
    slot = await limiter.enter(request())
    (task,) = await waiting(limiter, request())
    assert (task.done(), limiter.waiting) == (False, 1)
    slot.release()
    assert (await task).in_flight == 1
    assert (limiter.in_flight, limiter.waiting) == (1, 0)


async def test_the_limit_gets_the_samples():
    limit = Adjustable(1)
    limiter = gate_of(limit=limit)
    sample = Sample(0.1, None, 1)
    slot = await limiter.enter(request())
    slot.release(sample)
    slot.release(sample)
    (await limiter.enter(request())).release()
    assert limit.samples == [sample]


@pytest.mark.parametrize(
    ("requests", "served"),
    [
        ([request(each) for each in (LOW, NORMAL, HIGH, 100, HIGH)], [3, 2, 4, 1, 0]),
        ([*[request(tenant="a")] * 8, *[request(tenant="b")] * 2], [0, 8, 1, 9, 2, 3, 4, 5, 6, 7]),
        ([request(deadline=Deadline.after(each, STILL)) for each in (30, 10, 20, 10)], [1, 3, 2, 0]),
    ],
    ids=["higher classes first", "tenants take turns", "the earliest deadline of a tenant"],
)
async def test_waiting_requests_are_admitted_in_order(requests: list[SlotRequest], served: list[int]):
    limiter = gate_of(clock=STILL)
    slot = await limiter.enter(request())
    assert await order_of(limiter, slot, await waiting(limiter, *requests)) == served


async def test_a_slot_has_the_time_of_its_wait_which_is_0_for_a_free_one():
    times = itertools.count()  # each look at the clock comes a second after the last, as if others had the core
    limiter = gate_of(clock=lambda: float(next(times)))
    slot = await limiter.enter(request())
    (task,) = await waiting(limiter, request())
    slot.release()
    assert slot.waited_s == 0
    assert (await task).waited_s > 1


@pytest.mark.parametrize("placed", [None, lambda: None], ids=["request", "batch"])
async def test_a_slot_that_its_waiter_never_saw_is_no_sample_of_a_short_call(placed):
    clock = PausedClock()
    limiter = gate_of(clock=clock, shed_load=1.0)
    slot = await limiter.enter(request())
    (waiter,) = await waiting(limiter, SlotRequest(HIGH, "a", 1, Deadline.never(), placed))
    clock.advance(10)
    slot.release()  # given to the waiter, which has not run since
    waiter.cancel()
    await asyncio.gather(waiter, return_exceptions=True)
    assert (limiter.in_flight, limiter.queue_capacity) == (0, pytest.approx(60 / 10))


@pytest.mark.parametrize("moment", ["long before", "just before", "just after"])
async def test_a_waiter_cancelled_as_it_gets_its_slot_leaves_it_to_the_next(moment: str):
    limiter = gate_of()
    slot = await limiter.enter(request())
    first, second = await waiting(limiter, request(), request())
    if moment == "just after":
        slot.release()  # given to the second, which has not run since
    second.cancel()
    if moment == "long before":
        await settled()
        assert limiter.waiting == 1
    slot.release()
    await settled()
    assert (second.cancelled(), limiter.in_flight, limiter.waiting) == (True, 1, 0)
    assert isinstance(await first, Slot)


async def test_a_waiter_whose_task_is_thrown_away_leaves_no_trace():
    limiter = gate_of()
    await limiter.enter(request())
    entering = limiter.enter(request())
    entering.send(None)
    assert limiter.waiting == 1
    entering.close()
    gc.collect()
    assert limiter.waiting == 0


async def test_waiters_are_let_in_when_the_limit_grows_and_calls_go_on_when_it_shrinks():
    limit = Adjustable(1)
    limiter = gate_of(limit=limit)
    slot = await limiter.enter(request())
    tasks = await waiting(limiter, *[request()] * 5)
    limit.value = 3
    slot.release()
    await settled()
    assert limiter.in_flight == 3
    limit.value = 1
    inside = [task.result() for task in tasks if task.done()]
    inside[0].release()
    inside[1].release()
    await settled()
    assert (limiter.in_flight, limiter.waiting) == (1, 2)
    inside[2].release()
    await settled()
    assert (limiter.in_flight, limiter.waiting) == (1, 1)


_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("enter"), st.sampled_from([LOW, NORMAL, HIGH]), st.sampled_from("abc")),
        st.tuples(st.sampled_from(["release", "cancel", "release and cancel"]), st.integers(0, 99), st.just("")),
        st.tuples(st.just("spare"), st.just(0), st.just("")),
        st.tuples(st.just("limit"), st.integers(1, 4), st.just("")),
        st.tuples(st.just("time"), st.integers(0, 40), st.just("")),
    ),
    max_size=40,
)


@given(_STEPS)
def test_no_slot_is_lost_or_given_twice(steps):
    asyncio.run(_play(steps))


async def _play(steps: list[tuple[str, int, str]]) -> None:
    crowd = Crowd()
    for step, number, tenant in steps:
        crowd.do(step, number, tenant)
        await settled()
        crowd.look()
    for task in crowd.tasks:
        task.cancel()
    await settled()
    crowd.look()
    for slot in crowd.slots:
        slot.release()
    assert (crowd.limiter.in_flight, crowd.limiter.waiting) == (0, 0)


class Crowd:
    """Requests in front of a limiter, and requests that have a slot."""

    def __init__(self) -> None:
        self.limit, self.clock = Adjustable(2), PausedClock()
        self.limiter = gate_of(limit=self.limit, queue=3, clock=self.clock, shed_load=0.9)
        self.tasks: list[asyncio.Task[Slot]] = []
        self.slots: list[Slot] = []

    def do(self, step: str, number: int, tenant: str) -> None:
        match step:
            case "enter":
                self.tasks.append(asyncio.create_task(self.limiter.enter(request(number, tenant))))
            case "limit":
                self.limit.value = number
            case "time":
                self.clock.advance(number)
            case "spare":
                self.slots += [slot for slot in [self.limiter.spare()] if slot]
            case _:
                self.leave(step, number)

    def leave(self, step: str, number: int) -> None:
        if "release" in step and self.slots:
            self.slots.pop(number % len(self.slots)).release()
        if "cancel" in step and self.tasks:
            self.tasks[number % len(self.tasks)].cancel()

    def look(self) -> None:
        """Every slot has one owner, and every waiter waits."""
        done = [task for task in self.tasks if task.done()]
        self.tasks = [task for task in self.tasks if not task.done()]
        self.slots += [task.result() for task in done if not task.cancelled() and not task.exception()]
        assert self.limiter.in_flight == len(self.slots) <= 4
        assert self.limiter.waiting == len(self.tasks) <= 3


async def test_a_tenant_within_its_share_goes_before_any_class_of_one_that_floods():
    limiter = gate_of(slots=2)
    slots = [await limiter.enter(request(100, "flood")) for _ in range(2)]
    flood = await waiting(limiter, *[request(100, "flood")] * 5)
    (small,) = await waiting(limiter, request(NORMAL, "small"))
    slots[0].release()
    assert isinstance(await small, Slot)
    assert not any(task.done() for task in flood)
    for task in flood:
        task.cancel()


async def test_calls_that_others_hold_beyond_their_share_keep_no_tenant_within_its_own_waiting():
    limiter = gate_of(slots=4, queue_s=0.02)
    long = [await limiter.enter(request(100, "flood")) for _ in range(4)]
    within = await waiting(limiter, request(NORMAL, "small"), request(NORMAL, "small"))
    more = await waiting(limiter, request(NORMAL, "small"), request(100, "flood"))
    assert [(await task).in_flight for task in within] == [5, 6]
    assert [(await refusal(task)).metadata["why"] for task in more] == ["expired", "expired"]
    for slot in long[:2]:
        slot.release()  # as many calls as slots are left
    assert (await refusal(limiter.enter(request(100, "flood")))).metadata["why"] == "expired"
    long[2].release()
    assert (await limiter.enter(request(100, "flood"))).in_flight == 4


async def test_there_are_half_as_many_slots_beyond_the_limit():
    limiter = gate_of(slots=4, queue_s=0.02)
    for _ in range(4):
        await limiter.enter(request(NORMAL, "flood"))
    small = await waiting(limiter, *[request(NORMAL, tenant) for tenant in "abc"])
    ends = await asyncio.gather(*small, return_exceptions=True)
    assert [isinstance(end, Slot) for end in ends].count(True) == 2
