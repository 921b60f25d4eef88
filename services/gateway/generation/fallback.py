"""The layers before an attempt: `Fallback` asks another model, `Retrying` the same again, and `Limiting` has an attempt
wait for a slot at its model."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter

from services.gateway.errors import ModelUnavailable, refuses_choices
from services.gateway.generation.call import Call
from services.gateway.generation.job import Attempt, Generate, Granted, Job
from services.gateway.labels import Act
from services.gateway.policies.breaker import BreakerOpen, Throttled
from services.gateway.policies.slot import Shed
from services.gateway.upstream.fleet import Fleet, Pool
from services.gateway.upstream.replica import Replica
from services.runtime.deadline import Deadline
from services.runtime.errors import (
    Exhausted,
    InvalidInput,
    Misconfigured,
    NotSupported,
    ServiceError,
    Starting,
    TooLate,
    Unavailable,
)

_NOT_SENT = (BreakerOpen, ModelUnavailable, Throttled, Starting)  # no model has seen the request
_MODELS = 3  # before the first text: a provider may be reachable only through another one
_WAITED_S = 0.001  # seconds: shorter waits are not reported
RETRIES = 2  # of one model: one replica, and a second one that died with it


class Fallback:
    """Asks one model after the other. A request that was shed is not passed on: another model must not get its load."""

    def __init__(self, inner: Generate[Job]):
        self._inner = inner

    async def __call__(self, job: Job) -> Call:
        problems, asked = list[ServiceError](), 0
        for number, model in enumerate(job.models):
            if asked == _MODELS:
                break
            if problems:
                job = _give_way(job, problems[-1], model)
            try:
                call = await self._inner(replace(job, models=job.models[number:]) if number else job)
                job.report.problems = [problem.outline for problem in problems]
                return call
            except Shed:
                raise
            except InvalidInput as problem:
                if not problems:
                    raise
                problems.append(problem)
                asked += 1
            except (Unavailable, Exhausted, TooLate, NotSupported, Misconfigured) as problem:
                problems.append(problem)
                asked += not isinstance(problem, _NOT_SENT)
        raise _summary(problems)


def _give_way(job: Job, problem: ServiceError, other: str) -> Job:
    """The job for the `other` model. Raises `problem` where no time is left or another model is not allowed."""
    if isinstance(problem, TooLate) and (job.deadline.is_over() or not job.fallback_when_late):
        raise problem
    if job.single_attempt and not isinstance(problem, _NOT_SENT):
        raise problem
    job.report.decisions.add(Act.FALLBACK_STARTED, other, problem.outline)
    return replace(job, first_text=Deadline.never(job.first_text.clock))


def _summary(problems: Sequence[ServiceError]) -> ServiceError:
    """One error for all: late where the last was, busy where every model was busy, else broken. If no model supports
    the request, or all are set up wrongly, the caller gets that. An error that another model finds in a request is not
    reported: the first model might have accepted it, and may be asked again. But that a model gives one answer to a
    request is reported: each can be asked for separately, also of the first model."""
    one_each = next(filter(refuses_choices, problems), None)
    problems = [problem for problem in problems if not isinstance(problem, InvalidInput)]
    if one_each and not isinstance(problems[-1], TooLate):
        return one_each
    if isinstance(problems[-1], TooLate) or all(
        isinstance(problem, NotSupported | Misconfigured) for problem in problems
    ):
        return problems[-1]
    text, outline = ("; ".join(map(attrgetter(name), problems)) for name in ("message", "outline"))
    delays = [problem.retry_delay_s for problem in problems if problem.retry_delay_s is not None]
    more = {"outline": outline} if outline != text else {}
    busy = all(isinstance(problem, Exhausted) for problem in problems)
    return (Exhausted if busy else ModelUnavailable)(text, retry_delay_s=min(delays, default=1.0), **more)


class Retrying:
    """Retries a failed call to one model, within a budget. A call that was refused before it was sent, or was sent
    twice already, is not retried."""

    def __init__(self, fleet: Fleet, inner: Generate[Attempt]):
        self._fleet, self._inner = fleet, inner

    async def __call__(self, job: Job) -> Call:
        pool, attempt, pause_s = self._fleet.pools[job.model], Attempt(job), None
        while True:
            try:
                if pause_s is not None:
                    await asyncio.sleep(pause_s)
                return await self._inner(attempt)
            except ServiceError as error:
                problem = error
            finally:
                if attempt.number > 1 and not attempt.calls:
                    self._fleet.retry.refund()
            if job.single_attempt or len(attempt.calls) != 1:
                raise problem
            failed = (*attempt.failed, attempt.calls[0].replica)
            pause_s = self._pause_s(job, pool, failed, problem)
            if pause_s is None:
                raise problem
            job.report.decisions.add(Act.RETRY_STARTED, pool.model, problem.outline)
            attempt = Attempt(job, failed=failed)

    def _pause_s(self, job: Job, pool: Pool, failed: Sequence[Replica], problem: ServiceError) -> float | None:
        """Seconds to wait before another call; None for no other call. A replica that was silent, or is set up
        wrongly, is not asked again."""
        if len(failed) > 1 and (len(failed) > RETRIES or not pool.has_others(failed)):
            return None
        elsewhere = isinstance(problem, TooLate | Misconfigured)
        if pool.is_open(job.slot_request.tenant, failed if elsewhere else ()):
            return None
        if not elsewhere:
            return self._fleet.retry.pause_s(problem, job.deadline.remaining())
        return 0.0 if not job.deadline.is_over() and self._fleet.retry.spend() else None


class Limiting:
    """Waits for a slot, or sheds. Refuses before the wait where no replica of the model may be called, or a drill drops
    the call. A call that was sent releases its slot when it ends."""

    def __init__(self, fleet: Fleet, inner: Generate[Granted]):
        self._fleet, self._inner = fleet, inner

    async def __call__(self, attempt: Attempt) -> Call:
        job = attempt.job
        pool = self._fleet.pools[job.model]
        _check_available(pool, job)
        slot = await pool.limiter.enter(job.slot_request)
        try:
            if slot.waited_s > _WAITED_S:
                attempt.job = _after(job, slot.waited_s)
            return await self._inner(Granted(attempt, slot))
        except BaseException:
            slot.release(unused=True)
            raise


def _check_available(pool: Pool, job: Job) -> None:
    if pool.is_open(job.slot_request.tenant):
        refusal = pool.refusal(job.slot_request.tenant)
        if not isinstance(refusal, Starting):
            job.report.decisions.add(Act.BREAKER_REFUSED, pool.model, refusal.outline)
        raise refusal
    if pool.drop_share and pool.rng.random() < pool.drop_share:
        job.report.decisions.add(Act.DRILL_DROPPED, pool.model, f"a drill drops {pool.drop_share:.0%} of calls")
        raise Unavailable(f"{pool.model}: dropped by a drill")


def _after(job: Job, waited_s: float) -> Job:
    """The job after its wait. For an item of a batch, the time to first text starts only now."""
    job.report.decisions.add(Act.LIMIT_WAITED, job.model, f"{waited_s * 1000:.0f} ms for a slot")
    if not job.slot_request.on_batch_slot:
        return job
    return replace(job, first_text=Deadline(job.first_text.at + waited_s, job.first_text.clock))
