from __future__ import annotations

import pytest

from services.gateway.upstream.cache import Invalidations, Known
from tests.clock import PausedClock


@pytest.fixture
def removals(clock: PausedClock) -> Invalidations:
    """Followed removals, of which the last three are remembered."""
    removals = Invalidations(3, clock)
    removals.began()
    return removals


def test_a_removal_overtakes_what_was_begun_before_it_and_nothing_later(removals, clock):
    begun = Known(clock(), 1, "k")
    clock.advance(1)
    removals.record("key", "k")
    clock.advance(1)
    assert removals.overtook(begun, "a")
    assert not removals.overtook(Known(clock(), 1, "k"), "a")
    assert not removals.overtook(Known(begun.at, 1, "l"), "a")


def test_the_epochs_of_a_cache_that_begins_again_may_be_lower(removals):
    removals.learn(9)
    removals.learn(7)
    assert removals.known().epoch == 9
    removals.ended()
    removals.began(5)
    assert removals.known().epoch == 5
    removals.learn(6)
    assert removals.known().epoch == 6


def test_an_answer_without_a_key_is_overtaken_by_any_removal_by_key(removals, clock):
    begun = removals.known()
    removals.record("key", "k")
    assert removals.overtook(begun, "a")
    assert not removals.took(begun, "a")


def test_a_tenant_and_a_key_of_one_name_are_two_things(removals, clock):
    begun = Known(clock(), 1, "k")
    removals.record("tenant", "k")
    assert not removals.overtook(begun, "a")
    assert removals.overtook(begun, "k")


def test_an_answer_begun_before_the_oldest_known_removal_counts_as_overtaken(removals, clock):
    begun = Known(clock(), 1, "k")
    for number in range(4):
        clock.advance(1)
        removals.record("key", f"{number}")
    assert removals.overtook(begun, "a")
    assert not removals.overtook(Known(clock(), 1, "k"), "a")


@pytest.mark.parametrize(("what", "name"), [("key", "k"), ("tenant", "a")])
def test_a_replica_that_had_not_made_a_removal_gives_what_it_overtook(removals, clock, what, name):
    removals.learn(7)
    removals.record(what, name)
    clock.advance(1)
    assert removals.overtook(Known(clock(), 6, "k"), "a")
    assert not removals.overtook(Known(clock(), 7, "k"), "a")
    assert not removals.overtook(Known(clock(), 6, "l"), "b")


def test_a_replica_behind_the_beginning_may_lack_removals_from_before_it(removals, clock):
    removals.began(5)
    assert removals.overtook(Known(clock(), 4, "k"), "a")
    assert not removals.overtook(Known(clock(), 5, "k"), "a")
