"""The memory of removals."""

from __future__ import annotations

from services.cache.tombstones import Removal, Tombstones


def test_a_removal_is_a_conflict_for_what_knew_less_and_for_nothing_else() -> None:
    tombstones = Tombstones()
    tombstones.add(Removal(key="a"), 10)
    tombstones.add(Removal(tenant="acme"), 20)
    assert tombstones.conflict("a", "globex", 9)
    assert not tombstones.conflict("a", "globex", 10)
    assert tombstones.conflict("b", "acme", 19)
    assert not tombstones.conflict("b", "acme", 20)
    assert not tombstones.conflict("b", "globex", 0)


def test_a_store_from_before_the_remembered_removals_has_a_conflict() -> None:
    tombstones = Tombstones(max_tombstones=2)
    for sequence, key in enumerate(("a", "b", "a", "c"), 1):  # the tombstone of b is given up
        tombstones.add(Removal(key=key), sequence)
    assert tombstones.conflict("d", "acme", 1)
    assert not tombstones.conflict("d", "acme", 2)
    assert tombstones.conflict("a", "acme", 2)


def test_changes_before_the_watermark_conflict() -> None:
    assert Tombstones(watermark=5).conflict("a", "acme", 4)
    assert not Tombstones(watermark=5).conflict("a", "acme", 5)
