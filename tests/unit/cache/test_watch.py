"""Notifications to watchers of removals."""

from __future__ import annotations

import asyncio

import pytest

from services.cache.errors import FellBehind
from services.cache.tombstones import Removal
from services.cache.watch import Watchers


async def test_every_watcher_gets_every_removal_in_order() -> None:
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
        await quick.aclose()


async def test_a_pause_ends_every_watch_and_none_is_in_force_before_it_is_over() -> None:
    watchers = Watchers(3)
    with watchers.watch() as removals:
        watchers.publish(Removal(key="a"))
        watchers.pause()
        assert [removal async for removal in removals] == [Removal(key="a")]
    waiting = asyncio.create_task(watchers.in_force())
    await asyncio.sleep(0)
    assert not waiting.done()
    watchers.resume()
    await waiting


async def test_the_end_of_all_watches_does_not_wait_for_a_pause() -> None:
    watchers = Watchers(3)
    watchers.pause()
    watchers.close()
    await watchers.in_force()
    with watchers.watch() as removals:
        assert [removal async for removal in removals] == []
