"""Latency that the gateway adds to a stream, compared with the llm service itself and with a bare relay.

All paths are measured in one run, call by call in turns, on a simulated engine that answers at once, so that the mesh
and not a model is measured. Every policy is on. The exact hit runs on the real cache service.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from bench.asking import Timing, added, gateway, in_turns, llm_question, milliseconds, question, timed
from bench.cluster import MODEL, Progress, an_address, clustered
from bench.load import Ask, ask_llm
from bench.stats import percentiles
from launcher.processes import ServiceSpec

TOKENS = 4  # messages of a measured answer
SAMPLES, WARM_UP = 2_000, 200  # calls per path
_ASKED = "What is the capital of France?"
# Policies that are off by default, with limits that this load does not reach.
_EVERY_POLICY: dict[str, Any] = {
    "tenants": {"local": {"requests_per_s": 1e6, "requests_burst": 1e6, "tokens_per_minute": 1e9, "concurrency": 999}},
    "targets": {name: {"p50_ms": 1_000, "p95_ms": 1_000, "p99_ms": 1_000} for name in ("llm", "ttft", "total")},
    "first_token_budget_ms": 10_000,
    "fallbacks": ["stale", "smaller", "template"],
}


async def run(progress: Progress) -> dict[str, object]:
    """Start what is needed, measure, stop it. About a minute."""
    async with clustered(progress) as cluster:
        llm, router, cache = await cluster.llm(), await cluster.router(), await cluster.cache()
        relay = {"HEDGEROW_BARE_RELAY_ADDRESS": an_address(), "HEDGEROW_BARE_RELAY_TARGET": llm.spec.address}
        floor = await cluster.run(ServiceSpec("floor", "bench.bare_relay", relay["HEDGEROW_BARE_RELAY_ADDRESS"], relay))
        front = await cluster.gateway(
            cache_address=cache.spec.address,
            router_address=router.spec.address,
            llm_addresses={MODEL: [llm.spec.address] * 2},  # two replicas, so that the hedge's timer runs
            **_EVERY_POLICY,
        )
        paths: dict[str, Ask] = {
            "direct": ask_llm([await cluster.channel(llm)], 30),
            "floor": ask_llm([await cluster.channel(floor)], 30),
            "gateway": gateway(await cluster.channel(front)),
        }

        async def asked(number: int, path: str) -> Timing:
            request = question(_ASKED, TOKENS, bypass=True) if path == "gateway" else llm_question(_ASKED, TOKENS)
            return await timed(paths[path], request)

        async def hit(number: int) -> float:
            return (await timed(paths["gateway"], question(_ASKED, TOKENS)))[1] * 1000

        progress(f"{SAMPLES} calls on each of {', '.join(paths)}, in turns")
        ways = {name: partial(asked, path=name) for name in paths}
        summaries = {name: milliseconds(timings) for name, timings in (await in_turns(ways, SAMPLES, WARM_UP)).items()}
        progress(f"{SAMPLES} exact hits")
        hits = await in_turns({"exact_hit": hit}, SAMPLES, WARM_UP)
    direct_ms = summaries["direct"]["total_ms"]
    return {
        **summaries,
        "added_ms": {name: added(summaries[name]["total_ms"], direct_ms) for name in ("floor", "gateway")},
        "exact_hit_ms": percentiles(hits["exact_hit"]),
        "samples": SAMPLES,
    }
