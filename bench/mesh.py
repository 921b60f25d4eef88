"""Latency that discovery by xDS adds, and that Envoy in front adds.

Each call is a question that the cache is asked for, and does not have, and four messages of a simulated llm: one hop to
each. The same backends are behind all paths, and every call goes over each of them, in all orders. Each path has a
gateway of its own: one that is called twice as often would be the warmer one, by half a millisecond.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from bench.asking import gateway, in_turns, question, timed
from bench.cluster import MODEL, Cluster, Progress, an_address, clustered
from bench.load import Ask
from bench.stats import percentiles

SAMPLES, WARM_UP = 2_000, 200  # calls per path
TOKENS = 4


async def run(progress: Progress) -> dict[str, object]:
    """Milliseconds of a call over each path. About a minute."""
    async with clustered(progress) as cluster:
        targets = await _start(cluster)
        progress(f"{SAMPLES} calls on each of {', '.join(targets)}, in turns")
        ways = {
            name: partial(_ask, ask=gateway(await cluster.channel(target)))  # a channel of its own for each
            for name, target in targets.items()
        }
        return {name: percentiles(spent) for name, spent in (await in_turns(ways, SAMPLES, WARM_UP)).items()}


async def _start(cluster: Cluster) -> dict[str, str]:
    """Where each path begins."""
    llm, router = await cluster.llm(), await cluster.router()
    cache = await cluster.cache(embedder="none")  # exact lookups alone: an answer that is stored slows no path
    places = {"cache": cache.spec.address, "router": router.spec.address, "llm": llm.spec.address}
    static = await _gateway(cluster, "gateway-static", "", places)
    behind_envoy, edge = an_address(), an_address()
    services: dict[str, Any] = {
        name: {"endpoints": [{"address": address, "region": "west"}]}
        for name, address in {**places, "gateway": behind_envoy}.items()
    }
    services["cache"]["balance"] = "ring_hash"
    await cluster.control(services, edge={"address": edge})
    by_name = {name: f"xds:///{name}" for name in places}
    by_xds = await _gateway(cluster, "gateway-xds", "", by_name)
    await _gateway(cluster, "gateway-envoy", behind_envoy, by_name)
    await cluster.envoy(edge)
    return {"static": static, "xds": by_xds, "envoy": edge}


async def _gateway(cluster: Cluster, name: str, address: str, places: dict[str, str]) -> str:
    process = await cluster.gateway(
        name,
        address,
        cache_address=places["cache"],
        router_address=places["router"],
        llm_addresses={MODEL: places["llm"]},
        l1_cache_bytes=0,
    )
    return process.spec.address


def text(number: int) -> str:
    """A question that the cache is asked for."""
    return f"What is the capital of the country that comes as number {number} in the list, and how large is it?"


async def _ask(number: int, ask: Ask) -> float:
    return (await timed(ask, question(f"{text(number)} {time.time_ns()}", TOKENS)))[1] * 1000
