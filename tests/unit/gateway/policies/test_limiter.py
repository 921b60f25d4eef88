"""Which request gets a place, waits or is refused, on a paused clock. Two tests use timers of the loop."""

from __future__ import annotations

import asyncio
import gc
import itertools
import random
from collections import Counter
from collections.abc import AsyncIterator, Coroutine

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import REGISTRY

from services.gateway.policies.limit import Fixed, Sample
from services.gateway.policies.limiter import Limiter
from services.gateway.policies.ticket import Shed, Slot, Ticket
from services.runtime.deadline import Deadline
from tests.clock import PausedClock

pytestmark = pytest.mark.paused

HIGH, NORMAL, LOW = 75, 0, -50


class Adjustable:
    """A limit that the test moves; it keeps the samples."""

    def __init__(self, value: int):
        self.value = value
        self.samples: list[Sample] = []

    def sample(self, sample: Sample) -> None:
        self.samples.append(sample)


def gate_of(places: int = 1, queue: int = 10, **options) -> Limiter:
    options = {"queue_s": 60, "shed_load": 2.0, "clock": PausedClock(), "rng": random.Random(1)} | options
    return Limiter("llm demo", options.pop("limit", None) or Fixed(places), queue, **options)


def ticket(score: int = NORMAL, tenant: str = "a", weight: float = 1, deadline: Deadline | None = None) -> Ticket:
    return Ticket(score, tenant, weight, deadline or Deadline.never())


async def settled() -> None:
    """Let every task that can run do so."""
    for _ in range(5):
        await asyncio.sleep(0)


_WAITING: set[asyncio.Task[Slot]] = set()


@pytest.fixture(autouse=True)
async def _nobody_waits_on() -> AsyncIterator[None]:
    yield
    for task in _WAITING:
        task.cancel()
    await asyncio.gather(*_WAITING, return_exceptions=True)
    _WAITING.clear()


async def waiting(limiter: Limiter, *tickets: Ticket) -> list[asyncio.Task[Slot]]:
    """A task for each ticket, in this order, all of which have come to wait or are done."""
    tasks = [asyncio.create_task(limiter.enter(ticket)) for ticket in tickets]
    await settled()
    _WAITING.update(tasks)
    return tasks


async def refusal(entering: Coroutine[None, None, Slot] | asyncio.Task[Slot]) -> Shed:
    with pytest.raises(Shed) as caught:
        await entering
    return caught.value


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


def test_a_free_place_is_given_without_a_task_switch():
    entering = gate_of().enter(ticket())
    with pytest.raises(StopIteration) as ended:
        entering.send(None)
    assert ended.value.value.in_flight == 1


async def test_a_released_place_goes_to_who_waits():
    limiter = gate_of()
    slot = await limiter.enter(ticket())
    (task,) = await waiting(limiter, ticket())
    assert (task.done(), limiter.waiting) == (False, 1)
    slot.release()
    assert (await task).in_flight == 1
    assert (limiter.in_flight, limiter.waiting) == (1, 0)


async def test_a_place_is_released_once():
    limiter = gate_of(2)
    first, _ = await limiter.enter(ticket()), await limiter.enter(ticket())
    first.release()
    first.release()
    assert limiter.in_flight == 1


async def test_the_limit_gets_the_samples():
    limit = Adjustable(1)
    limiter = gate_of(limit=limit)
    sample = Sample(0.1, None, 1)
    slot = await limiter.enter(ticket())
    slot.release(sample)
    slot.release(sample)
    (await limiter.enter(ticket())).release()
    assert limit.samples == [sample]


async def test_higher_classes_go_first():
    limiter = gate_of()
    slot = await limiter.enter(ticket())
    tasks = await waiting(limiter, ticket(LOW), ticket(NORMAL), ticket(HIGH), ticket(100), ticket(HIGH))
    assert await order_of(limiter, slot, tasks) == [3, 4, 2, 1, 0]


async def test_the_newest_of_a_tenant_goes_first():
    limiter = gate_of()
    slot = await limiter.enter(ticket())
    assert await order_of(limiter, slot, await waiting(limiter, ticket(), ticket(), ticket())) == [2, 1, 0]


async def test_the_earliest_deadline_of_a_tenant_goes_first_where_that_is_the_order():
    clock = PausedClock()
    limiter = gate_of(order="deadline", clock=clock)
    slot = await limiter.enter(ticket())
    tickets = [ticket(deadline=Deadline.after(seconds, clock)) for seconds in (30, 10, 20, 10)]
    assert await order_of(limiter, slot, await waiting(limiter, *tickets)) == [1, 3, 2, 0]


