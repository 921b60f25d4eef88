"""Two calls for the same text: the first text wins, and the other call is cancelled.

Streams are raced to their *first* text alone: what follows differs from call to call and could not be mixed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Generic, Protocol, TypeVar

from services.runtime.errors import ServiceError, TooLate, Unavailable

_ASK_AGAIN_S = 0.25


class Runner(Protocol):
    """A call in a race, before or after its first text. Both methods leave a call that has ended unchanged."""

    def cancel_as_slow(self, *, late: bool) -> None:
        """Record the call as too slow and end it: the time is over (`late`), or another call was faster."""
        ...

    def cancel(self) -> None:
        """Cancel the call: the race is over, and its end is no sample."""
        ...


R = TypeVar("R", bound=Runner)


class Race(Generic[R]):
    """At most two calls for the same text; the call that begins first wins, and the other is cancelled.

    The first call runs in its caller's task, so that a race without a second call costs two timers. The second call has
    a task of its own, and interrupts the first when its first text comes.

    `start_second` is called after `after_s`, and starts the second call; None: it may not start yet. Then it is called
    again at intervals, and whenever `set` is called. `timeout_s` returns the time left for a first text; it is called
    again when the second call has started, which has a timeout of its own, and where the race does not give up when the
    time is over. `running` returns the calls so far; when the race ends, all of them but the winner are ended.
    """

    def __init__(
        self,
        after_s: float | None,
        start_second: Callable[[], asyncio.Task[R] | None],
        timeout_s: Callable[[], float],
        running: Callable[[], Iterable[R]],
        gives_up: Callable[[], bool] = lambda: True,
    ):
        self._loop, self._began, self._running = asyncio.get_running_loop(), 0.0, running
        self._after_s, self._start_second, self._timeout_s = after_s, start_second, timeout_s
        self._gives_up = gives_up
        self._task: asyncio.Task[Any] | None = None  # the task that runs the first call
        self._second: asyncio.Task[R] | None = None
        self._next_try: asyncio.TimerHandle | None = None
        self._timeout: asyncio.TimerHandle | None = None
        self._first_runs, self._late = True, False
        self._decided = False  # a call has won, or the time is over

    async def run(self, first: Coroutine[Any, Any, R]) -> R:
        """Return the winner, when the other call has ended. Raises the error of the last call when all have failed, and
        `TooLate` when no first text came in time."""
        self._task, self._began = asyncio.current_task(), self._loop.time()
        if self._after_s is not None:
            self._next_try = self._loop.call_later(self._after_s, self._try_second)
        self._loop.call_soon(self._set_timeout)  # after the first call has started
        winner: R | None = None
        try:
            winner = await self._first_or_second(first)
            self._decided = True
            return winner
        finally:
            self._close(winner)

    def set(self) -> None:
        """Try again to start the second call: the budget may allow it now."""
        if self._next_try and self._after_s is not None and self._loop.time() >= self._began + self._after_s:
            self._next_try.cancel()
            self._try_second()

    async def _first_or_second(self, first: Coroutine[Any, Any, R]) -> R:
        try:
            return await first
        except asyncio.CancelledError:
            if not self._is_ours():
                raise
        except ServiceError:
            if self._second is None:
                raise
        finally:
            self._first_runs = False
        if self._second is None or self._late:
            raise self._too_late()
        try:
            return await self._second
        except asyncio.CancelledError:
            if not self._is_ours():
                raise
            raise (self._too_late() if self._late else Unavailable("cancelled")) from None

    def _is_ours(self) -> bool:
        """Whether this race has cancelled its own task, and no caller has; that cancellation is then cleared."""
        return self._decided and (self._task is None or self._task.uncancel() == 0)

    def _too_late(self) -> TooLate:
        return TooLate(f"no first text within {(self._loop.time() - self._began) * 1000:.0f} ms")

    def _try_second(self) -> None:
        self._next_try = None
        if self._task is None or self._second or not self._first_runs:
            return
        call = self._start_second()
        if call is None:
            self._next_try = self._loop.call_later(_ASK_AGAIN_S, self._try_second)
            return
        self._second = call
        self._second.add_done_callback(self._second_ended)
        self._loop.call_soon(self._set_timeout)

    def _second_ended(self, second: asyncio.Task[R]) -> None:
        if not second.cancelled() and second.exception() is None and self._task and self._first_runs:
            self._interrupt(second.result())

    def _set_timeout(self) -> None:
        if self._task is None:
            return
        if self._timeout:
            self._timeout.cancel()
        timeout_s = self._timeout_s()
        self._timeout = self._loop.call_later(timeout_s, self._time_out) if timeout_s < float("inf") else None

    def _time_out(self) -> None:
        if self._decided:
            return
        if not self._gives_up():
            self._set_timeout()
            return
        self._late = True
        self._interrupt(None)

    def _interrupt(self, winner: R | None) -> None:
        if self._task and not self._decided:
            self._decided = True
            self._task.cancel()
            self._end_all_but(winner)

    def _end_all_but(self, winner: R | None) -> None:
        for each in self._running():
            if each is not winner:
                each.cancel_as_slow(late=self._late) if self._decided else each.cancel()

    def _close(self, winner: R | None) -> None:
        """Cancel the timers and all calls but the winner."""
        self._task = None
        for timer in filter(None, (self._next_try, self._timeout)):
            timer.cancel()
        self._next_try = self._timeout = None
        self._start_second = _none  # the callable may hold this race, which would keep both from being freed
        if self._second:
            self._second.cancel()
        self._end_all_but(winner)


def _none() -> None:
    return None
