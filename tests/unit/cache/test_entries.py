"""The limits of what is held in memory."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from services.cache.entries import OVERHEAD_BYTES, Entries, Entry


def entry(key: str, *, tenant: str = "acme", size: int = 10, expires_at_ms: int = 1_000) -> Entry:
    return Entry(key, tenant, b"", b"", b"x" * size, expires_at_ms, 0)


def keys(expired: tuple[list[Entry], list[Entry]]) -> tuple[list[str], list[str]]:
    lapsed, gone = expired
    return [entry.key for entry in lapsed], [entry.key for entry in gone]


def test_an_entry_counts_as_what_it_takes_in_memory() -> None:
    small, large = entry("a", tenant="a", size=0), entry("a", tenant="é" * 1_000, size=10_000)
    assert small.size > OVERHEAD_BYTES
    assert large.size > small.size + 11_000


def test_an_entry_lapses_once_is_kept_a_while_as_stale_and_leaves() -> None:
    entries = Entries(10, 10**6, stale_ms=50)
    entries.put(entry("a", expires_at_ms=100))
    assert [bool(entries.stale("a", now_ms)) for now_ms in (99, 100, 149, 150)] == [False, True, True, False]
    assert not entries.get("a", now_ms=100)
    assert keys(entries.expire(now_ms=100)) == (["a"], [])
    assert keys(entries.expire(now_ms=149)) == ([], [])
    assert keys(entries.expire(now_ms=150)) == ([], ["a"])
    assert len(entries) == 0


def test_entries_that_lapsed_are_the_first_to_make_room() -> None:
    entries = Entries(max_entries=2, max_bytes=10**6, stale_ms=50)
    entries.put(entry("a", expires_at_ms=1_000))
    entries.put(entry("b", expires_at_ms=100))
    entries.expire(now_ms=100)
    assert [gone.key for gone in entries.put(entry("c"))] == ["b"]


def test_bookkeeping_stays_small_when_one_key_is_stored_again_and_again() -> None:
    entries = Entries(10, 10**6)
    for number in range(10_000):
        entries.pop("a")
        entries.put(entry("a", expires_at_ms=number))
    assert len(entries._due) < 2_000


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3_000)), max_size=60))
def test_the_limits_hold_after_every_change_and_bytes_are_the_sum_of_the_entries(puts: list[tuple[int, int]]) -> None:
    entries = Entries(max_entries=5, max_bytes=12_000)
    for key, size in puts:
        entries.pop(str(key))
        entries.put(entry(str(key), size=size))
        assert len(entries) <= 5
        assert entries.bytes == sum(held.size for held in entries) <= 12_000


@given(
    st.integers(0, 40),
    st.lists(st.tuples(st.sampled_from(["put", "expire"]), st.integers(0, 3), st.integers(0, 30)), max_size=60),
)
def test_nothing_is_kept_longer_than_its_time_and_the_while_after_it(
    stale_ms: int, steps: list[tuple[str, int, int]]
) -> None:
    entries, now_ms = Entries(100, 10**6, stale_ms), 0
    for step, key, number in steps:
        if step == "put":
            entries.pop(str(key))
            entries.put(entry(str(key), expires_at_ms=now_ms + number))
            continue
        now_ms += number
        lapsed, gone = entries.expire(now_ms)
        assert all(not entries.get(each.key, now_ms) for each in lapsed)
        assert all(each.expires_at_ms + stale_ms <= now_ms for each in gone)
        assert all(held.expires_at_ms + stale_ms > now_ms for held in entries)
        assert all(held.lapsed == (held.expires_at_ms <= now_ms) for held in entries)
