"""Further calls to a model whose call failed: retries before the first text, and failover in the middle of an
answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from hedgerow.llm.v1 import llm_pb2
from services.gateway.generation.call import Call, Text
from services.gateway.generation.job import Attempt, Generate, Granted, Job, Report
from services.gateway.labels import Act
from services.gateway.settings.permissions import is_plain_text
from services.gateway.upstream.fleet import Fleet, Pool
from services.gateway.upstream.replica import Replica
from services.runtime.errors import Exhausted, Misconfigured, ServiceError, ShareUsed, TooLate

RETRIES = 2  # of a request at one model: two replicas may have died together


class Retrying:
    """Retries a failed call to one model, within a budget. A call that was refused before it was sent, or was sent
    twice already, is not retried."""

    def __init__(self, fleet: Fleet, inner: Generate[Attempt]):
        self._fleet, self._inner = fleet, inner

    async def __call__(self, job: Job) -> Call:
        pool, attempt, pause_s = self._fleet.pools[job.model], Attempt(job), None
        tenant = job.slot_request.tenant
        while True:
            try:
                if pause_s is not None:
                    await asyncio.sleep(pause_s)
                return await self._inner(attempt)
            except ServiceError as error:
                problem = error
            finally:
                if attempt.number > 1 and not attempt.calls:
                    self._fleet.retry.refund(tenant)
            if job.single_attempt or len(attempt.calls) != 1:
                raise problem
            failed = (*attempt.failed, attempt.calls[0].replica)
            pause_s = self._pause_s(job, pool, failed, problem)
            if pause_s is None:
                raise problem
            attempt = Attempt(attempt.job, reason=problem.outline, failed=failed)

    def _pause_s(self, job: Job, pool: Pool, failed: Sequence[Replica], problem: ServiceError) -> float | None:
        """Seconds to wait before another call; None for no other call. A replica that was silent, throttles or is set
        up wrongly is not asked again."""
        if len(failed) > 1 and (len(failed) > RETRIES or not pool.has_others(failed)):
            return None
        elsewhere, tenant = isinstance(problem, TooLate | Misconfigured) or _throttled(problem), job.slot_request.tenant
        if pool.is_open(tenant, failed if elsewhere else ()):
            return None
        if not elsewhere:
            return self._fleet.retry.pause_s(problem, job.deadline.remaining(), tenant)
        return 0.0 if not job.deadline.is_over() and self._fleet.retry.spend(tenant) else None


class Resumable:
    """Resumes an answer that breaks in mid-stream, after the text that was written. `begin` starts an answer, `resume`
    is one call for the rest of it."""

    def __init__(self, fleet: Fleet, begin: Generate[Job], resume: Generate[Granted]):
        self._fleet, self._begin, self._resume = fleet, begin, resume

    async def __call__(self, job: Job, text: Text) -> None:
        """Write the answer into `text`. Raises `ServiceError` if it ends without its last message."""
        call = await self._begin(job)
        try:
            while problem := await _forwarded(call, job.report, text):
                call.failed(problem)
                if isinstance(problem, TooLate) or text.over:
                    raise problem
                call = await self._continue(job, text, call, problem)
            text.end()
            await call.finished()
        finally:
            call.cancel()

    async def _continue(self, job: Job, text: Text, broken: Call, problem: ServiceError) -> Call:
        """Another call for the rest of the text. Raises `problem` where that is not possible."""
        failed: Sequence[Replica] = (broken.replica,)
        cause = problem
        while len(failed) <= RETRIES and _may_resume(cause) and not (job.single_attempt or job.deadline.is_over()):
            rest = self._job_for_rest(job, text, broken.pool, failed, cause)
            if rest is None:
                break
            try:
                return await self._resume(rest)
            except ServiceError as next_problem:
                cause = next_problem
                rest.slot.release(unused=True)
            if (call := rest.attempt.call) is None:
                self._fleet.retry.refund(job.slot_request.tenant)
                break
            job.report.decisions.add(Act.FAILOVER_FAILED, call.replica, cause.outline)
            failed = (*failed, call.replica)
        raise problem

    def _job_for_rest(
        self, job: Job, text: Text, pool: Pool, failed: Sequence[Replica], cause: ServiceError
    ) -> Granted | None:
        """The job for the rest of the text; None without another replica, a spare slot or a retry in the budget."""
        request, excluded = _request_for_rest(job.request, text.items), pool.elsewhere(failed)
        if request is None or pool.is_open(job.slot_request.tenant, excluded):
            return None
        slot = pool.limiter.spare()
        if slot is None:
            return None
        if not self._fleet.retry.spend(job.slot_request.tenant):
            slot.release(unused=True)
            return None
        rest = Attempt(
            replace(job, request=request, models=(pool.model,)),
            kind="failover",
            reason=cause.outline,
            failed=failed,
            excluded=excluded,
            carried_tokens=sum(each.tokens for each in text.items),
        )
        return Granted(rest, slot)


def _throttled(problem: ServiceError) -> bool:
    """Whether this replica is at its limit, so that another may have capacity. A used share of a tenant is none: it
    holds for all replicas."""
    return isinstance(problem, Exhausted) and not isinstance(problem, ShareUsed)


def _may_resume(cause: ServiceError) -> bool:
    """Whether another replica may continue a stream that ended with this error."""
    return cause.retryable or _throttled(cause)


async def _forwarded(call: Call, report: Report, text: Text) -> ServiceError | None:
    """The error that ended the call; None when all of it was forwarded.

    When the last reader leaves meanwhile, the call is cancelled and not the task that reads it: of a read that is
    cancelled gRPC keeps 125 to 160 bytes for good (grpcio 1.85.1).
    """
    pool, report.model = call.pool, call.pool.model
    report.resumed, report.carried_tokens = call.kind == "failover", call.carried_tokens
    if pool.throughput_drop.active:
        rate = f"token rate at {pool.throughput_drop.ratio():.2f} of the baseline"
        report.decisions.add(Act.LIMIT_THROUGHPUT_DROP, pool.model, rate)
    text.stop = call.cancel
    try:
        await call.forward(text)
    except ServiceError as problem:
        return problem
    finally:
        text.stop = None
    return None


def _request_for_rest(
    request: llm_pb2.GenerateRequest, written: Sequence[llm_pb2.GenerateResponse]
) -> llm_pb2.GenerateRequest | None:
    """The request for the rest of the text; None where no engine could continue: a constraint holds for a whole answer
    and not for its end, and reasoning and calls cannot be continued."""
    if request.HasField("response_format") or request.tools or any(message.reasoning for message in written):
        return None
    if not is_plain_text(request.original):
        return None
    rest = llm_pb2.GenerateRequest()
    rest.CopyFrom(request)
    rest.prefix = request.prefix + "".join(message.text for message in written)
    written_tokens = sum(message.tokens for message in written)
    if request.sampling.HasField("max_tokens"):
        rest.sampling.max_tokens = request.sampling.max_tokens - written_tokens
        if rest.sampling.max_tokens < 1:
            return None
    if request.sampling.HasField("min_tokens"):
        rest.sampling.min_tokens = max(0, request.sampling.min_tokens - written_tokens)
    return rest
