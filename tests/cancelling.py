"""Cancels a coroutine at each of its awaits in turn, or at each turn of the loop.

A scene prepares what the coroutine works with, yields it, and asserts afterwards that nothing of it is left: no slot,
lease, permit, reservation or timer. It is played once for each await, and at each await in two moments: as soon as the
coroutine waits there, and when what it waited for is there and it has not run since (between a grant and its wake).

A coroutine whose work is done by other tasks waits for few things itself. It is disturbed at each turn of the loop,
once in each of its plays, whatever those tasks are doing then.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from functools import partial, wraps
from itertools import count
from typing import Any, Literal

from services.runtime.errors import ServiceError
from tests.clock import on_paused_loop

Work = AsyncIterator[Coroutine[Any, Any, object]]  # what a scene yields: the coroutine
Scene = Callable[[], AbstractAsyncContextManager[Coroutine[Any, Any, object]]]
Moment = Literal["waiting", "waking"]
_TURNS = 30  # of the loop, for each task that ends another


def cancelled_at_every_await(awaits: int = 1) -> Callable[[Callable[..., Work]], Callable[..., None]]:
    """Makes a scene a test, which plays it until its coroutine ends before it is cancelled. `awaits`: how many awaits
    it has at least; the 0th moment is before it has begun. The coroutine may end with a service's error where it is not
    cancelled."""
    moments: tuple[Moment, ...] = ("waiting", "waking")

    def as_test(scene: Callable[..., Work]) -> Callable[..., None]:
        @wraps(scene)
        def test(**given: Any) -> None:
            for moment in moments:
                for number in count():
                    try:
                        if not on_paused_loop(_played(partial(asynccontextmanager(scene), **given), number, moment)):
                            break
                    except BaseException as problem:
                        problem.add_note(f"cancelled at await {number}, {moment}")
                        raise
                assert number > awaits

        return test

    return as_test


def disturbed_at_every_turn(scene: Scene, disturb: Callable[[asyncio.Task[object]], object]) -> int:
    """Play `scene` until its coroutine ends before it is disturbed: `disturb` gets its task, once, after each number of
    turns of the loop. Returns how many turns it has. The coroutine may end with a service's error."""
    for number in count():
        try:
            if not on_paused_loop(_disturbed(scene, number, disturb)):
                return number
        except BaseException as problem:
            problem.add_note(f"disturbed at turn {number}")
            raise
    raise AssertionError  # count() has no end


async def settled() -> None:
    """Every task that can run has done so."""
    for _ in range(_TURNS):
        await asyncio.sleep(0)


async def _played(scene: Scene, number: int, moment: Moment) -> bool:
    """Whether the coroutine was cancelled at the await of that `number`."""
    unhandled = list[dict[str, Any]]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unhandled.append(context))
    async with scene() as work:
        steps = _Steps(work, number, moment)
        task = asyncio.create_task(steps)
        if number == 0:
            steps.cancelled = task.cancel()
        await asyncio.wait({task})
        await settled()
        if steps.cancelled:
            assert task.cancelled(), f"the cancelled task ended with {task}"
        elif problem := task.exception():
            assert isinstance(problem, ServiceError), problem
        cancelled = steps.cancelled
    del work, steps, task
    gc.collect(1)
    assert not unhandled, f"unhandled exceptions: {unhandled}"
    return cancelled


async def _disturbed(scene: Scene, number: int, disturb: Callable[[asyncio.Task[object]], object]) -> bool:
    """Whether the coroutine ran for so many turns."""
    loop, looked = asyncio.get_running_loop(), list[bool]()
    unhandled = list[dict[str, Any]]()
    loop.set_exception_handler(lambda _, looked: unhandled.append(looked))
    async with scene() as work:
        task = asyncio.create_task(work)
        with _after_turns(loop, number, partial(_look, task, looked, disturb)):
            await asyncio.wait({task})
            await settled()
        if not task.cancelled() and (problem := task.exception()):
            assert isinstance(problem, ServiceError), problem
    del work, task
    gc.collect(1)
    assert not unhandled, f"unhandled exceptions: {unhandled}"
    return bool(looked)


def _look(task: asyncio.Task[object], looked: list[bool], disturb: Callable[[asyncio.Task[object]], object]) -> None:
    if not task.done():
        looked.append(True)
        disturb(task)


@contextmanager
def _after_turns(loop: Any, number: int, then: Callable[[], None]) -> Iterator[None]:
    """Inside, `then` is called between two turns of the loop, after so many of them."""
    select, turns = loop._selector.select, count()

    def counted(timeout: float | None = None) -> Any:
        if next(turns) < number:
            return select(timeout)
        then()
        loop._selector.select = select
        return select(0)

    loop._selector.select = counted
    try:
        yield
    finally:
        loop._selector.select = select


class _Steps(Coroutine[Any, Any, object]):
    """The coroutine `work`, whose task is cancelled where it awaits for the `at`-th time."""

    def __init__(self, work: Coroutine[Any, Any, object], at: int, moment: Moment):
        self.cancelled = False
        self._work, self._at, self._moment, self._awaits = work, at, moment, 0

    def send(self, value: Any) -> Any:
        return self._awaited(self._work.send(value))

    def throw(self, *problem: Any) -> Any:
        return self._awaited(self._work.throw(*problem))

    def close(self) -> None:
        self._work.close()

    def __await__(self) -> Generator[Any, Any, object]:
        return self._work.__await__()

    def _awaited(self, future: asyncio.Future[Any] | None) -> asyncio.Future[Any] | None:
        """It waits for `future`; for None it waits a turn of the loop."""
        self._awaits += 1
        if self._awaits == self._at:
            self._cancel(future)
        return future

    def _cancel(self, future: asyncio.Future[Any] | None) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.cancelled = True
        if future is None or self._moment == "waiting":
            asyncio.get_running_loop().call_soon(task.cancel)
        else:
            future.add_done_callback(lambda _: task.cancel())
