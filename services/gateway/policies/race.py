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
    """A call in a race, whether or not its first text is here. One that has ended stays as it is."""

    def lose(self) -> None:
        """End it: another was faster, or there is no patience left."""
        ...

    def leave(self) -> None:
        """Cancel the call: the race is over, and its end is no sample."""
        ...


R = TypeVar("R", bound=Runner)


class Race(Generic[R]):
    """At most two calls for the same text; the call that begins first wins, and the other is cancelled.

    The first call runs in the task of its caller, so that a race without a second call costs two timers. The second has
    a task of its own, and interrupts the first when it begins. `second` is asked for it after `after_s`. While it
    returns none it is asked again, whenever `set` is called and at intervals. `patience_s`: how long to wait for the
    calls under way, asked again after the second has begun, which has a timeout of its own. `running`: the calls by
    now; a race ends all of them but its winner.
    """

    def __init__(
        self,
        after_s: float | None,
        second: Callable[[], asyncio.Task[R] | None],
        patience_s: Callable[[], float],
        running: Callable[[], Iterable[R]],
    ):
        self._loop, self._began, self._running = asyncio.get_running_loop(), 0.0, running
        self._after_s, self._ask, self._patience_s = after_s, second, patience_s
        self._waiting: asyncio.Task[Any] | None = None  # the task that runs the first call
        self._second: asyncio.Task[R] | None = None
        self._asking: asyncio.TimerHandle | None = None
        self._ending: asyncio.TimerHandle | None = None
        self._first_runs, self._late = True, False
        self._decided = False  # one has won, or all were given up: else those that run are left

    async def run(self, first: Coroutine[Any, Any, R]) -> R:
        """The call that begins first; the other has ended by then. Raises what the last call failed with when
        all have failed, `TooLate` when there is no patience left."""
        self._waiting, self._began = asyncio.current_task(), self._loop.time()
        if self._after_s is not None:
            self._asking = self._loop.call_later(self._after_s, self._ask_for_second)
        self._loop.call_soon(self._take_patience)  # when the first is on its way
        winner: R | None = None
        try:
            winner = await self._first_or_second(first)
            self._decided = True
            return winner
        finally:
            self._close(winner)

    def set(self) -> None:
        """There may be a second call now."""
        if self._asking and self._after_s is not None and self._loop.time() >= self._began + self._after_s:
            self._asking.cancel()
            self._ask_for_second()

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
        """Whether a cancellation is an interruption of ours, which then is over."""
        return self._decided and (self._waiting is None or self._waiting.uncancel() == 0)

    def _too_late(self) -> TooLate:
        return TooLate(f"no first text within {(self._loop.time() - self._began) * 1000:.0f} ms")

    def _ask_for_second(self) -> None:
        self._asking = None
        if self._waiting is None or self._second or not self._first_runs:
            return
        call = self._ask()
        if call is None:
            self._asking = self._loop.call_later(_ASK_AGAIN_S, self._ask_for_second)
            return
        self._second = call
        self._second.add_done_callback(self._second_ended)
        self._loop.call_soon(self._take_patience)

    def _second_ended(self, second: asyncio.Task[R]) -> None:
        if not second.cancelled() and second.exception() is None and self._waiting and self._first_runs:
            self._interrupt(second.result())

    def _take_patience(self) -> None:
        if self._waiting is None:
            return
        if self._ending:
            self._ending.cancel()
        patience_s = self._patience_s()
        self._ending = self._loop.call_later(patience_s, self._give_up) if patience_s < float("inf") else None

    def _give_up(self) -> None:
        self._late = True
        self._interrupt(None)

    def _interrupt(self, winner: R | None) -> None:
        if self._waiting and not self._decided:
            self._decided = True
            self._waiting.cancel()
            self._end_all_but(winner)

    def _end_all_but(self, winner: R | None) -> None:
        for each in self._running():
            if each is not winner:
                each.lose() if self._decided else each.leave()

    def _close(self, winner: R | None) -> None:
        """Nothing of it stays."""
        self._waiting = None
        for timer in filter(None, (self._asking, self._ending)):
            timer.cancel()
        self._asking = self._ending = None
        self._ask = _nobody  # the callable may hold this race, which would keep both from being freed
        if self._second:
            self._second.cancel()
        self._end_all_but(winner)


def _nobody() -> None:
    return None