async def test_two_tenants_that_always_wait_take_turns():
    limiter = gate_of()
    slot = await limiter.enter(ticket())
    tasks = await waiting(limiter, *[ticket(tenant="flood")] * 8, *[ticket(tenant="other")] * 2)
    assert await order_of(limiter, slot, tasks) == [7, 9, 6, 8, 5, 4, 3, 2, 1, 0]


async def test_from_the_shed_load_on_low_scores_are_refused_at_once():
    limiter = gate_of(places=2, queue=2, shed_load=0.5)
    slot = await limiter.enter(ticket(NORMAL))
    assert limiter.load() == 0.25
    await limiter.enter(ticket(NORMAL))
    refused = await refusal(limiter.enter(ticket(NORMAL)))
    assert refused.metadata["why"] == "load"
    assert "llm demo: 2 of 2 places taken, 0 of 2 waiting" in refused.message
    (task,) = await waiting(limiter, ticket(50))
    slot.release()
    assert isinstance(await task, Slot)


async def test_a_starved_process_refuses_low_scores_and_spares_nothing():
    pressure = [0.0]
    limiter = gate_of(places=10, shed_load=0.85, pressure=lambda: pressure[0])
    assert limiter.spare() is not None
    pressure[0] = 0.9
    assert limiter.spare() is None
    assert (await refusal(limiter.enter(ticket(NORMAL)))).metadata["why"] == "pressure"
    assert (await limiter.enter(ticket(HIGH))).in_flight == 2


async def test_there_is_a_spare_place_only_while_the_gate_is_calm():
    limiter = gate_of(places=2, queue=0, shed_load=0.5)
    spare = limiter.spare()
    assert spare is not None
    assert limiter.spare() is None  # half full
    spare.release()
    assert limiter.spare() is not None


async def test_in_a_full_queue_a_better_class_displaces_the_worst():
    limiter = gate_of(queue=2)
    await limiter.enter(ticket())
    low, normal = await waiting(limiter, ticket(LOW), ticket(NORMAL))
    (high,) = await waiting(limiter, ticket(HIGH))
    assert (await refusal(low)).metadata["why"] == "displaced"
    assert (await refusal(limiter.enter(ticket(LOW)))).metadata["why"] == "full"
    assert (normal.done(), high.done(), limiter.waiting) == (False, False, 2)


async def test_in_a_full_queue_a_crowd_gives_way_to_another_tenant_until_they_are_even():
    limiter = gate_of(queue=4)
    await limiter.enter(ticket())
    crowd = await waiting(limiter, *[ticket(tenant="flood")] * 4)
    await waiting(limiter, ticket(tenant="other"), ticket(tenant="other"))
    assert [task.done() for task in crowd] == [True, True, False, False]  # the oldest had the least hope
    assert (await refusal(limiter.enter(ticket(tenant="other")))).metadata["why"] == "full"
    assert (await refusal(limiter.enter(ticket(tenant="flood")))).metadata["why"] == "full"
    assert {(await refusal(task)).metadata["why"] for task in crowd[:2]} == {"displaced"}


