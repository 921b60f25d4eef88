"""Checks answers beside the event loop, one at a time: whatever a stranger's form asks for, all else waits for one
thread's turns at the interpreter and no more. Tenants share that thread by the processor time of their checks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache

from hedgerow.chat.v1 import chat_pb2
from services.gateway.output_validation.matching import mismatch
from services.gateway.output_validation.verdict import Mismatch, Unchecked
from services.runtime.policy.fair import Rank
from services.runtime.policy.fair_places import FairPlaces

_MOST_WAITING, _MOST_OF_A_TENANT = 2_000, 500  # answers, which their requests hold meanwhile


@dataclass(frozen=True, slots=True)
class Checked:
    """What a check has found, and the processor time that it took."""

    found: Mismatch | BaseException | None
    spent_s: float


Beside = Callable[[chat_pb2.ResponseFormat, str, float], asyncio.Future[Checked]]


def checked(wanted: chat_pb2.ResponseFormat, text: str, most_s: float) -> Checked:
    """Check an answer in this thread."""
    began = time.thread_time()
    found: Mismatch | Unchecked | None
    try:
        found = mismatch(wanted, text, most_s)
    except Unchecked as problem:
        found = problem
    return Checked(found, time.thread_time() - began)


@cache
def _thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, "form")


def _in_thread(wanted: chat_pb2.ResponseFormat, text: str, most_s: float) -> asyncio.Future[Checked]:
    return asyncio.get_running_loop().run_in_executor(_thread(), checked, wanted, text, most_s)


@dataclass(eq=False, slots=True)
class _Check:
    tenant: str
    weight: float
    rank: Rank
    wanted: chat_pb2.ResponseFormat
    text: str
    outcome: asyncio.Future[Mismatch | None]


class Forms:
    """A check takes `most_ms` of processor time at the most, and no answer waits longer for it than it says.
    `by_default`: whether answers are checked where neither the request nor its tenant says.

    The tenant whose checks have taken the least time for its weight is next. A turn counts as a millisecond more, so
    that many short checks are not free. When nothing runs or waits, all tenants start even.
    """

    def __init__(self, most_ms: float = 200, beside: Beside = _in_thread, *, by_default: bool = True):
        self.by_default = by_default
        self._most_s, self._beside = most_ms / 1000, beside
        self._places: FairPlaces[_Check] = FairPlaces(1, self._start, charged=True)

    async def mismatch(
        self, tenant: str, weight: float, wanted: chat_pb2.ResponseFormat, text: str, within_s: float
    ) -> Mismatch | None:
        """Why `text` does not match; None where it does. Raises `Unchecked`. What runs goes on without its caller."""
        outcome: asyncio.Future[Mismatch | None] = asyncio.get_running_loop().create_future()
        check = _Check(tenant, weight, self._places.rank(), wanted, text, outcome)
        self._make_room(check)
        self._places.add(check)
        try:
            async with asyncio.timeout(within_s):
                return await outcome
        except TimeoutError:
            raise Unchecked("there was no time to check it") from None
        finally:
            self._places.waiting.remove(check)

    def _make_room(self, check: _Check) -> None:
        """Whoever has the most waiting for its weight gives way. Raises `Unchecked` where that is `check`'s tenant."""
        waiting = self._places.waiting
        of_tenant = round(waiting.crowd(check.tenant, 1))
        if of_tenant >= _MOST_OF_A_TENANT:
            raise Unchecked(f"{of_tenant} answers of this tenant wait to be checked, and no more may")
        if len(waiting) < _MOST_WAITING:
            return
        worst, full = waiting.worst(), f"{len(waiting)} answers wait to be checked, and no more may"
        if waiting.crowd(worst.tenant, worst.weight) <= waiting.crowd(check.tenant, check.weight, more=1):
            raise Unchecked(full)
        waiting.remove(worst)
        if not worst.outcome.done():  # else it is cancelled, and has not run since
            worst.outcome.set_exception(Unchecked(full))

    def _start(self, check: _Check) -> bool:
        running = self._beside(check.wanted, check.text, self._most_s)
        running.add_done_callback(lambda running: self._settle(check, running))
        return True

    def _settle(self, check: _Check, running: asyncio.Future[Checked]) -> None:
        error = running.exception()  # a fault of ours
        done = Checked(error, self._most_s) if error else running.result()
        if not check.outcome.done():  # else its answer is over
            if isinstance(done.found, BaseException):
                check.outcome.set_exception(done.found)
            else:
                check.outcome.set_result(done.found)
        self._places.ended(check, done.spent_s * 1000)
