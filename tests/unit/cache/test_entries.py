"""The limits of what is held in memory."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from services.cache.entries import Entries, Entry


def entry(key: str, *, tenant: str = "acme", size: int = 10, expires_at_ms: int = 1_000) -> Entry:
    return Entry(key, tenant, b"", "", b"x" * size, expires_at_ms, 0)


def test_the_least_recently_used_entry_goes_first() -> None:
    entries = Entries(max_entries=2, max_bytes=10**6)
    first = entry("a")
    entries.put(first)
    entries.put(entry("b"))
    entries.use(first, 1)
    assert [gone.key for gone in entries.put(entry("c"))] == ["b"]


def test_a_large_entry_makes_room_by_bytes() -> None:
    small = entry("a")
    entries = Entries(max_entries=10, max_bytes=4 * small.size)
    for key in "abc":
        entries.put(entry(key))
    assert [gone.key for gone in entries.put(entry("d", size=2 * small.size))] == ["a", "b"]


def test_an_entry_is_not_found_once_its_time_is_over() -> None:
    entries = Entries(10, 10**6)
    entries.put(entry("a", expires_at_ms=100))
    assert entries.get("a", now_ms=99)
    assert not entries.get("a", now_ms=100)


def test_an_entry_that_was_replaced_does_not_expire_at_its_old_time() -> None:
    entries = Entries(10, 10**6)
    entries.put(entry("a", expires_at_ms=100))
    entries.pop("a")
    entries.put(entry("a", expires_at_ms=200))
    assert entries.pop_expired(now_ms=150) == []
    assert [gone.key for gone in entries.pop_expired(now_ms=200)] == ["a"]


def test_bookkeeping_stays_small_when_one_key_is_stored_again_and_again() -> None:
    entries = Entries(10, 10**6)
    for number in range(10_000):
        entries.pop("a")
        entries.put(entry("a", expires_at_ms=number))
    assert len(entries._expiries) < 2_000


def test_a_tenant_is_taken_out_alone() -> None:
    entries = Entries(10, 10**6)
    for key, tenant in (("a", "acme"), ("b", "acme"), ("c", "globex")):
        entries.put(entry(key, tenant=tenant))
    assert {gone.key for gone in entries.pop_tenant("acme")} == {"a", "b"}
    assert len(entries) == 1
    assert entries.pop_tenant("acme") == []


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3_000)), max_size=60))
def test_the_limits_hold_after_every_change_and_bytes_are_the_sum_of_the_entries(puts: list[tuple[int, int]]) -> None:
    entries = Entries(max_entries=5, max_bytes=12_000)
    for key, size in puts:
        entries.pop(str(key))
        entries.put(entry(str(key), size=size))
        assert len(entries) <= 5
        assert entries.bytes == sum(held.size for held in entries._entries.values()) <= 12_000
