"""The models behind the gateway: the replicas of each, and what is known of them."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from hedgerow.chat.v1 import chat_pb2
from services.gateway.config import GatewaySettings
from services.gateway.errors import ModelUnavailable
from services.gateway.policies.baseline import MIN_ANSWERS, LatencyBaseline, ThroughputDrop
from services.gateway.policies.batch_admission import BatchShare
from services.gateway.policies.breaker import BreakerOpen, Throttled
from services.gateway.policies.concurrency_limit import Aimd, FixedLimit, Gradient2, Limit
from services.gateway.policies.hedge import Hedge, HedgeBudget, HedgeRule
from services.gateway.policies.limiter import Limiter
from services.gateway.policies.retry import RetryBudget
from services.gateway.policies.tenant_aware_breaker import TenantAwarePermit
from services.gateway.policies.work_shares import WorkShares
from services.gateway.settings.generation import LimitSettings
from services.gateway.upstream import balance
from services.gateway.upstream.assignment import AssignedDrill
from services.gateway.upstream.balance import Blocks
from services.gateway.upstream.llm import Llm
from services.gateway.upstream.replica import Replica, make_replica
from services.gateway.upstream.start import Notice
from services.runtime.deadline import Clock
from services.runtime.errors import Starting, Unavailable
from services.runtime.routing import Model
from services.runtime.telemetry import Metadata

LIMITER = "llm {}"  # of a model, in the metrics by which the chart scales its services
_LOOK_AGAIN_S = 1.0  # for a model that is starting or has no replicas: when one comes is not known
_LEAST_S = 0.01  # between two looks at a breaker


@dataclass(slots=True, eq=False)
class Pool:
    """One model: its replicas, the limits of calls to them, and their baseline.

    Where the control plane lists the replicas (`members.py`) they come and go. While a drill is running it is done to
    their calls, and `drop_share` of the requests are refused before a replica is chosen.
    """

    model: str
    replicas: list[Replica]
    limiter: Limiter
    baseline: LatencyBaseline
    hedge: Hedge
    throughput_drop: ThroughputDrop
    rng: random.Random
    notice: Notice  # of what starts in the fleet
    drop_share: float = 0.0
    drill: AssignedDrill = field(default_factory=AssignedDrill)
    awaited: bool = False  # the control plane has yet to list a replica
    answers: bool = False  # it has answered a call
    chats: bool = True  # otherwise it serves embeddings, rerank or moderations

    def pick(
        self, avoid: Collection[Replica] = (), prompt: Blocks = (), tenant: str = ""
    ) -> tuple[Replica, TenantAwarePermit] | None:
        """The best replica whose breaker lets a call of `tenant` through; none of `avoid`."""
        candidates = [replica for replica in self.replicas if replica not in avoid and not replica.start.starting]
        for replica in balance.order(candidates, prompt, self.rng):
            if permit := replica.breaker.enter(tenant):
                return replica, permit
        return None

    def answered(self, first_s: float) -> None:
        """A call had its first text after that time."""
        self.hedge.add_first_text(first_s)
        self.baseline.add(first_s)
        if not self.answers:
            self.answers = True
            self.notice.notify()

    @property
    def served(self) -> bool:
        """Whether one of its replicas has been seen serving."""
        return self.answers or any(replica.start.served for replica in self.replicas)

    @property
    def starting(self) -> bool:
        """Whether a replica may be called soon, and not yet: it loads, has lost its connection or is to be listed."""
        return any(each.start.starting for each in self.replicas) or (self.awaited and not self.replicas)

    @property
    def lost(self) -> bool:
        """Whether every replica that may be called soon was called before: its connection is lost."""
        starting = [each.start for each in self.replicas if each.start.starting]
        return bool(starting) and all(start.lost for start in starting)

    def admits_in_s(self, tenant: str, avoid: Collection[Replica] = ()) -> float:
        """Seconds until the breaker of a replica that is not starting, apart from those to `avoid`, may let a call
        through; infinite without one."""
        ready = [each for each in self.replicas if not each.start.starting and each not in avoid]
        return max(min((each.breaker.retry_after_s(tenant) for each in ready), default=float("inf")), _LEAST_S)

    def has_others(self, failed: Sequence[Replica]) -> bool:
        """Whether there is a replica besides `failed`."""
        return any(replica not in failed for replica in self.replicas)

    def elsewhere(self, failed: Sequence[Replica]) -> Sequence[Replica]:
        """The replicas to avoid after calls to `failed`: these, and after two failures all of their regions, unless no
        other is left: two failures in a row may have the cause in common with their region."""
        regions = {replica.locality.priority for replica in failed} if len(failed) > 1 else set()
        avoid = [replica for replica in self.replicas if replica in failed or replica.locality.priority in regions]
        return avoid if self.has_others(avoid) else failed

    @property
    def reads_prompts(self) -> bool:
        """Whether what a prompt begins with matters to `pick`."""
        return len(self.replicas) > 1

    def is_open(self, tenant: str = "", avoid: Collection[Replica] = ()) -> bool:
        """Whether no replica, apart from those to `avoid`, may be called for `tenant` now."""
        return not any(each.would_admit(tenant) for each in self.replicas if each not in avoid)

    async def count_tokens(
        self,
        messages: Iterable[chat_pb2.Message],
        tools: Iterable[chat_pb2.Tool],
        tenant: str,
        timeout_s: float,
        metadata: Metadata,
    ) -> int:
        """How long a prompt is as the model reads it, by a replica that is well. Raises `ServiceError`."""
        replica = next((each for each in self.replicas if each.would_admit(tenant)), None)
        if replica is None:
            raise self.refusal(tenant)
        return await replica.llm.count_tokens(messages, timeout_s, metadata, tools)

    def refusal(self, tenant: str = "") -> Unavailable | Throttled:
        """The error while no replica may be called: that of the first that may be again."""
        if self.lost:
            return ModelUnavailable(f"{self.model}: no connection", retry_delay_s=_LOOK_AGAIN_S)
        if self.starting:
            return Starting(f"{self.model}: the model is starting", retry_delay_s=_LOOK_AGAIN_S)
        if not self.replicas:
            return BreakerOpen(f"{self.model}: no replica is in service", retry_delay_s=_LOOK_AGAIN_S)
        breakers = (replica.breaker for replica in self.replicas)
        return min(breakers, key=lambda breaker: breaker.retry_after_s(tenant)).refusal(tenant)


@dataclass(frozen=True, slots=True)
class Fleet:
    """All models by name; the first stands in while there is no table. Both budgets are the whole gateway's."""

    pools: Mapping[str, Pool]
    hedges: HedgeBudget
    retry: RetryBudget
    stall_s: float = float("inf")  # the longest silence in the middle of an answer
    across_models: bool = False  # whether a model may be hedged with another
    kept_share: float = 0.0  # of the time that is left, that a late first text leaves to another replica or model
    slow_s: float = float("inf")  # the longest wait for a first text while there is another to ask
    expected_s: float = 0.0  # for a first text, of a model that is not known
    notice: Notice = field(default_factory=Notice)  # of what starts

    @property
    def chat(self) -> list[Pool]:
        """The models that a conversation may go to."""
        return [pool for pool in self.pools.values() if pool.chats]

    def expect(self, model: Model) -> None:
        """Take over what the router knows of a model: what other gateways have seen, or its catalogue's expectation
        where that is longer than this gateway's own."""
        pool, ttft_s = self.pools[model.name], model.ttft.p95_ms / 1000
        seen = model.ttft.samples >= MIN_ANSWERS
        pool.baseline.expected_s = ttft_s if seen else max(ttft_s, self.expected_s)

    def count_request(self, tenant: str = "") -> None:
        """A request of a tenant's came: it earns its share of a hedge and of a retry."""
        self.hedges.count_request()
        self.retry.count_request(tenant)


