"""Hedging: a second call where the first text is late; the first text wins and the other call is cancelled.

J. Dean and L. A. Barroso, "The Tail at Scale", CACM 56(2), 2013 (https://doi.org/10.1145/2408776.2408794): a second
call after the 95th percentile costs 5% more calls and takes most of the tail away. Three ways to choose the moment:

- `adaptive`: after a percentile of the model's recent first-token times; where there were few lately, of those of a
  longer time; where those are few too, after the time that the model is expected to need. Requests that never needed a
  model (cache hits) earn budget too; it is spent by hedging sooner, at the percentile that uses the budget up.
- `fixed`: after a set delay, for two providers that race.
- `tied`: at once, while there is budget. (The paper's tied calls know of each other and cancel in the server's queue;
  servers here do not know each other, so the loser is cancelled from here, at the winner's first text.)

Streams are raced to their *first* text alone: what follows differs from call to call and could not be mixed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Generic, Literal, Protocol, TypeVar

from services.gateway.policies.usual import Usual
from services.runtime.deadline import Clock
from services.runtime.digest import WindowedDigest
from services.runtime.errors import ServiceError, TooLate, Unavailable
from services.runtime.policy.bucket import ExtraBudget

Mode = Literal["adaptive", "fixed", "tied", "off"]
_MEMORY = 1 - 1 / 1_000  # requests that the ratio of requests to calls remembers
_LOOK_EVERY_S = 0.05  # percentiles move more slowly than requests come
_ASK_AGAIN_S = 0.25
_SOONEST = 0.5  # percentile: hedging the faster half wins nothing


class Waiter(Protocol):
    """Who waits for a second call to be paid for."""

    def set(self) -> None:
        """It is your turn, or may be."""
        ...


class HedgeBudget:
    """The second calls of a whole process: `share` of its requests, whether or not they needed a model.

    Who finds nothing to spend gets in line, and who has waited longest is next: most of those that are a little late
    are helped by waiting, and what is left over belongs to the slowest.

    Processes that share one budget `draw` what they do not need and `put` in what others saved. `wanting` is set when
    somebody gets in line.
    """

    def __init__(self, share: float, burst: float):
        self.burst, self.wanting = burst, asyncio.Event()
        self._budget, self._share = ExtraBudget(share, burst), share
        self._requests = self._calls = 0.0
        self._line: dict[Waiter, None] = {}  # the longest wait first

    def request(self) -> None:
        """A request came; it may be answered without a call."""
        self._budget.seen()
        self._requests = self._requests * _MEMORY + 1
        self._calls *= _MEMORY
        self._call_next()

    def call(self) -> None:
        """A request needs a call."""
        self._calls += 1

    def spend(self, news: Waiter) -> bool:
        """Whether a second call may be made; it is then counted. Else `news` will be set when it is this one's turn,
        until it has left."""
        first = next(iter(self._line), news)
        if first is news and self._budget.spend():
            self.leave(news)
            return True
        self._line[news] = None
        self.wanting.set()
        return False

    def leave(self, news: Waiter) -> None:
        """No second call is wanted any more."""
        if news in self._line:
            del self._line[news]
            self._call_next()

    def refund(self) -> None:
        """The second call was not made after all."""
        self._budget.refund()
        self._call_next()

    def missing(self) -> float:
        """How many second calls this process could do with beyond those it can pay for: those in line, or one that it
        may want at once."""
        return max(0.0, max(1, len(self._line)) - self._budget.level)

    def draw(self) -> float:
        """Take out what is not needed here now, and return how much that is."""
        return 0.0 if self._line else self._budget.draw(keep=1)

    def put(self, amount: float) -> None:
        """Add what others have saved."""
        self._budget.put(amount)
        self._call_next()

    def share_of_calls(self) -> float:
        """The share of calls that the budget is good for, 0 to 1."""
        return min(1.0, self._share * max(1.0, self._requests / self._calls)) if self._calls else self._share

    def _call_next(self) -> None:
        if self._line and self._budget.ready:
            next(iter(self._line)).set()


@dataclass(frozen=True, slots=True)
class HedgeRule:
    """When to hedge. `percentile` is 0 to 100; the latest moment in `adaptive` mode, which looks at the last `window_s`
    seconds where they hold `min_samples` first-token times."""

    mode: Mode = "adaptive"
    percentile: float = 95
    delay_s: float = 0.15
    min_samples: int = 100
    window_s: float = 60


class Hedge:
    """The moment to hedge the calls of one model. `usual`: what it has needed over a longer time, or is expected to."""

    def __init__(self, rule: HedgeRule, budget: HedgeBudget, usual: Usual, clock: Clock = time.monotonic):
        self._rule, self.budget, self._usual, self._clock = rule, budget, usual, clock
        self.basis = ""  # what the moment goes by, for people
        self._looked = float("-inf")
        self._moment_s = 0.0
        self._firsts = WindowedDigest(rule.window_s, clock)

    def saw(self, first_s: float) -> None:
        """A call's time to its first text."""
        self._firsts.add(first_s)

    def gave_up(self, after_s: float) -> bool:
        """A call ended before its first text, by its deadline or because another was faster. It would have taken longer
        than this. Where this is longer than usual it counts: without these calls, the slow ones would be missing from
        the percentiles. Returns whether it counts."""
        usual = self._firsts.quantile(0.5)
        counts = usual is None or after_s >= usual
        if counts:
            self._firsts.add(after_s)
        return counts

    def after_s(self) -> float | None:
        """How long to wait for a first text before a second call; None: no second call."""
        match self._rule.mode:
            case "off":
                return None
            case "tied":
                self.basis = "at once"
                return 0.0
            case "fixed":
                self.basis = "the fixed delay"
                return self._rule.delay_s
        now = self._clock()
        if now >= self._looked + _LOOK_EVERY_S:
            self._looked, self._moment_s = now, self._look()
        return self._moment_s

    def _look(self) -> float:
        quantile = min(self._rule.percentile / 100, 1 - self.budget.share_of_calls())
        quantile = round(max(quantile, _SOONEST), 2)
        percentile = f"the {quantile * 100:.0f}th percentile"
        if self._firsts.count >= self._rule.min_samples and (moment_s := self._firsts.quantile(quantile)) is not None:
            self.basis = f"{percentile} of the last {self._rule.window_s:g} s"
            return moment_s
        if (moment_s := self._usual.quantile_s(quantile)) is not None:
            self.basis = f"{percentile} of the last ten minutes"
            return moment_s
        self.basis = "what is expected"
        return self._usual.expected_s


