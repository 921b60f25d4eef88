from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.gateway.policies.single_flight import Flight, SingleFlight
from services.runtime.errors import InvalidInput, ServiceError, TooLate, Unavailable
from tests.clock import loop_clock, on_paused_loop


async def emit(flight: Flight[int], *items: int, every_s: float = 1.0) -> None:
    for item in items:
        await asyncio.sleep(every_s)
        flight.add(item)


async def read(reader) -> list[int]:
    seen = []
    while items := await reader.take():
        seen += items
    reader.leave()
    return seen


def test_everyone_reads_everything_however_late_they_came():
    async def main():
        flight = Flight[int]()
        early = flight.subscribe(60)
        flight.start(emit(flight, 1, 2, 3))
        await asyncio.sleep(2.5)
        late = flight.subscribe(60)
        return await asyncio.gather(read(early), read(late))

    assert on_paused_loop(main()) == [[1, 2, 3], [1, 2, 3]]


def test_who_leaves_does_not_end_it_for_others_and_the_last_one_does():
    async def main():
        flight = Flight[int]()
        one, two = flight.subscribe(60), flight.subscribe(60)
        flight.start(emit(flight, 1, 2, 3))
        await one.take()
        one.leave()
        assert await two.take() == [1]
        assert await two.take() == [2]
        two.leave()
        await asyncio.sleep(5)
        return flight.items, flight.over

    assert on_paused_loop(main()) == ([1, 2], True)


def test_a_readers_own_time_ends_its_reading_alone():
    async def main():
        flight = Flight[int]()
        short, long = flight.subscribe(1.5), flight.subscribe(60)
        flight.start(emit(flight, 1, 2))
        assert await short.take() == [1]
        with pytest.raises(TooLate):
            await short.take()
        short.leave()
        return await read(long), loop_clock()

    assert on_paused_loop(main())[0] == [1, 2]


def test_a_failure_reaches_everyone_after_the_items():
    async def broken(flight):
        await emit(flight, 1)
        raise Unavailable("gone")

    async def main():
        flight = Flight[int]()
        readers = [flight.subscribe(60), flight.subscribe(60)]
        flight.start(broken(flight))
        for reader in readers:
            assert await reader.take() == [1]
            with pytest.raises(Unavailable):
                await reader.take()
            reader.leave()

    on_paused_loop(main())


@pytest.mark.parametrize("error", [Unavailable("gone", retry_delay_s=2.0, backend="m"), InvalidInput("a", "b", "c")])
def test_each_reader_gets_an_error_of_its_own_to_write_into(error: ServiceError):
    async def broken() -> None:
        raise error

    async def main() -> list[ServiceError]:
        flight, told = Flight[int](), list[ServiceError]()
        readers = [flight.subscribe(60), flight.subscribe(60)]
        flight.start(broken())
        for number, reader in enumerate(readers):
            with pytest.raises(type(error)) as caught:
                await reader.take()
            caught.value.metadata["trace_id"] = str(number)
            told.append(caught.value)
            reader.leave()
        return told

    told = on_paused_loop(main())
    assert [each.metadata["trace_id"] for each in told] == ["0", "1"]
    assert "trace_id" not in error.metadata
    assert {(each.message, str(each), each.retry_delay_s) for each in told} == {
        (error.message, str(error), error.retry_delay_s)
    }


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from("ab"), st.floats(0, 6), st.floats(0.1, 6)), min_size=1, max_size=12))
def test_equal_requests_share_one_execution_whoever_comes_and_goes(requests):
    """Each request: what it asks for, when it comes, how long it stays."""
    running: dict[str, int] = {}

    async def execution(name: str, flight: Flight[int]) -> None:
        running[name] = running.get(name, 0) + 1
        try:
            await emit(flight, 1, 2, 3)
        finally:
            running[name] -= 1

    async def request(flights: SingleFlight[str, Flight[int]], name: str, comes_s: float, stays_s: float) -> None:
        await asyncio.sleep(comes_s)
        flight = flights.get(name)
        if flight is None:
            flight = Flight()
            reader = flight.subscribe(stays_s)
            flight.start(flights.track(name, flight, execution(name, flight)))
        else:
            reader = flight.subscribe(stays_s)
        try:
            while await reader.take():
                assert running[name] <= 1
        except TooLate:
            pass
        reader.leave()

    async def main() -> None:
        flights = SingleFlight[str, Flight[int]]()
        await asyncio.gather(*(request(flights, *each) for each in requests))
        await asyncio.sleep(0.1)
        assert len(flights) == 0
        assert set(running.values()) <= {0}

    on_paused_loop(main())
