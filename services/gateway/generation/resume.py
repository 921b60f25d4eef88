"""A text that is read to its end: what breaks in mid-stream goes on elsewhere, from the text that is there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hedgerow.llm.v1 import llm_pb2
from services.gateway.generation.call import Call
from services.gateway.generation.job import Attempt, Job, Placed, Report
from services.gateway.generation.retrying import RETRIES
from services.gateway.generation.stream import Generate, Text
from services.gateway.labels import Act
from services.gateway.permissions import is_plain_text
from services.gateway.upstream.fleet import Fleet, Pool, Replica
from services.runtime.errors import ServiceError, TooLate


class Resumable:
    """`begin` brings a text's beginning, `again` one call for the rest of it."""

    def __init__(self, fleet: Fleet, begin: Generate[Job], again: Generate[Placed]):
        self._fleet, self._begin, self._again = fleet, begin, again

    async def __call__(self, job: Job, text: Text) -> None:
        """Write the answer into `text`. Raises when it ends without its last message."""
        call = await self._begin(job)
        try:
            while problem := await _poured(call, job.report, text):
                call.failed(problem)
                if isinstance(problem, TooLate):
                    raise problem
                call = await self._continue(job, text, call, problem)
            text.end()
            await call.finished()
        finally:
            call.leave()

    async def _continue(self, job: Job, text: Text, broken: Call, problem: ServiceError) -> Call:
        """Another call, which goes on from the text that is there. Raises `problem` where that cannot be."""
        failed: Sequence[Replica] = (broken.replica,)
        cause = problem
        while len(failed) <= RETRIES and cause.retryable and not job.once:
            rest = self._rest(job, text, broken.pool, failed, cause)
            if rest is None:
                break
            try:
                return await self._again(rest)
            except ServiceError as another:
                cause = another
                rest.slot.release(unused=True)
            if (call := rest.attempt.call) is None:
                break
            job.report.decisions.add(Act.FAILOVER_FAILED, call.replica, cause.outline)
            failed = (*failed, call.replica)
        raise problem

    def _rest(self, job: Job, text: Text, pool: Pool, failed: Sequence[Replica], cause: ServiceError) -> Placed | None:
        """The job that is left, where another replica is well, and load and budget allow it."""
        request, never = _request_for_rest(job.request, text.items), pool.elsewhere(failed)
        if request is None or pool.is_open(job.ticket.tenant, never):
            return None
        slot = pool.limiter.spare()
        if slot is None:
            return None
        if not self._fleet.retry.spend():
            slot.release(unused=True)
            return None
        rest, carried = replace(job, request=request, models=(pool.model,)), sum(each.tokens for each in text.items)
        return Placed(Attempt(rest, "failover", cause.outline, failed, never, carried), slot)


async def _poured(call: Call, report: Report, text: Text) -> ServiceError | None:
    """What the call broke with; None when all of it is poured."""
    pool, report.model = call.pool, call.pool.model
    report.resumed, report.carried_tokens = call.kind == "failover", call.carried_tokens
    if pool.sag.sagging:
        rate = f"tokens come at {pool.sag.ratio():.2f} of the usual rate"
        report.decisions.add(Act.LIMIT_SAGGING, pool.model, rate)
    try:
        await call.pour(text)
    except ServiceError as problem:
        return problem
    return None


def _request_for_rest(
    request: llm_pb2.GenerateRequest, written: Sequence[llm_pb2.GenerateResponse]
) -> llm_pb2.GenerateRequest | None:
    """The request for what is still to be written; None where an engine could not know how to go on: a constraint holds
    for a whole answer and not for the end of one, and so does a thought or a call."""
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
