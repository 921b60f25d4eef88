"""The next model, where one is broken, throttled or late with its first text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter

from services.gateway.errors import ModelUnavailable, refuses_choices
from services.gateway.generation.call import Call
from services.gateway.generation.job import Generate, Job
from services.gateway.labels import Act
from services.gateway.policies.breaker import BreakerOpen, Throttled
from services.gateway.policies.slot import Shed
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
                end = number + 1 if asked == _MODELS - 1 else None
                call = await self._inner(replace(job, models=job.models[number:end]) if number else job)
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
