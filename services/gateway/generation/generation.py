"""The text of one answer, through every policy between the gateway and a model. Outermost first:

    fallback       the next model, where one is broken, throttled or late with its first text
    limit          a place at the model's gate: wait for it a little, or be shed
    hedge | retry  a second call where the first text is late, or another where the first call failed; never both
    breaker        the replica with the fewest calls in flight among those that are well, for this tenant
    deadline       the call ends when the answer's time is over
    stub           the call
    failover       what broke in mid-stream goes on elsewhere, from the text that is there

The limit stands outside of the hedge, because a request that waits for its place has not begun: its first text is late
for want of room, and a second call would only make that worse. A hedge takes a place of its own, and only one to spare.

Who is silent must not have all of the time: while another replica or model is there that is well, a part of the time is
kept for it. Nobody is given up before it had what it usually needs, nor for one that would need more than is left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from hedgerow.llm.v1 import llm_pb2
from hedgerow.router.v1 import router_pb2
from services.gateway.answer.decisions import Decisions
from services.gateway.answer.removals import Known
from services.gateway.errors import ModelUnavailable
from services.gateway.generation.attempt import Attempt
from services.gateway.policies.breaker import BreakerOpen
from services.gateway.policies.hedge import race
from services.gateway.policies.limiter import Slot
from services.gateway.policies.single_flight import Flight
from services.gateway.policies.ticket import Shed, Ticket
from services.gateway.upstream import prefix
from services.gateway.upstream.fleet import Fleet, Pool, Replica
from services.runtime.deadline import Deadline, set_within
from services.runtime.errors import Exhausted, ServiceError, TooLate, Unavailable
from services.runtime.telemetry import Metadata

_NOT_SENT = BreakerOpen  # no model has seen the request
_MODELS = 2  # tried before the first text
_RETRIES = 2  # of one model: a replica, and one that may have died with it
_STILL_WORTH_IT = 0.8  # of the time that a newcomer has: a flight with less would cut its answer short
_WAITED_S = 0.001  # for a place: less is not worth a word
Observe = Callable[[router_pb2.Observation], None]


@dataclass(frozen=True, slots=True)
class Order:
    """What to generate, and within what. `models` come best first; the first of them has until `first_text`."""

    request: llm_pb2.GenerateRequest
    models: Sequence[str]
    deadline: Deadline
    ticket: Ticket
    first_text: Deadline
    metadata: Metadata = ()
    once: bool = False  # reach a model once at most
    others_when_late: bool = True  # another model may stand in for one whose first text is late
    known: Known = field(default_factory=Known)  # of the cache, when it was asked before


@dataclass(slots=True)
class Report:
    """What became of an order. Complete when the last item of the flight, or its error, can be read."""

    decisions: Decisions
    model: str = ""
    problems: list[str] = field(default_factory=list)  # of models that gave way to another
    resumed: bool = False
    carried_tokens: int = 0  # written by a call that then broke
    calls: list[Attempt] = field(default_factory=list)  # that were sent, for whatever reason
    paid: int = 0  # tokens, by those who have read it
    stored: bool = False  # whether one of those who read it has had it stored

    @property
    def prompts(self) -> int:
        """How often a model has read the prompt. One that broke before its first text, or refused, has not."""
        return sum(call.problem is None or isinstance(call.problem, TooLate) for call in self.calls)


class Generation:
    """Serves one order to everyone who reads `flight`. `run` is the flight's execution."""

    def __init__(self, order: Order, fleet: Fleet, observe: Observe):
        self.order, self.flight = order, Flight[llm_pb2.GenerateResponse]()
        self._fleet, self._observe, self._clock = fleet, observe, order.deadline.clock
        self.report = Report(Decisions(self._clock))
        self._news = asyncio.Event()
        self._winner: Attempt | None = None
        self._first_text = order.first_text
        self._refused_hedge = False
        self._prompt: prefix.Blocks | None = None

    @property
    def over(self) -> bool:
        """Whether nothing more will come of it."""
        return self.flight.over

    def suits(self, order: Order) -> bool:
        """Whether a request with an order like this one's may read along: neither cut short nor held up by it."""
        lasts = self.order.deadline.remaining() >= _STILL_WORTH_IT * order.deadline.remaining()
        return lasts and (bool(self.flight.items) or self.order.ticket.score >= order.ticket.score)

    async def run(self) -> None:
        problems: list[ServiceError] = []
        for model in self.order.models[:_MODELS]:
            if problems:
                self._give_way(problems[-1], model)
            pool = self._fleet.pools[model]
            try:
                attempt = await self._begin(pool)
            except Shed:
                raise
            except (Unavailable, Exhausted, TooLate) as problem:
                problems.append(problem)
                continue
            await self._follow(attempt)
            return
        raise _summary(problems)

    def _give_way(self, problem: ServiceError, other: str) -> None:
        """Let the `other` model have a try, if there is anything left to try in and it is allowed."""
        if isinstance(problem, TooLate) and (self.order.deadline.is_over() or not self.order.others_when_late):
            raise problem
        if self.order.once and not isinstance(problem, _NOT_SENT):
            raise problem
        self._first_text = Deadline.never(self._first_text.clock)
        self.report.problems.append(problem.outline)
        self.report.decisions.add("fallback", "started", other, problem.outline)

    async def _begin(self, pool: Pool) -> Attempt:
        """The call that has brought the first text."""
        hedged = False

        def second() -> Attempt | None:
            nonlocal hedged
            attempt = self._hedge(first)
            hedged = attempt is not None
            return attempt

        self._fleet.hedges.call()
        first = await self._enter(pool)
        after_s = pool.hedge.after_s() if not self.order.once and self._second_pool(first) else None
        try:
            return await self._race(first, after_s, second, ())
        except ServiceError as problem:
            if hedged or self.order.once:
                raise
            return await self._retry(pool, [first.replica], problem)

    async def _retry(self, pool: Pool, failed: list[Replica], problem: ServiceError) -> Attempt:
        """Other calls, one after the other, until one brings a first text. Raises what the last one ended with."""
        while len(failed) == 1 or (len(failed) <= _RETRIES and pool.has_others(failed)):
            pause_s = self._pause_s(pool, failed, problem)
            if pause_s is None:
                break
            self.report.decisions.add("retry", "started", pool.model, problem.outline)
            await asyncio.sleep(pause_s)
            attempt = await self._enter(pool, pool.elsewhere(failed))
            try:
                return await self._race(attempt, None, lambda: None, failed)
            except ServiceError as another:
                problem = another
                failed.append(attempt.replica)
        raise problem

    def _pause_s(self, pool: Pool, failed: Sequence[Replica], problem: ServiceError) -> float | None:
        """How long to wait before another call, None: there is none. One that was silent is not asked again itself."""
        if not isinstance(problem, TooLate):
            return self._fleet.retry.pause_s(problem, self.order.deadline.remaining())
        others = not self.order.deadline.is_over() and not pool.is_open(self.order.ticket.tenant, failed)
        return 0.0 if others and self._fleet.retry.spend() else None

    def _patience_s(self, pool: Pool, asked: Sequence[Replica]) -> float:
        """How long to wait for a first text from those `asked`: a part of the time is kept for who else is well."""
        within_s, left_s = self._first_text.remaining(), self.order.deadline.remaining()
        other = self._alternative(pool, asked)
        if other is None:
            return within_s
        patience_s = max(min(left_s * (1 - self._fleet.kept_share), self._fleet.slow_s), pool.usual.needs_s())
        in_vain = left_s - patience_s < other.usual.needs_s()
        return within_s if in_vain else min(within_s, patience_s)

    def _alternative(self, pool: Pool, asked: Sequence[Replica]) -> Pool | None:
        """Who would be called if those `asked` brought nothing: another replica, or the next model."""
        tenant, models = self.order.ticket.tenant, self.order.models[:_MODELS]
        if self.order.once or not self._fleet.kept_share:
            return None
        if not pool.is_open(tenant, asked):
            return pool
        later = models[models.index(pool.model) + 1 :] if self.order.others_when_late else ()
        pools = [self._fleet.pools[model] for model in later if model in self._fleet.pools]
        return next((other for other in pools if not other.is_open(tenant)), None)

    async def _enter(self, pool: Pool, avoid: Sequence[Replica] = ()) -> Attempt:
        """A call, as soon as there is a place and a replica for it. `avoid` are called only where there is no other."""
        tenant = self.order.ticket.tenant
        if pool.is_open(tenant):
            refusal = pool.refusal(tenant)
            self.report.decisions.add("breaker", "refused", pool.model, refusal.outline)
            raise refusal
        if pool.drop_share and pool.rng.random() < pool.drop_share:
            self.report.decisions.add("drill", "dropped", pool.model, f"a drill drops {pool.drop_share:.0%} of calls")
            raise Unavailable(f"{pool.model}: dropped by a drill")
        asked = self._clock()
        slot = await pool.gate.enter(self.order.ticket)
        waited = self._clock() - asked
        if waited > _WAITED_S:
            self.report.decisions.add("limit", "waited", pool.model, f"{waited * 1000:.0f} ms for a place")
            if self.order.ticket.placed:  # of a batch: nobody waits for its first text before it is asked for
                self._first_text = Deadline(self._first_text.at + waited, self._clock)
        attempt = self._start(pool, slot, avoid) or self._start(pool, slot)
        if attempt is None:
            slot.release()
            raise pool.refusal(tenant)
        return attempt

    def _start(
        self, pool: Pool, slot: Slot, avoid: Sequence[Replica] = (), request: llm_pb2.GenerateRequest | None = None
    ) -> Attempt | None:
        """Call a replica, none of `avoid`; None where none is to be had: `slot` is then still the caller's."""
        prompt = self._prompt_of(pool)
        picked = pool.pick(avoid, prompt, self.order.ticket.tenant)
        if picked is None:
            return None
        replica, permit = picked
        if known := replica.prefixes.matched(prompt):
            self.report.decisions.add("prefix", "matched", replica, f"{known} of {len(prompt)} blocks")
        attempt = Attempt(pool, replica, permit, slot, self.order.deadline, self._observe)
        if fault := pool.drill.fault(pool.rng):
            self.report.decisions.add("drill", "aborted" if fault.code else "delayed", replica, fault.words())
        attempt.start(request or self.order.request, prompt, self.order.metadata, lambda: self._notice(attempt), fault)
        self.report.calls.append(attempt)
        return attempt

    def _prompt_of(self, pool: Pool) -> prefix.Blocks:
        """What the prompt begins with, where that matters."""
        if not pool.reads_prompts:
            return ()
        if self._prompt is None:
            self._prompt = prefix.blocks(
                (message.content for message in self.order.request.messages), self.order.request.cache_salt
            )
        return self._prompt

    async def _race(
        self, first: Attempt, after_s: float | None, second: Callable[[], Attempt | None], failed: Sequence[Replica]
    ) -> Attempt:
        """The call whose first text comes first, after those that have `failed`."""

        def patience_s(running: Sequence[Attempt]) -> float:
            return self._patience_s(running[-1].pool, [*failed, *(each.replica for each in running)])

        try:
            return await race(first, self._news, after_s=after_s, second=second, patience_s=patience_s)
        finally:
            self._fleet.hedges.leave(self._news)

    def _hedge(self, first: Attempt) -> Attempt | None:
        """The second call, where budget, load and breakers allow it."""
        pool = self._second_pool(first)
        if pool is None:
            return None
        waited = f"no first text after {first.age_s() * 1000:.0f} ms ({first.pool.hedge.basis})"
        slot = pool.gate.spare()
        if slot is None:
            self._fleet.hedges.leave(self._news)  # others may have a place
            self._no_hedge(pool, f"{waited}; the gate has no place to spare")
            return None
        if not self._fleet.hedges.spend(self._news):
            slot.release()
            self._no_hedge(pool, f"{waited}; the budget of second calls is used up")
            return None
        attempt = self._start(pool, slot, (first.replica,))
        if attempt is None:
            slot.release()
            self._fleet.hedges.refund()
            self._no_hedge(pool, f"{waited}; no other replica is well")
            return None
        self.report.decisions.add("hedge", "started", attempt.replica, waited)
        attempt.kind = "hedge"
        return attempt

    def _second_pool(self, first: Attempt) -> Pool | None:
        """Another replica of the model, else, where that is wanted, the next best model; None: nobody else is there."""
        if len(first.pool.replicas) > 1:
            return first.pool
        others = [model for model in self.order.models if model != first.pool.model]
        return self._fleet.pools[others[0]] if others and self._fleet.across_models else None

    def _no_hedge(self, pool: Pool, why: str) -> None:
        """It may be asked for again: the first refusal is told."""
        if not self._refused_hedge:
            self._refused_hedge = True
            self.report.decisions.add("hedge", "skipped", pool.model, why)

    def _notice(self, attempt: Attempt) -> None:
        """Something came, or `attempt` ended. The first text wins at once: the race hears of it, but nobody who reads
        waits for the race. What is booked at the end is booked after they have it."""
        if self._winner is None and attempt.call.messages and not attempt.settled:
            self._win(attempt)
        if attempt is not self._winner:
            self._news.set()
            return
        self.flight.wake()
        if attempt.call.finish:
            asyncio.get_running_loop().call_soon(attempt.finished)
        if attempt.call.over or not attempt.followed:
            self._news.set()

    def _win(self, attempt: Attempt) -> None:
        """From now on what comes from this call goes to the readers."""
        self._winner, self.report.model = attempt, attempt.pool.model
        if attempt.kind == "hedge":
            self.report.decisions.add("hedge", "won", attempt.replica, f"after {attempt.age_s() * 1000:.0f} ms")
        if attempt.pool.sag.sagging:
            rate = f"tokens come at {attempt.pool.sag.ratio():.2f} of the usual rate"
            self.report.decisions.add("limit", "sagging", attempt.pool.model, rate)
        attempt.win(self.flight.items)

    async def _follow(self, attempt: Attempt) -> None:
        """Stay until the text is whole."""
        attempt.followed = True
        try:
            while problem := await self._broke(attempt):
                attempt.failed(problem)
                if isinstance(problem, TooLate):
                    raise problem
                attempt = await self._continue(attempt, problem)
        finally:
            attempt.leave()

    async def _broke(self, attempt: Attempt) -> ServiceError | None:
        """Wait for the end of a call; None for a good one."""
        while not attempt.call.over:
            silence_left_s = self._fleet.stall_s - attempt.silent_s()
            if silence_left_s <= 0:
                return Unavailable(f"{attempt.pool.model}: silent for {self._fleet.stall_s:.1f} s in mid-stream")
            self._news.clear()
            await set_within(self._news, silence_left_s)
        return None if attempt.call.finish else attempt.call.problem

    async def _continue(self, broken: Attempt, problem: ServiceError) -> Attempt:
        """Another replica, which goes on from the text that is there. Raises `problem` where that cannot be."""
        failed, cause = [broken.replica], problem
        while len(failed) <= _RETRIES:
            attempt = self._resume(broken.pool, failed) if cause.retryable and not self.order.once else None
            if attempt is None:
                break
            written = sum(message.tokens for message in self.flight.items)
            self.report.decisions.add("failover", "started", attempt.replica, cause.outline)
            self.report.resumed, self.report.carried_tokens = True, written
            self._winner = None
            try:
                return await race(attempt, self._news, after_s=None, second=lambda: None)
            except ServiceError as another:
                self.report.decisions.add("failover", "failed", attempt.replica, another.outline)
                self.report.resumed, cause = False, another
                failed.append(attempt.replica)
        raise problem

    def _resume(self, pool: Pool, failed: Sequence[Replica]) -> Attempt | None:
        """A call for the rest of the text, where load, budget and breakers allow it."""
        rest = _rest(self.order.request, self.flight.items)
        slot = pool.gate.spare() if rest else None
        if slot is None:
            return None
        attempt = self._start(pool, slot, pool.elsewhere(failed), rest) if self._fleet.retry.spend() else None
        if attempt is None:
            slot.release()
            return None
        attempt.kind = "failover"
        return attempt


def _rest(
    request: llm_pb2.GenerateRequest, written: Sequence[llm_pb2.GenerateResponse]
) -> llm_pb2.GenerateRequest | None:
    """The request for what is still to be written; None where an engine could not know how to go on: a constraint holds
    for a whole answer and not for the end of one."""
    if request.HasField("response_format"):
        return None
    rest = llm_pb2.GenerateRequest()
    rest.CopyFrom(request)
    rest.prefix = request.prefix + "".join(message.text for message in written)
    if request.sampling.HasField("max_tokens"):
        rest.sampling.max_tokens = request.sampling.max_tokens - sum(message.tokens for message in written)
        if rest.sampling.max_tokens < 1:
            return None
    return rest


def _summary(problems: Sequence[ServiceError]) -> ServiceError:
    """One error for all: late where the last was, busy where every model was busy, else broken."""
    if isinstance(problems[-1], TooLate):
        return problems[-1]
    text = "; ".join(problem.message for problem in problems)
    delays = [problem.retry_delay_s for problem in problems if problem.retry_delay_s is not None]
    busy = all(isinstance(problem, Exhausted) for problem in problems)
    return (Exhausted if busy else ModelUnavailable)(text, retry_delay_s=min(delays, default=1.0))