class Runner(Protocol):
    """What a call in a race comes to: its first text is here."""

    def lose(self) -> None:
        """Cancel it: another was faster."""
        ...

    def leave(self) -> None:
        """Cancel it: nobody waits for it any more, which says nothing of it."""
        ...


R = TypeVar("R", bound=Runner)


class Race(Generic[R]):
    """At most two calls for the same text; what begins first wins, and the other is cancelled.

    The first call runs in the task of whoever waits, so that a race without a second call costs two timers. The second
    has a task of its own, and interrupts the first when it begins. `second` is asked for it after `after_s`. While it
    has none it is asked again, whenever `set` is called and every now and then. `patience_s`: how long to wait for
    those who run, also told after the second has begun: it has patience of its own.
    """

    def __init__(
        self,
        after_s: float | None,
        second: Callable[[], Coroutine[Any, Any, R] | None],
        patience_s: Callable[[], float],
    ):
        self._loop, self._began = asyncio.get_running_loop(), 0.0
        self._after_s, self._ask, self._patience_s = after_s, second, patience_s
        self._waiting: asyncio.Task[Any] | None = None  # who runs the first call
        self._second: asyncio.Task[R] | None = None
        self._asking: asyncio.TimerHandle | None = None
        self._ending: asyncio.TimerHandle | None = None
        self._first_runs, self._late = True, False
        self.decided = False  # one has won, or all were given up: else who is cancelled is left

    async def run(self, first: Coroutine[Any, Any, R]) -> R:
        """The call that begins first; the other has been cancelled by then. Raises what the last call failed with when
        all have failed, `TooLate` when there is no patience left."""
        self._waiting, self._began = asyncio.current_task(), self._loop.time()
        if self._after_s is not None:
            self._asking = self._loop.call_later(self._after_s, self._ask_for_second)
        self._loop.call_soon(self._take_patience)  # when the first is on its way
        winner: R | None = None
        try:
            winner = await self._first_or_second(first)
            self.decided = True
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
        return self.decided and (self._waiting is None or self._waiting.uncancel() == 0)

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
        self._second = self._loop.create_task(call)
        self._second.add_done_callback(self._second_ended)
        self._loop.call_soon(self._take_patience)

    def _second_ended(self, second: asyncio.Task[R]) -> None:
        if not second.cancelled() and second.exception() is None and self._waiting and self._first_runs:
            self._interrupt()

    def _take_patience(self) -> None:
        if self._waiting is None:
            return
        if self._ending:
            self._ending.cancel()
        patience_s = self._patience_s()
        self._ending = self._loop.call_later(patience_s, self._give_up) if patience_s < float("inf") else None

    def _give_up(self) -> None:
        self._late = True
        self._interrupt()

    def _interrupt(self) -> None:
        if self._waiting and not self.decided:
            self.decided = True
            self._waiting.cancel()

    def _close(self, winner: R | None) -> None:
        """Nothing of it stays."""
        self._waiting = None
        for timer in filter(None, (self._asking, self._ending)):
            timer.cancel()
        second, self._asking = self._second, None
        if second is None:
            return
        second.cancel()
        if second.done() and not second.cancelled() and not second.exception() and second.result() is not winner:
            second.result().lose() if self.decided else second.result().leave()
