"""The three arms of the comparison, each with processes of its own: nothing one arm does changes another's state.

`before` asks the provider's two replicas in turn, as an application without a mesh would. `hedging_only` goes through a
gateway with the cache left out. `after` goes through a gateway with the real cache and every policy. The replicas of
all arms draw from the same seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from bench.cluster import Cluster, an_address
from bench.jagged.latency import ARTICLES, ARTICLES_TIMEOUT_S, ARTICLES_TOKENS
from bench.jagged.questions import to_gateway, to_llm
from bench.load import Ask, ask_gateway, ask_llm

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
            arms.append(Arm(name, ask_llm(channels, ARTICLES_TIMEOUT_S), to_llm, metrics))
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
        request = to_gateway(round(ARTICLES_TIMEOUT_S * 1000), bypass=name == "hedging_only")
        arms.append(Arm(name, ask_gateway(channels, ARTICLES_TIMEOUT_S + _GRACE_S), request, metrics))
    return arms
