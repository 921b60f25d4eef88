from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from services.runtime.policy import fair
from services.runtime.policy.fair import FairQueue, Rank, Shares


@dataclass(frozen=True)
class Somebody:
    tenant: str
    rank: Rank
    weight: float = 1.0


def queue_of(*waiting: Somebody) -> FairQueue[Somebody]:
    queue: FairQueue[Somebody] = FairQueue()
    for somebody in waiting:
        queue.add(somebody)
    return queue


def serve(queue: FairQueue[Somebody], count: int | None = None) -> list[Somebody]:
    served = []
    while len(queue) and (count is None or len(served) < count):
        served.append(queue.best())
        queue.take(served[-1])
    return served


def many(tenant: str, count: int, weight: float = 1.0) -> list[Somebody]:
    return [Somebody(tenant, (0.0, number), weight) for number in range(count)]


def test_equal_tenants_take_turns_however_many_of_one_wait():
    served = serve(queue_of(*many("flood", 50), *many("other", 3)), 6)
    assert [somebody.tenant for somebody in served] == ["flood", "other"] * 3


def test_tenants_are_served_by_weight():
    served = serve(queue_of(*many("a", 50, weight=3), *many("b", 50)), 40)
    assert Counter(somebody.tenant for somebody in served) == {"a": 30, "b": 10}


def test_within_a_tenant_the_highest_rank_goes_first():
    served = serve(queue_of(Somebody("a", (0, 2)), Somebody("a", (0, 3)), Somebody("a", (0, 1))))
    assert [somebody.rank[1] for somebody in served] == [3, 2, 1]


def test_a_tenant_that_always_returns_alone_gets_no_more_than_its_turn():
    queue, served = queue_of(*many("flood", 50), Somebody("other", (0, 0))), []
    for number in range(1, 20):
        served += serve(queue, 1)
        if served[-1].tenant == "other":
            queue.add(Somebody("other", (0, number)))
    assert [somebody.tenant for somebody in served] == (["flood", "other"] * 10)[:19]


def test_being_away_saves_nothing_up():
    queue = queue_of(*many("a", 60))
    serve(queue, 30)
    for somebody in many("late", 30):
        queue.add(somebody)
    assert Counter(somebody.tenant for somebody in serve(queue, 20)) == {"a": 10, "late": 10}


def test_tenants_that_have_been_served_are_not_kept_for_every_name_that_ever_was(monkeypatch):
    monkeypatch.setattr(fair, "_MOST_AWAY", 10)
    queue = queue_of(*many("always", 1_001))
    for number in range(1_000):
        queue.add(Somebody(f"user-{number}", (0.0, number)))
        serve(queue, 2)
    assert len(queue) == 1
    assert len(queue._finished) == 10


def test_leaving_unserved_costs_a_tenant_nothing():
    queue = queue_of(*many("a", 10), *many("b", 10))
    for somebody in many("b", 5):
        assert queue.remove(somebody) is False  # equal, and not the one that waits
    b = list(queue._flows["b"].waiting)
    assert all(queue.remove(somebody) for somebody in b[:5])
    assert [somebody.tenant for somebody in serve(queue, 4)] == ["a", "b", "a", "b"]


def test_the_last_of_the_most_crowded_tenant_gives_way():
    queue = queue_of(*many("heavy", 6, weight=4), *many("light", 3))
    assert queue.worst() == Somebody("light", (0.0, 0))


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["add", "serve", "remove"])), max_size=60))
def test_every_waiter_is_served_or_leaves_exactly_once(steps):
    queue: FairQueue[Somebody] = FairQueue()
    inside: list[Somebody] = []
    for number, (tenant, step) in enumerate(steps):
        if step == "add":
            inside.append(Somebody(tenant, (0.0, number)))
            queue.add(inside[-1])
        elif inside and step == "serve":
            (somebody,) = serve(queue, 1)
            inside.remove(somebody)
            assert queue.remove(somebody) is False
        elif inside:
            assert queue.remove(inside.pop(0)) is True
        assert len(queue) == len(inside)
    assert sorted(serve(queue), key=lambda s: s.rank) == inside
    assert queue.best() is None


_COSTS = st.dictionaries(st.sampled_from("abc"), st.floats(0.5, 50), min_size=2)


@given(_COSTS, st.dictionaries(st.sampled_from("abc"), st.sampled_from([1.0, 2.0, 4.0])))
def test_waiting_tenants_have_had_the_same_by_weight_but_for_one_turn(
    costs: dict[str, float], weights: dict[str, float]
) -> None:
    queue: FairQueue[Somebody] = FairQueue(charged=True)
    for tenant in costs:
        for somebody in many(tenant, 60, weights.get(tenant, 1.0)):
            queue.add(somebody)
    had = dict.fromkeys(costs, 0.0)
    for _ in range(50):
        (somebody,) = serve(queue, 1)
        queue.charge(somebody, costs[somebody.tenant] - 1)
        had[somebody.tenant] += costs[somebody.tenant] / somebody.weight
    one_turn = max(cost / weights.get(tenant, 1.0) for tenant, cost in costs.items())
    assert max(had.values()) - min(had.values()) <= one_turn + 1e-6


def test_a_tenants_new_weight_changes_the_shares_of_all_at_once():
    shares = Shares()
    for tenant in ("acme", "umbra"):
        shares.add(tenant, 1)
    assert shares.within("umbra", 1, slots=10)
    shares.add("acme", 9)  # after its settings were read again
    assert not shares.within("umbra", 1, slots=10)
    for _ in range(2):
        shares.drop("acme")
    shares.add("acme", 1)
    assert shares.within("umbra", 1, slots=4)
