"""One slot for a waiting frame: a newer frame replaces it."""

from __future__ import annotations

import asyncio

from services.vision.frames import FrameSlot, Opening


async def test_a_newer_frame_replaces_the_waiting_one_which_is_counted() -> None:
    slot = FrameSlot()
    for number in (1, 2, 3):
        slot.put(number, b"x")
    frame = await slot.get()
    assert frame is not None
    assert frame.id == 3
    assert slot.dropped() == 2
    assert slot.dropped() == 0


async def test_a_reader_waits_for_a_frame() -> None:
    slot = FrameSlot()
    getting = asyncio.ensure_future(slot.get())
    await asyncio.sleep(0)
    slot.put(7, None)
    frame = await getting
    assert frame is not None
    assert (frame.id, frame.data) == (7, None)


async def test_a_frame_that_waits_at_the_close_is_still_delivered() -> None:
    slot = FrameSlot()
    slot.put(1, b"x")
    slot.close()
    assert await slot.get() is not None
    assert await slot.get() is None


async def test_a_reader_learns_of_the_beginning_and_of_there_being_none() -> None:
    slot = FrameSlot()
    waiting = asyncio.ensure_future(slot.opened())
    await asyncio.sleep(0)
    slot.open(Opening("m", 2))
    assert await waiting == Opening("m", 2)
    slot = FrameSlot()
    slot.close()
    assert await slot.opened() is None
