"""The least valuable entries of the tenant that holds most are evicted first."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hedgerow.cache.v1 import cache_pb2
from hedgerow.chat.v1 import chat_pb2
from services.cache.entries import Entries, Entry
from services.cache.greedy_dual import GreedyDual, cost
from tests.unit.cache.asking import look_up, store
from tests.unit.cache.conftest import OpenCache, identity


def answer(tokens: int) -> bytes:
    """One that took so many."""
    return cache_pb2.Answer(text="Paris.", usage=chat_pb2.Usage(completion_tokens=tokens)).SerializeToString()


def entry(key: str, tokens: int = 10, tenant: str = "acme", padding: int = 0) -> Entry:
    return Entry(key, tenant, b"", b"x" * padding, answer(tokens), 10**15, 0)


def test_an_answer_costs_its_tokens_those_of_its_prompt_the_least() -> None:
    usage = chat_pb2.Usage(prompt_tokens=400, completion_tokens=50)
    assert cost(cache_pb2.Answer(text="Paris.", usage=usage).SerializeToString()) == 150
    assert cost(cache_pb2.Answer(text="x" * 400).SerializeToString()) == 100  # without counted tokens
    assert cost(cache_pb2.Answer(text="x").SerializeToString()) == cost(b"\xff no answer") == 1


def test_a_costly_answer_that_is_used_outlives_a_flood_of_cheap_ones() -> None:
    entries = Entries(10, 10**9)
    dear = entry("dear", tokens=1_000)
    entries.put(dear)
    for number in range(500):
        if not number % 50:
            entries.use(dear, number)
        assert dear not in entries.put(entry(str(number), tokens=5))
    assert entries.held("dear")


def test_a_newcomer_that_is_worth_less_than_all_others_is_held() -> None:
    entries = Entries(2, 10**9)
    for key in ("a", "b"):
        entries.put(entry(key, tokens=1_000))
    assert [gone.key for gone in entries.put(entry("cheap", tokens=1))] == ["a"]
    assert [gone.key for gone in entries.put(entry("c", tokens=1_000))] == ["b"]  # older, and of the clock's own worth
    assert [gone.key for gone in entries.put(entry("d", tokens=1_000))] == ["cheap"]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["put", "put", "put", "use", "pop"]),
        st.sampled_from(["acme", "globex", "umbra"]),
        st.integers(0, 30),
        st.integers(1, 2_000),
        st.integers(0, 20_000),
    ),
    max_size=200,
)


@settings(deadline=None)
@given(steps=STEPS, max_entries=st.integers(1, 20))
def test_no_tenant_that_holds_less_than_its_share_loses_anything_to_others(
    steps: list[tuple[str, str, int, int, int]], max_entries: int
) -> None:
    most = 100_000
    entries, tenants = Entries(max_entries, most), ("acme", "globex", "umbra")
    for what, tenant, number, tokens, padding in steps:
        key = f"{tenant} {number}"
        held = entries.held(key)
        if held and what == "use":
            entries.use(held, 0)
        if what != "put":
            entries.pop(key) if what == "pop" else None
            continue
        entries.pop(key)
        before = {name: [each for each in entries if each.tenant == name] for name in tenants}
        for gone in entries.put(entry(key, tokens, tenant, padding)):
            mine = before[gone.tenant]
            if gone.tenant != tenant:
                share = max(len(mine) / max_entries, sum(each.size for each in mine) / most)
                assert share > 1 / len(tenants) - 1e-9
        assert len(entries) <= max_entries
        assert entries.bytes <= most


@dataclass
class Value:
    cost: float
    size: int
    uses: int = 0
    priority: float = 0.0


@settings(deadline=None)
@given(
    steps=st.lists(st.tuples(st.sampled_from(["put", "use", "use", "pop", "evict"]), st.integers(0, 9)), max_size=150),
    costs=st.lists(st.integers(1, 5), min_size=10, max_size=10),
)
def test_the_one_with_the_lowest_priority_goes_and_of_equals_the_least_recently_used(
    steps: list[tuple[str, int]], costs: list[int]
) -> None:
    order, clock, now = GreedyDual(), 0.0, 0
    values: dict[str, Value] = {}
    last: dict[str, int] = {}
    for what, number in steps:
        key, now = str(number), now + 1
        if what == "put" and key not in values:
            values[key] = Value(costs[number], 10)
            order.put(key, values[key])
        if key in values and what in ("put", "use"):
            order.use(key, values[key])
            last[key] = now
            assert values[key].priority == clock + values[key].uses * costs[number] / 10
        if key in values and what == "pop":
            order.pop(key)
            del values[key]
        if values and what == "evict":
            gone = order.next_to_evict()
            assert gone == min(values, key=lambda key: (values[key].priority, last[key]))
            clock = values[gone].priority
            order.pop(gone)
            del values[gone]
        assert set(order) == set(values)


def test_bookkeeping_stays_small_when_one_is_used_again_and_again() -> None:
    order, value = GreedyDual(), Value(1, 1)
    order.put("a", value)
    for _ in range(10_000):
        order.use("a", value)
    assert len(order._heap) < 100


async def test_after_a_restart_all_goes_on_as_it_would_have(open_cache: OpenCache, tmp_path: Path) -> None:
    held = []
    for restart in (False, True):
        bench = open_cache(tmp_path / f"{restart}.db", max_entries=6)
        for number in range(20):
            asked = identity(f"question {number:02}")
            await store(bench, asked, answer(10 + number % 3 * 50))
            bench.clock.ms += 1
            for _ in range(number % 2 * 3):
                await look_up(bench, asked, 1)
        bench.answers.sweep()
        before = {each.key: (each.uses, each.priority) for each in bench.answers.entries}
        assert len(set(before.values())) > 3
        if restart:
            bench = await bench.restarted()
            assert {each.key: (each.uses, each.priority) for each in bench.answers.entries} == before
        for text in "wxyz":
            await store(bench, identity(f"question  {text}"), answer(60))
        held.append({each.key for each in bench.answers.entries})
    assert held[0] == held[1]


@given(seed=st.integers(0, 10_000))
def test_a_restart_at_any_time_changes_nothing_of_what_goes(seed: int) -> None:
    rng, order, values = random.Random(seed), GreedyDual(), dict[str, Value]()
    for number in range(60):
        if values and rng.random() < 0.5:
            key = rng.choice(list(values))
            order.use(key, values[key])
        else:
            if len(values) == 8:
                gone = order.next_to_evict()
                order.pop(gone)
                del values[gone]
            values[str(number)] = value = Value(rng.randint(1, 100), rng.randint(1, 100))
            order.put(str(number), value)
            order.use(str(number), value)
    again = GreedyDual()
    for key in sorted(values, key=lambda key: order._places[key][1]):  # a store gives the least recently used first
        again.put(key, replace(values[key]))
    assert again._clock == pytest.approx(order._clock or 0.0, abs=1e-9)


async def test_an_answer_that_is_stored_again_is_asked_for_as_often_as_before(open_cache: OpenCache) -> None:
    bench, question = open_cache(), identity("what is it")
    for _ in range(2):
        await store(bench, question, answer(10))
        await look_up(bench, question, 1)
    held = bench.answers.entries.held(question.key)
    assert held
    assert held.uses == 4
    assert replace(held).size == held.size
