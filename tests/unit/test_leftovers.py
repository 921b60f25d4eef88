"""Leftovers that the check of the unit tests' event loops finds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing

import pytest

from services.runtime.rpc import first_message
from tests.clock import PausedLoop
from tests.leftovers import nothing_left


async def _for_ever() -> None:
    await asyncio.Event().wait()


async def _requests() -> AsyncIterator[bytes]:
    while True:
        yield b""


async def _a_task_goes_on() -> None:
    going_on.append(asyncio.create_task(_for_ever()))


async def _an_exception_is_lost() -> None:
    asyncio.get_running_loop().create_future().set_exception(RuntimeError("lost"))


async def _a_generator_is_dropped() -> None:
    await anext(first_message.messages(_requests(), 10))


async def _all_is_tidy() -> None:
    asyncio.create_task(_for_ever()).cancel()
    async with aclosing(first_message.messages(_requests(), 10)) as messages:
        await anext(messages)


going_on: list[asyncio.Task[None]] = []


def _run(work: Callable[[], Awaitable[None]]) -> None:
    async def watched() -> None:
        await _a_task_goes_on()  # from before
        async with nothing_left():
            await work()

    with asyncio.Runner(loop_factory=PausedLoop) as runner:
        runner.run(watched())


@pytest.mark.parametrize(
    ("work", "found"),
    [
        (_a_task_goes_on, r"tasks that still run: \['_for_ever'\]"),
        (_an_exception_is_lost, r"unhandled exceptions: .*RuntimeError\('lost'\)"),
        (_a_generator_is_dropped, "only the garbage collector ends: .*messages"),
    ],
)
def test_leftovers_of_a_test_are_found(work: Callable[[], Awaitable[None]], found: str) -> None:
    with pytest.raises(AssertionError, match=found):
        _run(work)


def test_closed_resources_and_earlier_ones_are_no_leftovers() -> None:
    _run(_all_is_tidy)
