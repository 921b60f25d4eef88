"""Latency that the gateway adds to a stream, compared with the llm service itself and with a bare relay.

All paths are measured in one run, call by call in turns, on a simulated engine that answers at once, so that the mesh
and not a model is measured. Every policy is on. The exact hit runs on the real cache service.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any

from bench.asking import Timing, added, gateway, in_turns, milliseconds, question, timed, user
from bench.cluster import MODEL, Progress, an_address, clustered
from bench.load import Ask, ask_llm
from bench.stats import cpu_s, percentiles
from hedgerow.chat.v1 import chat_pb2
from hedgerow.llm.v1 import llm_pb2
from launcher.processes import ServiceSpec

TOKENS = 4  # messages of a measured answer
SAMPLES, WARM_UP = 2_000, 200  # calls per path
LONG_STREAMS, LONG_TOKENS = 20, 500  # for the cost of one relayed message
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
        relayed = await cluster.channel(floor)
        echo: Any = relayed.unary_unary("/hedgerow.llm.v1.LLMService/Echo")
        paths: dict[str, Ask] = {
            "direct": ask_llm([await cluster.channel(llm)], 30),
            "floor": ask_llm([relayed], 30),
            "gateway": gateway(await cluster.channel(front)),
        }

        def asked(path: str, tokens: int = TOKENS) -> Awaitable[Timing]:
            return timed(paths[path], _request(path, tokens))

        async def hit(number: int) -> float:
            return (await timed(paths["gateway"], question(_ASKED, TOKENS)))[1] * 1000

        async def echoed(number: int) -> float:
            began = time.perf_counter()
            await echo(_request("direct", TOKENS))
            return (time.perf_counter() - began) * 1000

        progress(f"{SAMPLES} calls on each of {', '.join(paths)}, in turns")
        ways: dict[str, Callable[[int], Awaitable[Timing]]] = {
            "direct": lambda number: asked("direct"),
            "floor": lambda number: asked("floor"),
            "gateway": lambda number: asked("gateway"),
        }
        told = {name: milliseconds(timings) for name, timings in (await in_turns(ways, SAMPLES, WARM_UP)).items()}
        progress(f"{SAMPLES} exact hits and unary echoes, in turns")
        hits = await in_turns({"exact_hit": hit, "echo": echoed}, SAMPLES, WARM_UP)
        progress(f"{LONG_STREAMS} streams of {LONG_TOKENS} messages through floor and gateway")
        relay_us = {"floor": 0.0, "gateway": 0.0}
        for _ in range(LONG_STREAMS):
            for name, process in (("floor", floor), ("gateway", front)):
                before = cpu_s(process.pid)
                await asked(name, LONG_TOKENS)
                relay_us[name] += (cpu_s(process.pid) - before) / (LONG_STREAMS * LONG_TOKENS) * 1e6
    by_gateway, by_floor = (added(told[name]["total_ms"], told["direct"]["total_ms"]) for name in ("gateway", "floor"))
    return {
        **told,
        "added_ms": by_gateway,
        "floor_added_ms": by_floor,
        "added_over_floor": {name: round(by_gateway[name] / by_floor[name], 2) for name in by_floor},
        **{f"{name}_ms": percentiles(spent_ms) for name, spent_ms in hits.items()},
        "relay_cpu_us_per_message": {name: round(spent_us, 1) for name, spent_us in relay_us.items()},
        "samples": SAMPLES,
    }


def _request(path: str, tokens: int) -> bytes:
    if path == "gateway":
        return question(_ASKED, tokens, bypass=True)
    sampling = chat_pb2.Sampling(max_tokens=tokens)
    return llm_pb2.GenerateRequest(messages=user(_ASKED), sampling=sampling).SerializeToString()
