"""Which entries are evicted where several tenants share the capacity."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from itertools import takewhile

from hypothesis import given
from hypothesis import strategies as st

from services.runtime.policy.fair_lru import FairLru


@dataclass(frozen=True)
class Value:
    tenant: str
    size: int = 1


@dataclass
class Growing:
    tenant: str
    size: int


def test_a_value_replaces_the_previous_one() -> None:
    lru: FairLru[str, Value] = FairLru(100)
    old, new = Value("a", 10), Value("a", 20)
    assert lru.replace("k", old) == []
    assert lru.replace("k", new) == [old]
    assert (lru.get("k"), lru.bytes, len(lru)) == (new, 20, 1)


def test_replacing_evicts_the_least_recently_used_of_the_largest_tenant() -> None:
    lru: FairLru[str, Value] = FairLru(100, 10)
    mine = [Value("a", 10) for _ in range(9)]
    for number, value in enumerate(mine):
        assert lru.replace(f"a{number}", value) == []
    lru.use("a0")
    assert lru.replace("b", Value("b", 10)) == []
    gone = lru.replace("c", Value("c", 25))
    assert len(gone) == 3
    assert all(value is left for value, left in zip(gone, mine[1:4], strict=True))
    assert (len(lru.pop_tenant("a")), lru.bytes) == (6, 35)
    lru.clear()
    assert (len(lru), lru.bytes, lru.get("b")) == (0, 0, None)


def test_a_value_larger_than_the_store_is_not_kept_and_evicts_none() -> None:
    lru: FairLru[str, Value] = FairLru(100)
    lru.replace("l", Value("a", 40))
    lru.replace("m", Value("b", 40))
    huge = Value("a", 101)
    assert lru.replace("k", huge) == [huge]
    assert ("l" in lru, "m" in lru, "k" in lru, lru.bytes) == (True, True, False, 80)


def test_bookkeeping_stays_small_when_values_come_and_go() -> None:
    lru: FairLru[str, Value] = FairLru(10**6, 10)
    for number in range(10_000):
        lru.put("a", Value(str(number)))
        lru.pop("a")
    assert len(lru._shares) < 2_000


_STEPS = st.lists(
    st.tuples(st.sampled_from(["put", "put", "put", "pop", "use"]), st.integers(0, 12), st.integers(1, 60)), max_size=80
)


def test_a_tenant_whose_value_grows_beyond_the_others_makes_room() -> None:
    lru: FairLru[str, Growing] = FairLru(100)
    values = {name: Growing(name, 30) for name in "abc"}
    for name, value in values.items():
        lru.put(name, value)
    values["b"].size += 20
    lru.grow("b", 20)
    assert (lru.full, lru.bytes, lru.bytes_of("b"), lru.next_to_evict()) == (True, 110, 50, "b")
    lru.pop("b")
    assert (lru.full, lru.bytes) == (False, 60)


@given(_STEPS)
def test_the_oldest_value_of_the_largest_tenant_is_evicted(steps: list[tuple[str, int, int]]) -> None:
    lru: FairLru[int, Value] = FairLru(150, 6)
    held: OrderedDict[int, Value] = OrderedDict()  # the same, the simple way
    for step, key, size in steps:
        if step == "use" and key in held:
            lru.use(key)
            held.move_to_end(key)
        elif step == "pop":
            assert lru.pop(key) == held.pop(key, None)
        elif step == "put" and key not in held:
            held[key] = value = Value("abc"[key % 3], size)
            lru.put(key, value)
        while lru.full:
            gone = lru.next_to_evict()
            shares = {tenant: _share(held, tenant) for tenant in "abc"}
            tenant = held[gone].tenant
            assert shares[tenant] == max(shares.values())
            assert gone == next(key for key, value in held.items() if value.tenant == tenant)
            assert lru.pop(gone) == held.pop(gone)
        assert len(held) <= 6
        assert sum(value.size for value in held.values()) == lru.bytes <= 150
        assert {key: lru.get(key) for key in held} == held
        assert sorted(lru.oldest_while(lambda value: value.size < 30)) == _small_ones_first(held)


def _share(held: OrderedDict[int, Value], tenant: str) -> float:
    sizes = [value.size for value in held.values() if value.tenant == tenant]
    return max(len(sizes) / 6, sum(sizes) / 150)


def _small_ones_first(held: OrderedDict[int, Value]) -> list[int]:
    of = {tenant: [key for key, value in held.items() if value.tenant == tenant] for tenant in "abc"}
    return sorted(key for keys in of.values() for key in takewhile(lambda key: held[key].size < 30, keys))
