"""One call to one replica. It holds a slot at the limiter and a permit of the breaker, and releases each exactly once,
with what the call has shown of the backend."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cache
from typing import Literal

from prometheus_client import Counter

from hedgerow.llm.v1 import llm_pb2
from hedgerow.router.v1 import router_pb2
from services.gateway.policies.concurrency_limit import Sample
from services.gateway.policies.single_flight import Flight
from services.gateway.policies.slot import Slot
from services.gateway.policies.tenant_aware_breaker import Blame, TenantAwarePermit
from services.gateway.upstream.assignment import Fault
from services.gateway.upstream.call_errors import AnswerTooLarge
from services.gateway.upstream.fleet import Pool
from services.gateway.upstream.replica import Replica
from services.runtime.deadline import Deadline
from services.runtime.errors import (
    Exhausted,
    InvalidInput,
    Misconfigured,
    NotSupported,
    ServiceError,
    ShareUsed,
    Starting,
    TooLate,
    Unavailable,
)
from services.runtime.policy.bucket import TokenBucket
from services.runtime.telemetry import Metadata

_ATTEMPTS = Counter("hedgerow_attempts", "Calls to models.", ["model", "kind", "outcome"])
_attempts = cache(_ATTEMPTS.labels)
Kind = Literal["first", "hedge", "failover"]
Outcome = Literal["ok", "failed", "refused", "late", "lost"]
# Messages of one answer that are read, so that a model that writes without pause takes a quarter of a core from other
# callers, and not all of it. Models send some hundred messages a second; the fastest send several tokens in each.
_MESSAGES_PER_S = 2_000
_MESSAGES_AT_ONCE = 256  # are read at once before that limit
_MESSAGES_A_TURN = 16  # are waited for together
Observe = Callable[[router_pb2.Observation], None]
Text = Flight[llm_pb2.GenerateResponse]  # the messages of a generation, for all of its readers
_RETRY_AFTER_S = 1.0  # for a throttled backend without a retry delay


class Call:
    """A call begins with its first text; then its messages are forwarded to the readers."""

    def __init__(
        self,
        request: llm_pb2.GenerateRequest,
        deadline: Deadline,
        metadata: Metadata,
        *,
        pool: Pool,
        replica: Replica,
        permit: TenantAwarePermit,
        slot: Slot,
        observe: Observe,
        stall_s: float,
        kind: Kind = "first",
        carried_tokens: int = 0,
    ):
        """`stall_s`: the longest silence in the middle of an answer. `carried_tokens`: tokens of the text that the call
        continues."""
        self.pool, self.replica, self.kind, self.carried_tokens = pool, replica, kind, carried_tokens
        self.problem: ServiceError | None = None  # the error before its first text
        # No attempt and no report: they refer to this call, and a cycle would wait for the garbage collector.
        self._permit, self._slot, self._observe = permit, slot, observe
        self._deadline, self._clock, self._stall_s = deadline, deadline.clock, stall_s
        self._started = self._last = self._clock()
        self._first_s: float | None = None
        self._first = llm_pb2.GenerateResponse()
        self._tokens = 0  # passed on, or received with the first message
        self._streamed = 0, 0.0  # tokens between the first message and the last, in how many seconds
        self._watching: asyncio.TimerHandle | None = None
        self.outcome: Outcome | None = None  # why it ended; set once it has released and reported everything
        self._completion = replica.llm.generate(request, deadline.remaining(), metadata)

    async def begin(self, fault: Fault | None = None) -> None:
        """Wait for the first message. A drill applies its `fault`."""
        if fault:
            await self._completion.suffer(fault)
        if self.kind == "failover":  # its readers are in mid-answer
            self._watch(max(self._stall_s, self.pool.baseline.needs_s()))
        try:
            self._first = await self._completion.read()
        finally:
            self._stop_watching()
        self._tokens = self._first.tokens
        self._last = self._clock()
        self._first_s = self._last - self._started
        self.replica.answered(self._first_s)

    async def forward(self, text: Text) -> None:
        """Pass on every message, the first and the last included. Raises the error that broke the stream."""
        self._record_first_text()
        completion = self._completion
        turns = TokenBucket(_MESSAGES_PER_S, _MESSAGES_AT_ONCE, self._clock)
        self._watch(self._stall_s)
        try:
            text.add(self._first)
            first_at = before_at = self._last
            before_tokens = self._tokens
            while completion.finish is None:
                before_at, before_tokens = self._last, self._tokens
                if not turns.take():
                    await asyncio.sleep(turns.wait_s(_MESSAGES_A_TURN))
                    turns.take()
                message = await completion.read()
                self._last = self._clock()
                self._tokens += message.tokens
                text.add(message)
            self._streamed = before_tokens - self._first.tokens, before_at - first_at
        finally:
            self._stop_watching()

    async def finished(self) -> None:
        """The text is complete. Readers get it before the call is recorded, and do not wait for the status."""
        await asyncio.sleep(0)
        self._record_complete()
        await self._completion.ended()

    @property
    def has_read(self) -> bool:
        """Whether the model has read the prompt. A call that was refused, or broke before its first text, has not; one
        that was late, or whose answer is too large, has."""
        return self.problem is None or isinstance(self.problem, (TooLate, AnswerTooLarge))

    def prompt_tokens(self) -> int:
        """The prompt tokens of the job by the count of the backend, without the text of earlier calls; 0 until it is
        known."""
        finish = self._completion.reported_finish
        return max(0, finish.usage.prompt_tokens - self.carried_tokens) if finish else 0

    def used(self, prompt_tokens: int) -> llm_pb2.Finish:
        """The usage that the backend reports. Without a report: a prompt of `prompt_tokens` plus the carried text, and
        the tokens that have come."""
        finish = llm_pb2.Finish()
        if self._completion.reported_finish:
            finish.CopyFrom(self._completion.reported_finish)
        finish.usage.prompt_tokens = finish.usage.prompt_tokens or prompt_tokens + self.carried_tokens
        finish.usage.completion_tokens = finish.usage.completion_tokens or self._tokens
        return finish

    def age_s(self) -> float:
        return self._clock() - self._started

    def failed(self, problem: ServiceError) -> None:
        """The call ended without its last message."""
        if self.outcome:
            return
        if self._first_s is None:
            self.problem = problem
        match problem:
            case TooLate():
                self._end_late("late")
            case Starting() if not self.replica.start.refused():  # it has been away for too long
                self._end_failed(self._permit.failed(), None)
            case InvalidInput() | NotSupported() | ShareUsed() | Starting():  # it is well, and refused this request
                self._permit.withdrawn()
                self._settle("refused", None)
            case Misconfigured() if self.pool.is_open(self._permit.tenant, (self.replica,)):
                # Without another replica an open breaker would only hide what the operator must correct.
                self._permit.withdrawn()
                self._end_failed(Blame.NONE, None)
            case Exhausted():
                delay_s = problem.retry_delay_s or _RETRY_AFTER_S
                blame = self._permit.throttled(delay_s)
                # The breaker waits a little longer, and would refuse a caller that comes back just then.
                own_s = max(delay_s, self._permit.retry_after_s())
                others_s = self.pool.admits_in_s(self._permit.tenant, (self.replica,))
                problem.retry_delay_s = min(own_s, max(_RETRY_AFTER_S, others_s))
                self._end_failed(blame, Sample(self.age_s(), None, self._slot.in_flight, failed=True))
            case _:
                self._end_failed(self._permit.failed(), None)
        self._completion.cancel()

    def cancel_as_slow(self, *, late: bool) -> None:
        """Cancel the call: its first text was too late, or another call was faster."""
        if not self.outcome:
            self._end_late("late" if late or self._deadline.is_over() else "lost")
            self._completion.cancel()

    def cancel(self) -> None:
        """The last reader has left; a finished call is not disturbed. A call that is left before its first text gives
        no sample: otherwise a flood of cancelled calls would look like a silent backend, on a machine that the flood
        keeps busy."""
        if self._completion.reported_finish:
            self._record_complete()
        elif not (self.outcome or self._first_s is not None or self._deadline.is_over()):
            self._permit.withdrawn()
            self._settle("lost", None)
            self._completion.cancel()
        self.cancel_as_slow(late=False)

    def _record_first_text(self) -> None:
        """The call has won: its messages go to the readers."""
        asyncio.get_running_loop().call_soon(self.pool.answered, self._first_s or 0.0)
        if self._permit.probe:  # no need to wait for the end of a long answer
            self._permit.succeeded(self._first_s)

    def _watch(self, longest_s: float) -> None:
        """End the call when it has been silent for so long; check again at the earliest such time."""
        left_s = longest_s - (self._clock() - self._last)
        if left_s <= 0:
            silent = f"{self.pool.model}: silent for {longest_s:.1f} s in mid-stream"
            self._completion.cancel(Unavailable(silent))
        elif left_s < float("inf"):
            self._watching = asyncio.get_running_loop().call_later(left_s, self._watch, longest_s)

    def _stop_watching(self) -> None:
        if self._watching:
            self._watching.cancel()

    def _record_complete(self) -> None:
        finish = self._completion.finish
        if self.outcome or finish is None:
            return
        queue_s = finish.queue_ms / 1000 if finish.HasField("queue_ms") else None
        first_s = self._first_s or 0.0
        self.pool.throughput_drop.add(*self._streamed)
        self._permit.succeeded(self._first_s)
        self._settle("ok", Sample(first_s, queue_s, self._slot.in_flight))
        self._report_outcome(router_pb2.OBSERVED_OUTCOME_OK, finish.usage.completion_tokens)

    def _end_late(self, outcome: Literal["late", "lost"]) -> None:
        """The time was over, or another call was faster. A silence counts where it was long: if the call had as much
        time as others need, every policy learns from it."""
        age_s = self.age_s()
        if self._first_s is not None:
            self._permit.succeeded(self._first_s)
            self._settle(outcome, None)
            if outcome == "late":
                self._report_outcome(router_pb2.OBSERVED_OUTCOME_BUDGET)
            return
        self.replica.gave_up(age_s)
        match self._permit.abandoned():
            case Blame.BACKEND:
                self.pool.hedge.add_unanswered(age_s)
                self._settle(outcome, Sample(age_s, None, self._slot.in_flight))
                self._report_outcome(router_pb2.OBSERVED_OUTCOME_FAILED)
            case Blame.TENANT:
                self._settle(outcome, None)
            case Blame.NONE:
                self._settle(outcome, None)
                if self.pool.hedge.add_unanswered(age_s) or self._deadline.is_over():
                    self._report_outcome(router_pb2.OBSERVED_OUTCOME_BUDGET)  # it would have taken longer

    def _end_failed(self, blame: Blame, sample: Sample | None) -> None:
        """The call failed. A failure that its tenant caused gives no sample for others."""
        own = blame is Blame.TENANT
        self._settle("failed", None if own else sample)
        if not own:
            self._report_outcome(router_pb2.OBSERVED_OUTCOME_FAILED)

    def _settle(self, outcome: Outcome, sample: Sample | None) -> None:
        self.outcome = outcome
        self.replica.in_flight -= 1
        self._slot.release(sample)
        _attempts(self.pool.model, self.kind, outcome).inc()

    def _report_outcome(self, outcome: router_pb2.ObservedOutcome, tokens: int = 0) -> None:
        seen = router_pb2.Observation(
            model=self.pool.model,
            ttft_ms=None if self._first_s is None else self._first_s * 1000,
            total_ms=self.age_s() * 1000,
            completion_tokens=tokens or self._tokens,
            outcome=outcome,
        )
        self._observe(seen)
