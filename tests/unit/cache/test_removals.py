"""What is remembered of removals."""

from __future__ import annotations

from services.cache.changes import Delete, DeleteTenant
from services.cache.removals import Removals


def test_a_removal_overtakes_what_knew_less_and_nothing_else() -> None:
    removals = Removals()
    removals.note(Delete("a"), 10)
    removals.note(DeleteTenant("acme"), 20)
    assert removals.since("a", "globex", 9)
    assert not removals.since("a", "globex", 10)
    assert removals.since("b", "acme", 19)
    assert not removals.since("b", "acme", 20)
    assert not removals.since("b", "globex", 0)


def test_who_knew_less_than_is_remembered_counts_as_overtaken() -> None:
    removals = Removals(max_marks=2)
    for position, key in enumerate(("a", "b", "a", "c"), 1):  # the mark of b is given up
        removals.note(Delete(key), position)
    assert removals.since("d", "acme", 1)
    assert not removals.since("d", "acme", 2)
    assert removals.since("a", "acme", 2)


def test_what_was_before_the_floor_is_not_known() -> None:
    assert Removals(floor=5).since("a", "acme", 4)
    assert not Removals(floor=5).since("a", "acme", 5)
