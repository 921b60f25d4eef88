"""What watchers are told."""

from __future__ import annotations

import pytest

from services.cache.errors import FellBehind
from services.cache.watch import Removal, Watchers


async def test_every_watcher_is_told_of_every_removal_in_order() -> None:
    watchers = Watchers(limit=4)
    removals = [Removal(key="a"), Removal(tenant="acme")]
    with watchers.watch() as first, watchers.watch() as second:
        for removal in removals:
            watchers.publish(removal)
        watchers.close()
        assert [removal async for removal in first] == removals
        assert [removal async for removal in second] == removals


async def test_a_watcher_that_falls_behind_is_cut_off_and_the_others_are_not() -> None:
    watchers = Watchers(limit=2)
    with watchers.watch() as slow, watchers.watch() as quick:
        for key in "abcd":
            watchers.publish(Removal(key=key))
            assert await anext(quick) == Removal(key=key)
        with pytest.raises(FellBehind):
            await anext(slow)


async def test_a_watch_begun_after_the_close_ends_at_once() -> None:
    watchers = Watchers(limit=2)
    watchers.close()
    with watchers.watch() as removals:
        assert [removal async for removal in removals] == []
