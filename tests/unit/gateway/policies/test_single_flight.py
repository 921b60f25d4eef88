from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from services.gateway.policies.single_flight import Flight
from services.runtime.errors import InvalidInput, ServiceError, TooLate, Unavailable

pytestmark = pytest.mark.paused


async def emit(flight: Flight[int], *items: int, every_s: float = 1.0) -> None:
    for item in items:
        await asyncio.sleep(every_s)
        flight.add(item)


async def read(reader) -> list[int]:
    seen = []
    while items := await reader.take():
        seen += items
    reader.close()
    return seen


async def test_every_reader_gets_every_item_however_late_it_joins():
    flight = Flight[int]()
    early = flight.subscribe(60)
    flight.start(emit(flight, 1, 2, 3))
    await asyncio.sleep(2.5)
    late = flight.subscribe(60)
    assert await asyncio.gather(read(early), read(late)) == [[1, 2, 3], [1, 2, 3]]


async def test_a_reader_that_leaves_does_not_end_it_for_others_and_the_last_one_does():
    flight = Flight[int]()
    one, two = flight.subscribe(60), flight.subscribe(60)
    flight.start(emit(flight, 1, 2, 3))
    await one.take()
    one.close()
    assert await two.take() == [1]
    assert await two.take() == [2]
    two.close()
    await asyncio.sleep(5)
    assert (flight.items, flight.over) == ([1, 2], True)


async def test_while_a_flight_has_a_stop_it_is_stopped_by_that_and_its_task_is_not_cancelled():
    flight, stopped, ended = Flight[int](), asyncio.Event(), list[str]()

    async def execution() -> None:
        await emit(flight, 1)
        flight.stop = stopped.set
        await stopped.wait()
        ended.append("by itself")

    reader = flight.subscribe(60)
    flight.start(execution())
    assert await reader.take() == [1]
    reader.close()
    assert flight.over
    await asyncio.sleep(1)
    assert ended == ["by itself"]


async def test_the_event_loop_runs_while_thousands_of_readers_are_woken():
    flight, loop, turns, seen = Flight[int](), asyncio.get_running_loop(), [0], list[int]()

    async def noted() -> None:
        reader = flight.subscribe(60)
        assert await reader.take() == [1]
        seen.append(turns[0])
        reader.close()

    def turn() -> None:
        turns[0] += 1
        if len(seen) < 1_000:
            loop.call_soon(turn)

    readers = [asyncio.create_task(noted()) for _ in range(1_000)]
    await asyncio.sleep(0)
    flight.start(emit(flight, 1, every_s=0.0))
    loop.call_soon(turn)
    await asyncio.gather(*readers)
    assert max(Counter(seen).values()) <= 32


async def test_a_readers_own_time_ends_its_reading_alone():
    flight = Flight[int]()
    short, long = flight.subscribe(1.5), flight.subscribe(60)
    flight.start(emit(flight, 1, 2))
    assert await short.take() == [1]
    with pytest.raises(TooLate):
        await short.take()
    short.close()
    assert await read(long) == [1, 2]


@pytest.mark.parametrize("error", [Unavailable("gone", retry_delay_s=2.0, backend="m"), InvalidInput("a", "b", "c")])
async def test_a_failure_reaches_each_reader_after_the_items_with_an_error_of_its_own_to_write_into(
    error: ServiceError,
):
    async def broken() -> None:
        await emit(flight, 1)
        raise error

    flight, errors = Flight[int](), list[ServiceError]()
    readers = [flight.subscribe(60), flight.subscribe(60)]
    flight.start(broken())
    for number, reader in enumerate(readers):
        assert await reader.take() == [1]
        with pytest.raises(type(error)) as caught:
            await reader.take()
        caught.value.metadata["trace_id"] = str(number)
        errors.append(caught.value)
        reader.close()
    assert [each.metadata["trace_id"] for each in errors] == ["0", "1"]
    assert "trace_id" not in error.metadata
    assert {(each.message, str(each), each.retry_delay_s) for each in errors} == {
        (error.message, str(error), error.retry_delay_s)
    }


async def test_a_flight_keeps_nothing_that_its_only_reader_took_away():
    flight = Flight[int]()
    reader = flight.subscribe(60)
    flight.start(emit(flight, 1, 2, 3))
    taken = []
    while items := await reader.take_and_drop():
        taken += items
        assert flight.items == []
    assert taken == [1, 2, 3]
