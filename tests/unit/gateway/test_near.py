from __future__ import annotations

from hedgerow.cache.v1 import cache_pb2
from services.gateway.near import NearCache
from tests.clock import PausedClock

ANSWER = cache_pb2.Answer(text="Paris.")


def watched(entries: int = 2, clock: PausedClock | None = None) -> NearCache:
    near = NearCache(entries, ttl_s=30, clock=clock or PausedClock())
    near.watch_began()
    return near


def put(near: NearCache, question: bytes, key: str, tenant: str = "a", ttl_ms: int = 60_000) -> None:
    near.put(question, ANSWER, key, tenant, ttl_ms)


def test_nothing_is_kept_while_removals_are_not_heard_of():
    near = NearCache(2, ttl_s=30)
    put(near, b"q", "k")
    assert near.get(b"q") is None


def test_a_copy_is_found_until_its_time_is_over():
    clock = PausedClock()
    near = watched(clock=clock)
    put(near, b"q", "k", ttl_ms=5_000)
    assert near.get(b"q").key == "k"
    clock.advance(5)
    assert near.get(b"q") is None


def test_a_copy_lives_no_longer_than_the_gateway_keeps_any():
    clock = PausedClock()
    near = watched(clock=clock)
    put(near, b"q", "k")
    clock.advance(30)
    assert near.get(b"q") is None


def test_all_copies_go_when_the_watch_ends():
    near = watched()
    put(near, b"q", "k")
    near.watch_ended()
    near.watch_began()
    assert near.get(b"q") is None


def test_a_removed_key_goes_and_is_not_taken_in_again_at_once():
    clock = PausedClock()
    near = watched(clock=clock)
    put(near, b"q", "k")
    near.remove_key("k")
    put(near, b"q", "k")  # an answer that the removal overtook on its way
    assert near.get(b"q") is None
    clock.advance(11)
    put(near, b"q", "k")
    assert near.get(b"q") is not None


def test_a_removed_tenant_takes_its_copies_alone():
    near = watched()
    put(near, b"q", "k", tenant="a")
    put(near, b"r", "l", tenant="b")
    near.remove_tenant("a")
    assert (near.get(b"q"), near.get(b"r").key) == (None, "l")


def test_the_copy_used_least_recently_makes_room():
    near = watched(entries=2)
    for question, key in ((b"1", "a"), (b"2", "b")):
        put(near, question, key)
    near.get(b"1")
    put(near, b"3", "c")
    assert [near.get(question) is not None for question in (b"1", b"2", b"3")] == [True, False, True]
    near.remove_key("b")  # the evicted copy left nothing behind