def make_fleet(
    settings: GatewaySettings,
    llms: Mapping[str, Sequence[tuple[str, Llm]]],
    work: WorkShares,
    clock: Clock = time.monotonic,
    rng: random.Random | None = None,
) -> Fleet:
    """The fleet that `settings` ask for. `llms`: (address, stub) of each replica, by model; the control plane may list
    others later."""
    hedge, retry = settings.hedge, settings.retry
    hedges = HedgeBudget(hedge.max_share, hedge.burst)
    rule = HedgeRule(
        mode=hedge.mode,
        percentile=hedge.percentile,
        delay_s=hedge.delay_ms / 1000,
        min_samples=hedge.min_samples,
        window_s=hedge.window_s,
    )
    rng, notice = rng or random.Random(), Notice()

    def pool(model: str, addresses: Sequence[tuple[str, Llm]]) -> Pool:
        baseline = LatencyBaseline(settings.expected.first_text_ms / 1000, clock)
        return Pool(
            model=model,
            replicas=[
                make_replica(settings, model, number, address, llm, baseline, notice, clock)
                for number, (address, llm) in enumerate(addresses, 1)
            ],
            limiter=_make_limiter(settings, LIMITER.format(model), work, clock),
            baseline=baseline,
            hedge=Hedge(rule, hedges, baseline, clock),
            throughput_drop=ThroughputDrop(model, clock=clock),
            rng=rng,
            notice=notice,
            chats=model not in settings.serves,
        )

    return Fleet(
        pools={model: pool(model, addresses) for model, addresses in llms.items()},
        hedges=hedges,
        retry=RetryBudget(retry.max_share, retry.burst, retry.base_ms / 1000, rng),
        stall_s=settings.stall_ms / 1000 or float("inf"),
        across_models=hedge.across_models,
        kept_share=settings.kept_share,
        slow_s=settings.breakers.slow_s,
        expected_s=settings.expected.first_text_ms / 1000,
        notice=notice,
    )


def _make_limiter(settings: GatewaySettings, name: str, work: WorkShares, clock: Clock) -> Limiter:
    limit, shed = settings.limit, settings.shed
    return Limiter(
        name,
        _LIMITS[limit.algorithm](limit, clock),
        queue=limit.queue,
        queue_s=limit.queue_ms / 1000,
        shed_load=shed.load,
        shed_score=shed.score,
        retry_after_s=shed.retry_after_ms / 1000,
        clock=clock,
        pressure=work.pressure,
        pressure_refusal=work.refusal,
        batches=BatchShare(limit.batch_share, limit.batch_share_beside),
    )


_LIMITS: Mapping[str, Callable[[LimitSettings, Clock], Limit]] = {
    "fixed": lambda limit, _: FixedLimit(limit.initial),
    "aimd": lambda limit, clock: Aimd(limit.initial, limit.min, limit.max, clock),
    "gradient2": lambda limit, clock: Gradient2(limit.initial, limit.min, limit.max, clock),
}
