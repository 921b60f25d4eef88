from __future__ import annotations

import pytest

from hedgerow.cache.v1 import cache_pb2
from services.gateway.answer.stages.cache.l1 import L1Cache
from services.gateway.upstream.cache import Known
from tests.clock import PausedClock

ANSWER = cache_pb2.Answer(text="Paris.")
LONG = cache_pb2.Answer(text="x" * 9_000)  # 10,049 bytes with what a copy costs beside


def watched(entries: int = 2, clock: PausedClock | None = None, max_bytes: int = 1 << 20) -> L1Cache:
    near = L1Cache(entries, ttl_s=30, max_bytes=max_bytes, clock=clock or PausedClock())
    near.watch_began()
    return near


@pytest.fixture
def near(clock: PausedClock) -> L1Cache:
    return watched(clock=clock)


def put(
    near: L1Cache,
    question: bytes,
    key: str,
    tenant: str = "a",
    ttl_ms: int = 60_000,
    known: Known | None = None,
    answer: cache_pb2.Answer = ANSWER,
) -> None:
    near.put(question, answer, tenant, known or near.removals.known(), key, ttl_ms)


def test_nothing_is_kept_without_notifications_of_removals():
    near = L1Cache(2, ttl_s=30)
    put(near, b"q", "k")
    assert near.get("a", b"q") is None


@pytest.mark.parametrize(("ttl_ms", "lives_s"), [(5_000, 5), (60_000, 30)], ids=["its own time", "that of all copies"])
def test_a_copy_is_found_by_its_own_tenant_until_its_time_is_over(near, clock, ttl_ms: int, lives_s: float):
    put(near, b"q", "k", ttl_ms=ttl_ms)
    clock.advance(lives_s - 0.1)
    assert near.get("a", b"q").key == "k"
    assert near.get("b", b"q") is None
    clock.advance(0.1)
    assert near.get("a", b"q") is None


def test_an_unused_copy_is_dropped_when_it_expires(near, clock):
    put(near, b"q", "k")
    put(near, b"r", "l", ttl_ms=5_000)
    clock.advance(7)
    near.sweep()
    assert len(near) == 1
    clock.advance(30)
    near.sweep()
    assert len(near) == 0


def test_all_copies_go_when_the_watch_ends(near):
    put(near, b"q", "k")
    near.watch_ended()
    near.watch_began()
    assert near.get("a", b"q") is None


def test_an_answer_that_was_begun_before_a_gap_in_the_watch_is_not_taken_in(near, clock):
    begun = near.removals.known()
    near.watch_ended()
    clock.advance(1)
    near.watch_began()
    put(near, b"q", "k", known=begun)
    assert near.get("a", b"q") is None
    put(near, b"q", "k")
    assert near.get("a", b"q") is not None


def test_a_removed_key_goes_and_is_taken_in_again_with_an_answer_that_was_begun_later(near, clock):
    put(near, b"q", "k")
    begun = near.removals.known()
    clock.advance(1)
    near.remove_key("k")
    clock.advance(100)  # for as long as an answer may be on its way
    put(near, b"q", "k", known=begun)
    assert near.get("a", b"q") is None
    put(near, b"q", "k")
    assert near.get("a", b"q") is not None


def test_the_removal_of_another_key_keeps_out_no_answer_that_was_begun_before_it(near):
    begun = near.removals.known()
    near.remove_key("l")
    put(near, b"q", "k", known=begun)
    assert near.get("a", b"q") is not None


def test_a_removed_tenant_takes_its_copies_alone(near):
    put(near, b"q", "k", tenant="a")
    put(near, b"r", "l", tenant="b")
    near.remove_tenant("a")
    assert (near.get("a", b"q"), near.get("b", b"r").key) == (None, "l")


def test_a_removed_key_goes_with_every_question_that_has_it():
    near = watched(entries=3)
    put(near, b"q", "k")
    put(near, b"q ", "k")  # the cache knows it as the same question
    near.remove_key("k")
    assert (near.get("a", b"q"), near.get("a", b"q ")) == (None, None)


def test_the_copy_used_least_recently_makes_room():
    near = watched(entries=2)
    for question, key in ((b"1", "a"), (b"2", "b")):
        put(near, question, key)
    near.get("a", b"1")
    put(near, b"3", "c")
    assert [near.get("a", question) is not None for question in (b"1", b"2", b"3")] == [True, False, True]
    near.remove_key("b")  # the evicted copy left nothing behind


def test_a_tenant_that_fills_the_cache_evicts_its_own_entries_alone():
    near = watched(entries=1_000, max_bytes=105_000)
    put(near, b"b", "b", tenant="b", answer=LONG)
    for number in range(50):
        put(near, b"%d" % number, f"{number}", answer=LONG)
    assert near.get("b", b"b") is not None
    assert len(near) == 10
