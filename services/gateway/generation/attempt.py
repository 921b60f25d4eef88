"""One call to one replica. What it holds, a place at the gate and the breaker's permit, is given back exactly once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cache
from typing import Literal

from prometheus_client import Counter

from hedgerow.llm.v1 import llm_pb2
from hedgerow.router.v1 import router_pb2
from services.gateway.policies.limit import Sample
from services.gateway.policies.limiter import Slot
from services.gateway.policies.shared_breaker import Blame, SharedPermit
from services.gateway.upstream import balance
from services.gateway.upstream.drill import Fault
from services.gateway.upstream.fleet import Pool, Replica
from services.gateway.upstream.prefix import Blocks
from services.gateway.upstream.stubs import Call
from services.runtime.deadline import Deadline
from services.runtime.errors import Exhausted, InvalidInput, ServiceError, ShareUsed, TooLate
from services.runtime.telemetry import Metadata

_ATTEMPTS = Counter("hedgerow_attempts", "Calls to models.", ["model", "kind", "outcome"])
_attempts = cache(_ATTEMPTS.labels)
_RETRY_AFTER_S = 1.0  # for a throttled backend that does not say
Kind = Literal["first", "hedge", "failover"]


class Attempt:
    """An entrant of a race, and a source of text when it has won."""

    call: Call

    def __init__(
        self,
        pool: Pool,
        replica: Replica,
        permit: SharedPermit,
        slot: Slot,
        deadline: Deadline,
        observe: Callable[[router_pb2.Observation], None],
    ):
        self.pool, self.replica = pool, replica
        self.kind: Kind = "first"
        self._permit, self._slot, self._observe, self._clock = permit, slot, observe, deadline.clock
        self._deadline, self._started = deadline, deadline.clock()
        self._last = self._started
        self._first_s: float | None = None
        self.settled = False  # what it held is given back, and its end is told
        self._won = self.followed = False  # `followed`: the race has heard that it won

    def start(
        self,
        request: llm_pb2.GenerateRequest,
        prompt: Blocks,
        metadata: Metadata,
        notify: Callable[[], None],
        fault: Fault | None = None,
    ) -> None:
        """Make the call, which ends at the deadline. `notify` hears of each message and of the end. `fault` is done to
        it by a drill."""

        def arrived() -> None:
            self._last = self._clock()
            if self._first_s is None and self.call.messages:
                self._first_s = self._last - self._started
            notify()

        balance.taken(self.replica, prompt)
        timeout_s = self._deadline.remaining()
        self.call = self.replica.llm.generate(request, timeout_s, metadata, arrived)
        if fault:
            self.call.suffer(fault)

    @property
    def begun(self) -> bool:
        """Its first text came, before any other call's."""
        return self._won

    @property
    def problem(self) -> ServiceError | None:
        """What it failed with before its first text."""
        return None if self.call.messages else self.call.problem

    def age_s(self) -> float:
        return self._clock() - self._started

    def silent_s(self) -> float:
        """Since the last message."""
        return self._clock() - self._last

    def win(self, items: list[llm_pb2.GenerateResponse]) -> None:
        """What has come and what will come is appended to `items`."""
        self._won = True
        asyncio.get_running_loop().call_soon(self.pool.answered, self._first_s or 0.0)
        if self._permit.probe:  # no need to wait for the end of a long answer
            self._permit.succeeded(self._first_s)
        items += self.call.messages
        self.call.messages = items

    def finished(self) -> None:
        """The answer is whole."""
        if self.settled or self.call.finish is None:
            return
        finish = self.call.finish
        queue_s = finish.queue_ms / 1000 if finish.HasField("queue_ms") else None
        first_s = self._first_s or 0.0
        self.pool.sag.saw(finish.usage.completion_tokens, self.age_s() - first_s)
        self._permit.succeeded(self._first_s)
        self._settle("ok", Sample(first_s, queue_s, self._slot.in_flight))
        self._tell(router_pb2.OBSERVED_OUTCOME_OK, finish.usage.completion_tokens)

    def failed(self, problem: ServiceError) -> None:
        """It ended without its last word."""
        if self.settled:
            return
        match problem:
            case TooLate():
                self._gave_up("late")
            case InvalidInput() | ShareUsed():  # what is wrong with a request, or too much of one tenant's
                self._permit.withdrawn()
                self._settle("refused", None)
            case Exhausted():
                blame = self._permit.throttled(problem.retry_delay_s or _RETRY_AFTER_S)
                self._fell(blame, Sample(self.age_s(), None, self._slot.in_flight, failed=True))
            case _:
                self._fell(self._permit.failed(), None)
        self.call.close()

    def lose(self) -> None:
        """Its first text was too late, or another call's was faster."""
        if self.call.problem:
            self.failed(self.call.problem)
        if not self.settled:
            self._gave_up("late" if self._deadline.is_over() else "lost")
        self.call.close()

    def _gave_up(self, outcome: Literal["late", "lost"]) -> None:
        """The time was over, or another was faster. Silence tells where it was long: of a call that had as much time as
        others need, every policy learns."""
        age_s = self.age_s()
        if self._first_s is not None:
            self._permit.succeeded(self._first_s)
            self._settle(outcome, None)
            if outcome == "late":
                self._tell(router_pb2.OBSERVED_OUTCOME_BUDGET)
            return
        match self._permit.abandoned():
            case Blame.BACKEND:
                self.pool.hedge.gave_up(age_s)
                self._settle(outcome, Sample(age_s, None, self._slot.in_flight))
                self._tell(router_pb2.OBSERVED_OUTCOME_FAILED)
            case Blame.TENANT:
                self._settle(outcome, None)
            case Blame.NOBODY:
                self._settle(outcome, None)
                if self.pool.hedge.gave_up(age_s) or outcome == "late":
                    self._tell(router_pb2.OBSERVED_OUTCOME_BUDGET)  # it would have taken longer

    def _fell(self, blame: Blame, sample: Sample | None) -> None:
        """It failed. What is its tenant's own doing moves nothing for others."""
        own = blame is Blame.TENANT
        self._settle("failed", None if own else sample)
        if not own:
            self._tell(router_pb2.OBSERVED_OUTCOME_FAILED)

    def leave(self) -> None:
        """Nobody reads it any more; a finished one is not disturbed. Who leaves before the first text says nothing: a
        flood of cancelled calls would else look like a silent backend, on a machine that it keeps busy."""
        self.finished()
        if not (self.settled or self.begun or self.call.problem or self._deadline.is_over()):
            self._permit.withdrawn()
            self._settle("lost", None)
        self.lose()

    def _settle(self, outcome: str, sample: Sample | None) -> None:
        self.settled = True
        self.replica.in_flight -= 1
        self._slot.release(sample)
        _attempts(self.pool.model, self.kind, outcome).inc()

    def _tell(self, outcome: router_pb2.ObservedOutcome, tokens: int = 0) -> None:
        seen = router_pb2.Observation(
            model=self.pool.model,
            ttft_ms=None if self._first_s is None else self._first_s * 1000,
            total_ms=self.age_s() * 1000,
            completion_tokens=tokens or sum(message.tokens for message in self.call.messages),
            outcome=outcome,
        )
        self._observe(seen)
