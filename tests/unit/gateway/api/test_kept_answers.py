"""The memory of answers that are kept for their clients, and which of them are given up when it is full."""

from __future__ import annotations

import asyncio
import sys
from types import FrameType

import pytest

from services.gateway.errors import AnswerNotKept
from tests.unit.gateway.api.test_idempotency import Scene

pytestmark = pytest.mark.paused


async def memory_of(*words: str) -> int:
    """The memory that an answer of these words counts for when it is kept."""
    scene = Scene(*words)
    await scene.ask()
    return scene.answers.size


async def calls_of_an_answer(kept: int) -> int:
    """How many Python functions are called for one more answer, where `kept` answers are kept and one must go."""
    full, calls = Scene("a", ms=3_600_000, bytes=kept * await memory_of("a")), 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal calls
        calls += event == "call"

    for key in range(kept):
        await full.ask(key=str(key))
    sys.setprofile(count)
    try:
        await full.ask(key="one more")
    finally:
        sys.setprofile(None)
    assert len(full.answers) == kept
    return calls


async def test_a_full_gateway_drops_whole_answers_of_the_tenant_with_the_most_and_none_that_is_read():
    scene = Scene("a", bytes=3 * await memory_of("a"))
    for tenant, key in (("a", "1"), ("b", "1"), ("b", "2"), ("b", "3")):
        await scene.ask(tenant, key=key)
    assert scene.begun == 4
    await scene.ask("a", key="1")
    await scene.ask("b", key="2")
    assert scene.begun == 4
    await scene.ask("b", key="1")
    assert scene.begun == 5


async def test_a_tenant_whose_answers_are_read_takes_the_room_of_no_other_tenant():
    large, small = ["x" * 20_000] * 3, ["a"]
    scene = Scene(*small, bytes=await memory_of(*large))
    await scene.ask("b")
    scene.words = tuple(large)
    reading = [asyncio.create_task(scene.ask(key=key)) for key in "12"]
    assert await asyncio.gather(*reading) == [large, large]
    assert await scene.ask("b") == small
    assert scene.begun == 3


async def test_an_answer_under_way_without_a_client_ends_when_the_room_is_full():
    scene = Scene(*["x" * 500] * 10, bytes=await memory_of(*["x" * 500] * 5))
    await scene.ask(most=1)
    await asyncio.sleep(10)
    assert (scene.left, scene.over, len(scene.answers)) == (1, 0, 0)


async def test_an_answer_that_is_read_and_takes_more_than_the_room_is_read_to_its_end_and_not_kept():
    scene = Scene(*["x" * 500] * 10, bytes=await memory_of(*["x" * 500] * 5))
    assert len(await scene.ask()) == 10
    assert len(scene.answers) == 0
    assert await scene.ask(key="other") == ["x" * 500] * 10
    assert scene.begun == 2
    with pytest.raises(AnswerNotKept):
        await scene.ask(events_seen=1)


async def test_many_small_answers_count_for_the_memory_that_they_take():
    scene = Scene("a", ms=3_600_000, bytes=1_000_000)
    for key in range(1_000):
        await scene.ask(key=str(key))
    assert 100 < len(scene.answers) < 500  # an answer takes 3 KB beside its text


async def test_what_makes_room_is_found_without_a_look_at_all_that_is_kept():
    few, many = [await calls_of_an_answer(kept) for kept in (30, 300)]
    assert abs(many - few) < 30