async def test_who_has_no_time_left_is_never_let_in():
    clock = PausedClock()
    limiter = gate_of(clock=clock, queue_s=60)
    slot = await limiter.enter(ticket())
    tired, expired, patient = await waiting(
        limiter, ticket(HIGH), ticket(HIGH, deadline=Deadline.after(5, clock)), ticket(LOW)
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
    assert (await refusal(gate_of(0).enter(ticket(deadline=Deadline(clock(), clock))))).metadata["why"] == "expired"


async def test_who_waited_for_too_long_is_told_though_no_place_becomes_free():
    limiter = gate_of(queue_s=0.01)
    await limiter.enter(ticket())
    assert (await refusal(limiter.enter(ticket()))).metadata["why"] == "expired"
    assert limiter.waiting == 0


async def test_a_place_tells_for_how_long_it_was_waited_for_and_one_that_was_free_was_not():
    times = itertools.count()  # each look at the clock comes a second after the last, as if others had the core
    limiter = gate_of(clock=lambda: float(next(times)))
    slot = await limiter.enter(ticket())
    (task,) = await waiting(limiter, ticket())
    slot.release()
    assert slot.waited_s == 0
    assert (await task).waited_s > 1


async def overloaded(clock: PausedClock, score: int = 100, **options) -> Limiter:
    """A limiter with a queue of five, to which two times ten came while its only place was taken. It is empty again."""
    limiter = gate_of(queue=5, queue_s=1, clock=clock, **options)
    for _ in range(2):
        slot = await limiter.enter(ticket(score))
        tasks = await waiting(limiter, *[ticket(score)] * 10)
        clock.advance(1.1)
        slot.release()
        refusals = await asyncio.gather(*tasks, return_exceptions=True)
        assert len(refusals) == 10
    return limiter


async def wait_for(seconds: float, limiter: Limiter, clock: PausedClock) -> Slot:
    """The outcome of a request that waits until the only place becomes free."""
    slot = await limiter.enter(ticket(100))
    (task,) = await waiting(limiter, ticket(100))
    clock.advance(seconds)
    slot.release()
    return await task


async def test_while_many_leave_without_a_place_nobody_waits_long():
    clock = PausedClock()
    limiter = await overloaded(clock)
    assert (await refusal(wait_for(0.01, limiter, clock))).metadata["why"] == "expired"


async def test_in_overload_the_queue_is_no_room_for_low_scores():
    clock = PausedClock()
    limiter = await overloaded(clock, NORMAL, shed_load=0.85)
    await limiter.enter(ticket(100))
    assert (await refusal(limiter.enter(ticket()))).metadata["why"] == "load"


async def test_after_an_overload_requests_may_wait_again():
    clock = PausedClock()
    limiter = await overloaded(clock)
    for _ in range(200):
        (await limiter.enter(ticket(100))).release()
    clock.advance(1.1)
    assert isinstance(await wait_for(0.9, limiter, clock), Slot)


async def test_a_cancelled_waiter_leaves_no_trace():
    limiter = gate_of()
    slot = await limiter.enter(ticket())
    first, second = await waiting(limiter, ticket(), ticket())
    second.cancel()
    await settled()
    assert limiter.waiting == 1
    slot.release()
    assert isinstance(await first, Slot)


async def test_a_place_given_to_a_waiter_that_is_cancelled_goes_to_the_next():
    limiter = gate_of()
    slot = await limiter.enter(ticket())
    first, second = await waiting(limiter, ticket(), ticket())
    slot.release()  # given to the second, which has not run since
    second.cancel()
    await settled()
    assert (second.cancelled(), limiter.in_flight, limiter.waiting) == (True, 1, 0)
    assert isinstance(await first, Slot)


@pytest.mark.parametrize("placed", [None, lambda: None], ids=["request", "batch"])
async def test_a_place_that_its_waiter_never_saw_does_not_count_as_a_short_call(placed):
    clock = PausedClock()
    limiter = gate_of(clock=clock, shed_load=1.0)
    slot = await limiter.enter(ticket())
    (waiter,) = await waiting(limiter, Ticket(HIGH, "a", 1, Deadline.never(), placed))
    clock.advance(10)
    slot.release()  # given to the waiter, which has not run since
    waiter.cancel()
    await asyncio.gather(waiter, return_exceptions=True)
    assert (limiter.in_flight, limiter.room) == (0, pytest.approx(60 / 10))


async def test_a_waiter_that_was_cancelled_just_before_is_passed_over():
    limiter = gate_of()
    slot = await limiter.enter(ticket())
    first, second = await waiting(limiter, ticket(), ticket())
    second.cancel()
    slot.release()
    await settled()
    assert (second.cancelled(), limiter.in_flight, limiter.waiting) == (True, 1, 0)
    assert isinstance(await first, Slot)


async def test_a_waiter_whose_task_is_thrown_away_leaves_no_trace():
    limiter = gate_of()
    await limiter.enter(ticket())
    entering = limiter.enter(ticket())
    entering.send(None)
    assert limiter.waiting == 1
    entering.close()
    gc.collect()
    assert limiter.waiting == 0


async def test_waiters_are_let_in_when_the_limit_grows_and_nobody_is_thrown_out_when_it_shrinks():
    limit = Adjustable(1)
    limiter = gate_of(limit=limit)
    slot = await limiter.enter(ticket())
    tasks = await waiting(limiter, *[ticket()] * 5)
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


async def test_refused_callers_come_back_later_the_fuller_it_is_and_not_together():
    limiter = gate_of(queue=2, retry_after_s=2.0)
    await limiter.enter(ticket())
    early = [(await refusal(limiter.enter(ticket(deadline=Deadline(0.0))))).retry_delay_s for _ in range(20)]
    await waiting(limiter, ticket(), ticket())
    late = [(await refusal(limiter.enter(ticket()))).retry_delay_s for _ in range(20)]
    assert min(early) >= 2.0
    assert len(set(early)) > 1
    assert sum(late) > sum(early)


async def test_refusals_are_counted_by_class_and_reason():
    def count() -> float:
        labels = {"limiter": "llm demo", "class": "low", "why": "full"}
        return REGISTRY.get_sample_value("hedgerow_shed_total", labels) or 0

    limiter, before = gate_of(queue=0), count()
    await limiter.enter(ticket())
    await refusal(limiter.enter(ticket(LOW)))
    assert count() == before + 1
    assert REGISTRY.get_sample_value("hedgerow_in_flight", {"limiter": "llm demo"}) == 1


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


@given(_STEPS, st.sampled_from(["lifo", "deadline"]))
def test_no_place_is_lost_or_given_twice(steps, order):
    asyncio.run(_play(steps, order))


async def _play(steps: list[tuple[str, int, str]], order: str) -> None:
    crowd = Crowd(order)
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
    """Requests in front of a limiter, and requests that have a place."""

    def __init__(self, order: str):
        self.limit, self.clock = Adjustable(2), PausedClock()
        self.limiter = gate_of(limit=self.limit, queue=3, order=order, clock=self.clock, shed_load=0.9)
        self.tasks: list[asyncio.Task[Slot]] = []
        self.slots: list[Slot] = []

    def do(self, step: str, number: int, tenant: str) -> None:
        match step:
            case "enter":
                self.tasks.append(asyncio.create_task(self.limiter.enter(ticket(number, tenant))))
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
        """Every place has one owner, and every waiter waits."""
        done = [task for task in self.tasks if task.done()]
        self.tasks = [task for task in self.tasks if not task.done()]
        self.slots += [task.result() for task in done if not task.cancelled() and not task.exception()]
        assert self.limiter.in_flight == len(self.slots) <= 4
        assert self.limiter.waiting == len(self.tasks) <= 3


@given(st.lists(st.integers(1, 6), max_size=40))
def test_at_entry_there_are_never_more_than_the_limit(limits):
    async def play() -> None:
        limit = Adjustable(3)
        limiter = gate_of(limit=limit, queue=1_000)
        seen: Counter[bool] = Counter()

        async def call() -> None:
            slot = await limiter.enter(ticket())
            seen[slot.in_flight <= limit.value] += 1
            await asyncio.sleep(0)
            slot.release()

        async with asyncio.TaskGroup() as group:
            for value in limits:
                group.create_task(call())
                group.create_task(call())
                await asyncio.sleep(0)
                limit.value = max(value, limit.value)
        assert seen == Counter({True: 2 * len(limits)})

    asyncio.run(play())


async def test_the_overload_of_one_class_leaves_the_wait_of_another():
    clock = PausedClock()
    limiter = await overloaded(clock, NORMAL)
    slot = await limiter.enter(ticket(100))
    (task,) = await waiting(limiter, ticket(100))
    clock.advance(0.5)
    slot.release()
    assert isinstance(await task, Slot)


async def test_a_tenant_within_its_share_goes_before_any_class_of_one_that_floods():
    limiter = gate_of(places=2)
    slots = [await limiter.enter(ticket(100, "flood")) for _ in range(2)]
    flood = await waiting(limiter, *[ticket(100, "flood")] * 5)
    (small,) = await waiting(limiter, ticket(NORMAL, "small"))
    slots[0].release()
    assert isinstance(await small, Slot)
    assert not any(task.done() for task in flood)
    for task in flood:
        task.cancel()


async def test_a_tenant_within_its_share_is_not_shed_for_the_load_of_another():
    limiter = gate_of(places=10, queue=0, shed_load=0.85)
    slots = [await limiter.enter(ticket(100, "flood")) for _ in range(9)]
    assert (await refusal(limiter.enter(ticket(NORMAL, "flood")))).metadata["why"] == "load"
    slots.append(await limiter.enter(ticket(NORMAL, "small")))
    for slot in slots:
        slot.release()
    assert limiter.in_flight == 0
