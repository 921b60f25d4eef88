"""Latency of a provider with a heavy tail, directly and through the gateway, with the same arrivals and seed.

The provider is simulated, with the latencies of `bench.jagged.latency.ARTICLES`. The three arms
take turns, a block each, so that whatever else the machine does meets all alike; one block's calls have ended before
the next begins. Each arm has processes of its own, so nothing that one arm does changes another's state; the replicas
of all arms draw from the same seeds.

`before` asks the provider's two replicas in turn, as an application without a mesh would. `hedging_only` goes through a
gateway with the cache left out. `after` goes through a gateway with the real cache and every policy.

No call is left out: one that timed out counts with its time, and one that failed or was refused takes for ever.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

from bench.asking import in_turns, llm_question, question
from bench.cluster import Cluster, Progress, an_address, clustered
from bench.jagged.engine import Tally, read_tally
from bench.jagged.latency import ARTICLES, ARTICLES_TIMEOUT_S, ARTICLES_TOKENS
from bench.load import Arrival, Ask, OpenLoop, Outcome, Sample, ask_gateway, ask_llm, poisson
from bench.stats import TO_THE_TAIL, percentiles

MODEL = "jagged"
PROMPT_USD_PER_MTOK, COMPLETION_USD_PER_MTOK = 0.25, 0.50
REPLICAS = 2
# Settings that depend on the provider; all others are the gateway's defaults, the cap of 5% on extra calls among them.
# Blocks of one arm are a minute apart, and what one block taught holds for the next.
HEDGE = {"window_s": 300}
LIMIT = {"initial": 100}  # the provider has no limit to find; a start below the load would queue at first
_CONNECTIONS = 2  # of the generator to a gateway
_GRACE_S = 0.5  # a gateway ends an answer at its budget; the call's own deadline is only there should it not


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to ask the same provider."""

    name: str
    ask: Ask
    request: Callable[[str], bytes]  # from a question's text
    metrics: Sequence[str]  # where the replicas' own counts are


async def open_arms(cluster: Cluster, seed: int) -> list[Arm]:
    """All arms, serving: `before`, `hedging_only`, `after`."""
    price: dict[str, Any] = {
        "prompt_usd_per_mtok": PROMPT_USD_PER_MTOK,
        "completion_usd_per_mtok": COMPLETION_USD_PER_MTOK,
    }
    router, cache = await cluster.router(name=MODEL, **price), await cluster.cache()
    arms = []
    for name in ("before", "hedging_only", "after"):
        metrics = [an_address() for _ in range(REPLICAS)]
        replicas = [
            await cluster.llm(
                f"simulated-{name}-{number}",
                metrics_address=at,
                profile=ARTICLES.to_json(),
                tokens=ARTICLES_TOKENS,
                seed=seed * REPLICAS + number,
            )
            for number, at in enumerate(metrics)
        ]
        if name == "before":
            channels = [await cluster.channel(replica) for replica in replicas]
            arms.append(Arm(name, ask_llm(channels, ARTICLES_TIMEOUT_S), llm_question, metrics))
            continue
        front = await cluster.gateway(
            f"gateway-{name}",
            router_address=router.spec.address,
            cache_address=cache.spec.address,
            llm_addresses={MODEL: [replica.spec.address for replica in replicas]},
            hedge=HEDGE,
            limit=LIMIT,
        )
        channels = [await cluster.channel(front) for _ in range(_CONNECTIONS)]
        request = partial(question, bypass=name == "hedging_only", budget_ms=round(ARTICLES_TIMEOUT_S * 1000))
        arms.append(Arm(name, ask_gateway(channels, ARTICLES_TIMEOUT_S + _GRACE_S), request, metrics))
    return arms


