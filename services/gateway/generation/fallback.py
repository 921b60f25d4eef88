"""The next model, where one is broken, throttled, late with its first text, or cannot do what is asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from services.gateway.errors import ModelUnavailable
from services.gateway.generation.call import Call
from services.gateway.generation.job import Job
from services.gateway.generation.stream import Generate
from services.gateway.labels import Act
from services.gateway.policies.breaker import BreakerOpen
from services.gateway.policies.ticket import Shed
from services.runtime.deadline import Deadline
from services.runtime.errors import Exhausted, InvalidInput, NotSupported, ServiceError, Starting, TooLate, Unavailable

_NOT_SENT = (BreakerOpen, Starting)  # no model has seen the request
_MODELS = 3  # asked before the first text: a provider may be another's only way


class Fallback:
    """Asks one model after the other. Whoever was shed is: another model must not be burdened with it."""

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
    """What the `other` model has a try at, if there is anything left to try in and it is allowed."""
    if isinstance(problem, TooLate) and (job.deadline.is_over() or not job.others_when_late):
        raise problem
    if job.once and not isinstance(problem, _NOT_SENT):
        raise problem
    job.report.decisions.add(Act.FALLBACK_STARTED, other, problem.outline)
    return replace(job, first_text=Deadline.never(job.first_text.clock))


def _summary(problems: Sequence[ServiceError]) -> ServiceError:
    """One error for all: late where the last was, busy where every model was busy, else broken. What none
    of them can do callers hear. What another model refuses in a request is not what is wrong with it: the one that was
    to answer might have taken it, and may be asked again."""
    problems = [problem for problem in problems if not isinstance(problem, InvalidInput)]
    if isinstance(problems[-1], TooLate) or all(isinstance(problem, NotSupported) for problem in problems):
        return problems[-1]
    text = "; ".join(problem.message for problem in problems)
    delays = [problem.retry_delay_s for problem in problems if problem.retry_delay_s is not None]
    busy = all(isinstance(problem, Exhausted) for problem in problems)
    return (Exhausted if busy else ModelUnavailable)(text, retry_delay_s=min(delays, default=1.0))
