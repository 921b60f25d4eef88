"""What waits until other replicas can hear of it."""

from __future__ import annotations

from services.cache.changes import Change, Delete, DeleteTenant, Outbox, Put
from services.cache.entries import Entry


def put(key: str, tenant: str = "acme", answer: bytes = b"x") -> Put:
    return Put(Entry(key, tenant, b"", b"why?", answer, 10, 0), None, 0)


def told(outbox: Outbox) -> list[Change]:
    """Everything, in the order in which it is told."""
    changes: list[Change] = []
    while some := outbox.next(2):
        changes += some
        for change in some:
            outbox.told(change)
    return changes


def test_removals_are_told_before_the_entries_that_came_after_them() -> None:
    outbox = Outbox(10, 10**6)
    again, other = put("a"), put("b", "globex")
    for change in (put("a"), Delete("a"), other, DeleteTenant("acme"), again):
        assert outbox.add(change)
    assert told(outbox) == [Delete("a"), DeleteTenant("acme"), other, again]
    assert not len(outbox)


def test_an_entry_that_is_removed_or_replaced_again_is_not_told() -> None:
    outbox = Outbox(10, 10**6)
    last = put("c")
    for change in (put("a"), put("b", "globex"), put("c"), Delete("a"), DeleteTenant("globex"), last):
        outbox.add(change)
    assert told(outbox) == [Delete("a"), DeleteTenant("globex"), last]


def test_the_oldest_entries_make_room_by_number_and_by_size() -> None:
    outbox = Outbox(2, 3 * put("a").entry.size)
    changes = [put("a"), put("b"), put("c"), put("d", answer=b"x" * put("a").entry.size)]
    for change in changes[:3]:
        outbox.add(change)
    assert [change in outbox for change in changes] == [False, True, True, False]
    outbox.add(changes[3])
    assert [change in outbox for change in changes] == [False, False, True, True]
    outbox.add(put("e", answer=b"x" * 3 * put("a").entry.size))
    assert not len(outbox)
    assert outbox.given_up == 5


def test_the_entries_of_one_tenant_do_not_make_room_for_those_of_another_that_has_more() -> None:
    outbox = Outbox(4, 10**6)
    theirs = [put(f"b{number}", "globex") for number in range(2)]
    for change in (*theirs, *(put(f"a{number}") for number in range(20))):
        outbox.add(change)
    assert all(change in outbox for change in theirs)
    assert len(outbox) == 4


def test_a_removal_is_never_given_up_for_another_and_one_too_many_is_refused() -> None:
    outbox = Outbox(2, 10**6)
    assert outbox.add(Delete("a"))
    assert outbox.add(DeleteTenant("acme"))
    assert outbox.add(Delete("a"))
    assert not outbox.add(Delete("b"))
    assert outbox.add(put("c"))
    assert len(outbox) == 3


def test_it_knows_whose_fate_others_do_not_know() -> None:
    outbox = Outbox(10, 10**6)
    outbox.add(put("a"))
    outbox.add(DeleteTenant("globex"))
    assert outbox.decides("a", "acme")
    assert not outbox.removes("a", "acme")
    assert outbox.decides("b", "globex")
    assert outbox.removes("b", "globex")
    assert not outbox.decides("b", "acme")


def test_what_came_in_place_of_a_change_stays_when_that_was_told_late() -> None:
    outbox = Outbox(10, 10**6)
    first, second = put("a"), put("a")
    removed, removed_again = Delete("b"), Delete("b")
    for change in (first, removed, second, removed_again):
        outbox.add(change)
    outbox.told(first)
    outbox.told(removed)
    assert second in outbox
    assert removed_again in outbox