@dataclass
class Record:
    """All blocks of one arm."""

    samples: list[Sample] = field(default_factory=list)
    tally: Tally = field(default_factory=Tally)  # the provider's own counts

    def add(self, samples: Sequence[Sample], tally: Tally) -> None:
        """One block more."""
        self.samples += samples
        self.tally += tally

    def summary(self) -> dict[str, object]:
        """Times in milliseconds; rates and shares of all requests."""
        count = len(self.samples)
        timeouts = sum(sample.outcome is Outcome.TIMEOUT for sample in self.samples)
        return {
            "total_ms": percentiles([sample.waited_s * 1000 for sample in self.samples], 1, TO_THE_TAIL),
            "timeout_rate": round(timeouts / count, 5),
            "calls_per_request": round(self.tally.started / count, 4),
            "extra_calls_share": round(self._extra() / count, 4),
            "cost_usd_per_1000": round(self._cost_usd() / count * 1000, 6),
        }

    @property
    def hit_rate(self) -> float:
        """Share of requests that the cache answered."""
        return round(sum(sample.hit for sample in self.samples) / len(self.samples), 4)

    def _extra(self) -> int:
        """Calls that the provider served beyond one for each request that needed a generation of its own."""
        needed = sum(not (sample.hit or sample.shared) for sample in self.samples)
        return max(0, self.tally.started - needed)

    def _cost_usd(self) -> float:
        """At the provider's prices, for all it generated: lost races and answers that came too late included."""
        prompt, completion = self.tally.prompt_tokens, self.tally.completion_tokens
        return (prompt * PROMPT_USD_PER_MTOK + completion * COMPLETION_USD_PER_MTOK) / 1e6


RATE = 80.0  # requests a second
BLOCKS, BLOCK_S = 3, 18.0  # per arm
WARM_UP_S = 15.0  # of the same load on all arms together, not counted
REPEAT_SHARE = 0.4
_RECENT = 1_000  # questions that a repeat is drawn from, each as likely
SEED = 7


async def run(progress: Progress) -> dict[str, object]:
    """Start what is needed, measure, stop it. About five minutes."""
    async with clustered(progress) as cluster:
        arms = await open_arms(cluster, SEED)
        warm_up, *blocks = _plans()
        progress("warming all arms up")
        await asyncio.gather(*(_ask(arm, warm_up) for arm in arms))
        progress(f"{BLOCKS} blocks of {BLOCK_S:g} s for each arm")
        found = await in_turns({arm.name: partial(_block, arm=arm, blocks=blocks) for arm in arms}, BLOCKS)
    records = {name: Record() for name in found}
    for name, taken in found.items():
        for samples, spent in taken:
            records[name].add(samples, spent)
    lags = [sample.lag_s * 1000 for record in records.values() for sample in record.samples]
    return {
        **{name: record.summary() for name, record in records.items()},
        "hit_rate": records["after"].hit_rate,
        "repeat_rate": REPEAT_SHARE,
        "samples": len(records["after"].samples),
        "seed": SEED,
        "offered_rps": RATE,
        "generator_lag_ms": percentiles(lags, 2),
        "settings": {"hedge": HEDGE, "limit": LIMIT},
    }


class Question(NamedTuple):
    """A question and when it is asked, in seconds after the start. Every arm gets the same ones."""

    at_s: float
    text: str


def ask_around(rate: float, seconds: float, repeat_share: float, seed: int) -> list[Question]:
    """`rate` questions a second for so long; `repeat_share` of them were asked before, word for word."""
    rng = random.Random(seed)
    recent: deque[str] = deque(maxlen=_RECENT)
    questions: list[Question] = []
    for at_s in poisson(rate, seconds, rng):
        if rng.random() < repeat_share and recent:
            text = rng.choice(recent)
        else:
            text = f"What does page {len(questions)} say, and what follows?"
            recent.append(text)
        questions.append(Question(at_s, text))
    return questions


def _plans() -> list[list[Question]]:
    """One stream of questions, cut into the warm-up and the blocks: repeats reach back over the cuts."""
    questions = ask_around(RATE, WARM_UP_S + BLOCKS * BLOCK_S, REPEAT_SHARE, SEED)
    starts = [0.0, *(WARM_UP_S + block * BLOCK_S for block in range(BLOCKS + 1))]
    return [
        [Question(at_s - start, text) for at_s, text in questions if start <= at_s < end]
        for start, end in pairwise(starts)
    ]


async def _block(number: int, arm: Arm, blocks: Sequence[Sequence[Question]]) -> tuple[list[Sample], Tally]:
    """The results of a block's calls, and the provider's counts meanwhile."""
    before = await read_tally(arm.metrics)
    samples = await _ask(arm, blocks[number])
    return samples, await read_tally(arm.metrics) - before


async def _ask(arm: Arm, questions: Sequence[Question]) -> list[Sample]:
    return await OpenLoop(arm.ask).run([Arrival(each.at_s, arm.request(each.text)) for each in questions])
