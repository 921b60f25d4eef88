"""Images of one or several requests are computed as one batch, and no request waits for others to arrive."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import numpy as np
import pytest

from services.runtime.deadline import Deadline
from services.runtime.errors import Exhausted, TooLate, Unavailable
from services.vision.errors import BadModel, EngineFailed, ImageRefused
from services.vision.model import Row, VisionModel, warm_up
from services.vision.pictures import Prepared
from tests.unit.vision.fake_engine import LABELS, SIZE, FakeEngine, manifest, model

Make = Callable[..., VisionModel]
NEVER = Deadline.never()


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
async def make(engine: FakeEngine) -> AsyncIterator[Make]:
    made: list[VisionModel] = []

    def make(**changes: Any) -> VisionModel:
        made.append(model(engine, **changes))
        return made[-1]

    yield make
    engine.gate.set()
    for each in made:
        await each.close()


def item(red: float = 0.0) -> Prepared:
    array = np.zeros((3, SIZE, SIZE), np.float32)
    array[0] = red
    return Prepared(array, 0.25)


def ready(red: float = 0.0) -> asyncio.Future[Prepared]:
    future = pending()
    future.set_result(item(red))
    return future


def pending() -> asyncio.Future[Prepared]:
    return asyncio.get_running_loop().create_future()


async def compute(target: VisionModel, *items: asyncio.Future[Prepared], deadline: Deadline = NEVER) -> list[Row]:
    with target.admit(len(items)):
        return await target.compute(items, deadline)


async def until_busy(engine: FakeEngine) -> None:
    assert await asyncio.to_thread(engine.busy.wait, 10)


async def occupied(
    engine: FakeEngine, target: VisionModel, *items: asyncio.Future[Prepared]
) -> asyncio.Future[list[Row]]:
    """A request that the engine works on until its gate opens."""
    engine.gate.clear()
    running = asyncio.ensure_future(compute(target, *items))
    await until_busy(engine)
    return running


async def test_a_request_alone_does_not_wait_for_others(engine: FakeEngine, make: Make) -> None:
    (row,) = await compute(make(), ready(0.5))
    assert engine.sizes == [1]
    assert row.outputs["probabilities"] == pytest.approx([0.5, 0.5, 0])
    assert row.timing.batch_size == 1
    assert row.timing.preprocess_s == 0.25
    assert row.timing.compute_s > 0


async def test_images_of_one_request_are_computed_together_in_their_order(engine: FakeEngine, make: Make) -> None:
    rows = await compute(make(), ready(0.1), ready(0.2), ready(0.3))
    assert engine.sizes == [3]
    assert [float(row.outputs["embedding"][0]) for row in rows] == pytest.approx([0.1, 0.2, 0.3])


async def test_a_caller_of_several_images_at_a_time_is_alone_too(engine: FakeEngine, make: Make) -> None:
    target = make()
    for _ in range(3):
        await compute(target, ready(), ready())
    assert engine.sizes == [2, 2, 2]


async def test_more_than_fit_into_a_batch_take_several(engine: FakeEngine, make: Make) -> None:
    rows = await compute(make(), *(ready(red / 10) for red in range(10)))
    assert sum(engine.sizes) == 10
    assert max(engine.sizes) == 4
    assert [float(row.outputs["embedding"][0]) for row in rows] == pytest.approx([red / 10 for red in range(10)])


async def test_a_batch_waits_for_a_picture_that_is_being_prepared(engine: FakeEngine, make: Make) -> None:
    target, late = make(), pending()
    both = asyncio.gather(compute(target, late), compute(target, ready()))
    await asyncio.sleep(0)
    assert engine.sizes == []
    late.set_result(item())
    await both
    assert engine.sizes == [2]


async def test_no_request_waits_for_a_picture_that_is_refused(engine: FakeEngine, make: Make) -> None:
    target, bad = make(), pending()
    both = asyncio.gather(compute(target, bad), compute(target, ready()), return_exceptions=True)
    await asyncio.sleep(0)
    bad.set_exception(ImageRefused("images[0]", "a PNG", "none"))
    refusal, rows = await both
    assert isinstance(refusal, ImageRefused)
    assert len(rows) == 1
    assert engine.sizes == [1]


async def computed_together(engine: FakeEngine, target: VisionModel, number: int) -> None:
    """So many requests that come while the engine runs."""
    first = await occupied(engine, target, ready())
    rest = asyncio.gather(*(compute(target, ready()) for _ in range(number)))
    await asyncio.sleep(0)
    engine.gate.set()
    await asyncio.gather(first, rest)


async def test_requests_that_come_while_the_engine_runs_are_computed_together(engine: FakeEngine, make: Make) -> None:
    await computed_together(engine, make(), 3)
    assert engine.sizes == [1, 3]


async def test_after_a_batch_of_several_requests_the_next_one_waits_for_others(engine: FakeEngine, make: Make) -> None:
    target = make()
    await computed_together(engine, target, 2)
    waiting = asyncio.create_task(compute(target, ready()))
    await asyncio.sleep(0)
    await asyncio.gather(waiting, *(compute(target, ready()) for _ in range(3)))
    assert engine.sizes == [1, 2, 4]


async def test_a_bad_picture_fails_its_request_and_frees_the_queue(make: Make) -> None:
    target = make(max_queue=3)
    good, bad, never = ready(), pending(), pending()
    bad.set_exception(ImageRefused("images[1]", "a PNG", "none"))
    with pytest.raises(ImageRefused, match=r"images\[1\]"):
        await compute(target, good, bad, never)
    assert never.cancelled()
    assert len(await compute(target, ready(), ready(), ready())) == 3


async def test_a_picture_of_one_tenant_does_not_wait_for_all_those_of_another(engine: FakeEngine, make: Make) -> None:
    target = make()  # batches of four
    await occupied(engine, target, ready())
    async with asyncio.TaskGroup() as group:
        many = group.create_task(target.compute([ready() for _ in range(20)], NEVER, "many"))
        await asyncio.sleep(0)  # all of them wait
        one = group.create_task(target.compute([ready()], NEVER, "one"))
        await asyncio.sleep(0)
        engine.gate.set()
        await one
        assert not many.done()
    assert engine.sizes == [1, 4, 4, 4, 4, 4, 1]


def test_the_calls_of_one_tenant_leave_a_part_of_the_queue_to_others(make: Make) -> None:
    target = make(max_queue=8)
    with target.admit(4, "a"):
        with pytest.raises(Exhausted, match="fake: 4 of 6 images of one tenant queued or running, 3 more came"):
            target.admit(3, "a").__enter__()
        with target.admit(2, "a"), target.admit(2, "b"), pytest.raises(Exhausted, match="fake: 8 of 8 images queued"):
            target.admit(1, "c").__enter__()
    with target.admit(8, "a"):
        pass


async def test_more_than_the_model_may_have_in_hand_is_refused_whole_with_a_time_to_come_back(
    engine: FakeEngine, make: Make
) -> None:
    target = make(max_queue=4)
    running = await occupied(engine, target, ready(), ready())
    with pytest.raises(Exhausted, match="fake: 2 of 4 images queued or running, 3 more came") as refusal:
        await compute(target, ready(), ready(), ready())
    assert refusal.value.retry_delay_s is not None
    engine.gate.set()
    await running
    assert len(await compute(target, *(ready() for _ in range(4)))) == 4


@pytest.mark.parametrize(("left_s", "ends_as"), [(0.01, TooLate), (60.0, asyncio.CancelledError)])
async def test_a_late_or_cancelled_request_never_reaches_the_engine(
    engine: FakeEngine, make: Make, left_s: float, ends_as: type[BaseException]
) -> None:
    target = make()
    running = await occupied(engine, target, ready())
    given_up = asyncio.ensure_future(compute(target, ready(), ready(), deadline=Deadline.after(left_s)))
    await asyncio.sleep(0)
    if ends_as is asyncio.CancelledError:
        given_up.cancel()
    with pytest.raises(ends_as):
        await given_up
    engine.gate.set()
    await running
    await compute(target, ready())
    assert engine.sizes == [1, 1]


async def test_an_item_that_the_engine_cannot_take_fails_alone(engine: FakeEngine, make: Make) -> None:
    engine.refused = 0.9
    target = make()
    first = await occupied(engine, target, ready(0.1))
    waiting = [asyncio.create_task(compute(target, ready(red))) for red in (0.2, 0.9, 0.3)]
    await asyncio.sleep(0)
    engine.gate.set()
    await first
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(result) for result in results] == [list, EngineFailed, list]
    assert [
        float(result[0].outputs["embedding"][0]) for result in results if isinstance(result, list)
    ] == pytest.approx([0.2, 0.3])
    assert engine.sizes == [1, 3, 1, 1, 1]


async def test_a_failing_engine_fails_its_batch_and_no_other(engine: FakeEngine, make: Make) -> None:
    target = make()
    engine.failing = EngineFailed("out of memory")
    with pytest.raises(EngineFailed):
        await compute(target, ready(), ready())
    engine.failing = None
    assert len(await compute(target, ready())) == 1


async def test_closing_waits_for_running_requests(engine: FakeEngine) -> None:
    target = model(engine)
    inside = await occupied(engine, target, *(ready() for _ in range(7)))
    closing = asyncio.ensure_future(target.close())
    await asyncio.sleep(0)
    assert not engine.closed
    engine.gate.set()
    assert len(await inside) == 7
    await closing
    assert engine.closed
    with pytest.raises(Unavailable):
        await compute(target, ready())


def test_every_size_of_batch_is_warmed_up(engine: FakeEngine) -> None:
    described = manifest(batching={"max_size": 16, "preferred": [8, 2]})
    shapes = warm_up(described, LABELS, engine)
    assert engine.sizes == [1, 2, 8, 16]
    assert shapes == {"probabilities": (3,), "embedding": (3,)}


def test_a_model_that_is_not_what_it_says_is_refused(engine: FakeEngine) -> None:
    with pytest.raises(BadModel, match=r"labels: one for each of \(3,\) scores, got 2"):
        warm_up(manifest(), ("a", "b"), engine)
    engine.failing = EngineFailed("no kernel")
    with pytest.raises(BadModel, match="a batch of 1: no kernel"):
        warm_up(manifest(), LABELS, engine)
