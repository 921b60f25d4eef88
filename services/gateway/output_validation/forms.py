"""Whether a text matches a response format: one function for each kind, except grammars. The cost of a caller's grammar
is not known beforehand, and a thread cannot be stopped, so only the engine enforces a grammar (ADR 14)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Any

from hedgerow.chat.v1 import chat_pb2
from services.gateway.output_validation.mismatch import Mismatch, Unchecked
from services.runtime import strict_json
from services.runtime.policy.fair import Rank
from services.runtime.policy.fair_slots import FairSlots

_MOST_CHARACTERS = 1_000_000  # of an answer that is looked at
_NO_JSON = "it is no JSON"
_MOST_WAITING, _MOST_OF_A_TENANT = 2_000, 500  # answers, which their requests hold meanwhile


def mismatch(wanted: chat_pb2.ResponseFormat, text: str, most_s: float) -> Mismatch | None:
    """Why `text` does not match; None where it does. Raises `Unchecked`. Takes about `most_s` seconds at the most."""
    if len(text) > _MOST_CHARACTERS:
        raise Unchecked(f"an answer of more than {_MOST_CHARACTERS} characters is not checked")
    match wanted.WhichOneof("constraint"):
        case "json_schema":
            return _by_schema(wanted.json_schema, text, most_s)
        case "json_object" if wanted.json_object:
            return _by_object(text)
        case "regex":
            return _by_regex(wanted.regex, text, most_s)
        case "choice" if text not in wanted.choice.values:
            return Mismatch("it is none of the choices", "it is none of the texts to choose from, letter for letter")
    return None


def _by_schema(schema: str, text: str, most_s: float) -> Mismatch | None:
    parsed = _parsed(text)
    if isinstance(parsed, Mismatch):
        return parsed
    from services.gateway.output_validation import schema as json_schema  # its packages take long to load

    return json_schema.mismatch(strict_json.loads(schema), parsed, most_s)


def _by_object(text: str) -> Mismatch | None:
    parsed = _parsed(text)
    if isinstance(parsed, Mismatch):
        return parsed
    return None if isinstance(parsed, dict) else Mismatch("it is no JSON object", "it is JSON, but no object")


def _by_regex(pattern: str, text: str, most_s: float) -> Mismatch | None:
    from services.gateway.output_validation.schema import expression

    try:
        if expression(pattern).fullmatch(text, timeout=most_s, concurrent=True):
            return None
    except TimeoutError:
        raise Unchecked("a regular expression took too long") from None
    return Mismatch("it does not match the regular expression", "it does not match the regular expression as a whole")


def _parsed(text: str) -> Any:
    try:
        return strict_json.loads(text)
    except ValueError as error:
        return Mismatch(_NO_JSON, f"{_NO_JSON}: {error}")


@dataclass(frozen=True, slots=True)
class Checked:
    """The outcome of a check, and the processor time that it took."""

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

    The tenant whose checks have taken the least time for its weight is next. A turn counts as a millisecond more, so
    that many short checks are not free. When nothing runs or waits, all tenants start even.
    """

    def __init__(self, most_ms: float = 200, beside: Beside = _in_thread):
        self._most_s, self._beside = most_ms / 1000, beside
        self._slots: FairSlots[_Check] = FairSlots(1, self._start, charged=True)

    async def mismatch(
        self, tenant: str, weight: float, wanted: chat_pb2.ResponseFormat, text: str, within_s: float
    ) -> Mismatch | None:
        """Why `text` does not match; None where it does. Raises `Unchecked`. A running check continues without its
        caller."""
        outcome: asyncio.Future[Mismatch | None] = asyncio.get_running_loop().create_future()
        check = _Check(tenant, weight, self._slots.rank(), wanted, text, outcome)
        self._make_room(check)
        self._slots.add(check)
        try:
            async with asyncio.timeout(within_s):
                return await outcome
        except TimeoutError:
            raise Unchecked("there was no time to check it") from None
        finally:
            self._slots.waiting.remove(check)

    def _make_room(self, check: _Check) -> None:
        """Drop a check of the tenant with the most waiting for its weight. Raises `Unchecked` where that is the tenant
        of `check`."""
        waiting = self._slots.waiting
        of_tenant = round(waiting.load_of(check.tenant, 1))
        if of_tenant >= _MOST_OF_A_TENANT:
            raise Unchecked(f"{of_tenant} answers of this tenant wait to be checked, and no more may")
        if len(waiting) < _MOST_WAITING:
            return
        worst, full = waiting.worst(), f"{len(waiting)} answers wait to be checked, and no more may"
        if waiting.load_of(worst.tenant, worst.weight) <= waiting.load_of(check.tenant, check.weight, more=1):
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
        self._slots.ended(check, done.spent_s * 1000)
