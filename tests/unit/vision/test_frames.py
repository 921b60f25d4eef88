"""One place for a frame that waits; the newest wins."""

from __future__ import annotations

import asyncio

from services.vision.frames import Opening, WaitingPlace


async def test_a_newer_frame_replaces_the_waiting_one_which_is_counted() -> None:
    place = WaitingPlace()
    for number in (1, 2, 3):
        place.put(number, b"x")
    frame = await place.get()
    assert frame is not None
    assert frame.id == 3
    assert place.dropped() == 2
    assert place.dropped() == 0


async def test_a_reader_waits_for_a_frame() -> None:
    place = WaitingPlace()
    getting = asyncio.ensure_future(place.get())
    await asyncio.sleep(0)
    place.put(7, None)
    frame = await getting
    assert frame is not None
    assert (frame.id, frame.data) == (7, None)


async def test_a_frame_that_waits_at_the_close_is_still_delivered() -> None:
    place = WaitingPlace()
    place.put(1, b"x")
    place.close()
    assert await place.get() is not None
    assert await place.get() is None


async def test_a_reader_learns_of_the_beginning_and_of_there_being_none() -> None:
    place = WaitingPlace()
    waiting = asyncio.ensure_future(place.opened())
    await asyncio.sleep(0)
    place.open(Opening("m", 2))
    assert await waiting == Opening("m", 2)
    place = WaitingPlace()
    place.close()
    assert await place.opened() is None
