"""Which items run, and which wait for a slot."""

from __future__ import annotations

from dataclasses import dataclass

from services.runtime.policy.fair import Rank
from services.runtime.policy.fair_slots import FairSlots


@dataclass(eq=False)
class Waiter:
    tenant: str
    rank: Rank
    weight: float = 1.0


class Scene:
    """Starts items that have a slot; those of `refused` tenants do not run."""

    def __init__(self, slots: int, refused: str = "", charged: bool = False):
        self.started: list[str] = []
        self._refused = refused
        self.slots: FairSlots[Waiter] = FairSlots(slots, self._start, charged)

    def come(self, tenants: str) -> list[Waiter]:
        waiters = []
        for tenant in tenants:
            waiters.append(waiter := Waiter(tenant, self.slots.rank()))
            self.slots.add(waiter)
        return waiters

    def _start(self, waiter: Waiter) -> bool:
        self.started.append(waiter.tenant)
        return waiter.tenant not in self._refused


def test_as_many_items_run_as_there_are_slots_and_tenants_take_turns() -> None:
    scene = Scene(2)
    scene.come("aaaabb")
    assert scene.started == ["a", "a"]
    for _ in range(4):
        scene.slots.ended()
    assert scene.started == ["a", "a", "a", "b", "a", "b"]
    assert not len(scene.slots.waiting)


def test_a_waiter_that_leaves_before_its_turn_is_passed_over() -> None:
    scene = Scene(1)
    _, second, _ = scene.come("abc")
    assert scene.slots.waiting.remove(second)
    scene.slots.ended()
    assert scene.started == ["a", "c"]


def test_a_waiter_that_does_not_run_takes_no_slot() -> None:
    scene = Scene(1, refused="xy")
    scene.come("xa")
    assert scene.started == ["x", "a"]
    scene.come("y" * 2_000)
    scene.slots.start_all()
    assert (len(scene.started), len(scene.slots.waiting)) == (2_002, 0)


def test_with_charging_the_tenant_with_the_least_cost_is_next() -> None:
    scene = Scene(1, charged=True)
    dear, *_ = scene.come("aaabbb")
    scene.slots.ended(dear, 10)
    for _ in range(4):
        scene.slots.ended(Waiter(scene.started[-1], (0, 0)), 0)
    assert scene.started == ["a", "b", "b", "b", "a", "a"]


def test_charges_count_until_no_item_runs_or_waits() -> None:
    scene = Scene(1, charged=True)
    dear, other = scene.come("ab")
    scene.slots.ended(dear, 10)
    scene.come("ac")
    scene.slots.ended(other, 0)
    assert scene.started == ["a", "b", "c"]
    scene.slots.ended()
    scene.slots.ended()
    scene.come("bac")
    scene.slots.ended()
    scene.slots.ended()
    assert scene.started == ["a", "b", "c", "a", "b", "a", "c"]
