"""The layers for a call that fails before its first text: wait for a start, ask another model, or retry.

The order is that of `stack.py`: `StartWait`, then `Fallback`, then `Retrying`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter

from services.gateway.errors import ModelUnavailable, refuses_choices
from services.gateway.generation.call import Call
from services.gateway.generation.job import Attempt, Generate, Job
from services.gateway.labels import Act
from services.gateway.policies.breaker import BreakerOpen, Throttled
from services.gateway.policies.slot import Shed
from services.gateway.upstream.fleet import Fleet, Pool, Replica
from services.runtime.deadline import Deadline, set_within
from services.runtime.errors import Exhausted, InvalidInput, NotSupported, ServiceError, Starting, TooLate, Unavailable

_POLL_S = 0.05  # between two calls, where health and the service differ about whether it serves
_MOST_WAITING = 1_000  # calls that wait; one more is refused at once
_KEPT_S, _KEPT_SHARE = 0.05, 0.05  # of the time left, to report that the model is still starting
_NOT_SENT = (BreakerOpen, Throttled, Starting)  # no model has seen the request
_MODELS = 3  # before the first text: a provider may be reachable only through another one
RETRIES = 2  # of one model: one replica, and a second one that died with it


class StartWait:
    """Waits for a model that is starting, where no other model can answer now: for as long as the first text may take.
    Then the call fails with `Starting`.

    It stands outside of the limiter: a call that waits for a start has no place at a model.
    """

    def __init__(self, fleet: Fleet, inner: Generate[Job]):
        self._fleet, self._inner, self._waiting = fleet, inner, 0

    async def __call__(self, job: Job) -> Call:
        while True:
            if self._is_starting(job):
                self._waiting += 1
                try:
                    await self._wait(job)
                finally:
                    self._waiting -= 1
            try:
                return await self._inner(job)
            except Unavailable:
                if not self._is_starting(job):
                    raise
            await asyncio.sleep(_POLL_S)

    def _is_starting(self, job: Job) -> bool:
        """Whether no model of the job may be called now, and at least one of them is starting."""
        pools = self._pools(job)
        return all(pool.is_open(job.slot_request.tenant) for pool in pools) and any(pool.starting for pool in pools)

    def _pools(self, job: Job) -> list[Pool]:
        """The pools of the job's models. The router's table may name models that this gateway does not have."""
        return [self._fleet.pools[model] for model in job.models if model in self._fleet.pools]

    async def _wait(self, job: Job) -> None:
        """Return when a model may be called, or none is starting. Raises `Starting` when the time is over."""
        pools, began = self._pools(job), job.deadline.clock()
        model = next(pool for pool in pools if pool.starting)
        left_s = job.deadline.remaining()
        until = min(began + left_s - min(_KEPT_S, left_s * _KEPT_SHARE), job.first_text.at)
        with self._fleet.notice.listening() as changed:
            while self._is_starting(job):
                left_s = until - job.deadline.clock()
                job.report.waited = f"{model.model}: the model is starting"
                if left_s <= 0 or self._waiting > _MOST_WAITING:
                    raise model.refusal(job.slot_request.tenant)
                others_s = (pool.admits_in_s(job.slot_request.tenant) for pool in pools)
                await set_within(changed, min(left_s, *others_s))
                changed.clear()
        waited = f"{(job.deadline.clock() - began) * 1000:.0f} ms for the model to start"
        job.report.waited = f"{model.model}: {waited}"
        job.report.decisions.add(Act.START_WAITED, model.model, waited)


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
            except (Unavailable, Exhausted, TooLate, NotSupported) as problem:
                problems.append(problem)
                asked += not isinstance(problem, _NOT_SENT)
        raise _summary(problems)


def _give_way(job: Job, problem: ServiceError, other: str) -> Job:
    """The job for the `other` model. Raises `problem` where no time is left or another model is not allowed."""
    if isinstance(problem, TooLate) and (job.deadline.is_over() or not job.others_when_late):
        raise problem
    if job.once and not isinstance(problem, _NOT_SENT):
        raise problem
    job.report.decisions.add(Act.FALLBACK_STARTED, other, problem.outline)
    return replace(job, first_text=Deadline.never(job.first_text.clock))


def _summary(problems: Sequence[ServiceError]) -> ServiceError:
    """One error for all: late where the last was, busy where every model was busy, else broken. If no model supports
    the request, the caller gets that. An error that another model finds in a request is not reported: the first model
    might have accepted it, and may be asked again. But that a model gives one answer to a request is reported: each can
    be asked for separately, also of the first model."""
    one_each = next(filter(refuses_choices, problems), None)
    problems = [problem for problem in problems if not isinstance(problem, InvalidInput)]
    if one_each and not isinstance(problems[-1], TooLate):
        return one_each
    if isinstance(problems[-1], TooLate) or all(isinstance(problem, NotSupported) for problem in problems):
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
            if job.once or len(attempt.calls) != 1:
                raise problem
            failed = (*attempt.failed, attempt.calls[0].replica)
            pause_s = self._pause_s(job, pool, failed, problem)
            if pause_s is None:
                raise problem
            job.report.decisions.add(Act.RETRY_STARTED, pool.model, problem.outline)
            attempt = Attempt(job, failed=failed)

    def _pause_s(self, job: Job, pool: Pool, failed: Sequence[Replica], problem: ServiceError) -> float | None:
        """Seconds to wait before another call; None for no other call. A replica that was silent is not asked again."""
        if len(failed) > 1 and (len(failed) > RETRIES or not pool.has_others(failed)):
            return None
        silent = isinstance(problem, TooLate)
        if pool.is_open(job.slot_request.tenant, failed if silent else ()):
            return None
        if not silent:
            return self._fleet.retry.pause_s(problem, job.deadline.remaining())
        return 0.0 if not job.deadline.is_over() and self._fleet.retry.spend() else None
