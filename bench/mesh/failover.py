"""A region dies under load, and another takes over.

The gateway is in the west. Cache, router and llm are there twice, and once in the east. Streams of 40 tokens come at a
steady rate; then everything in the west but the gateway is killed at once, in mid-stream.
"""

from __future__ import annotations

import asyncio
import random
import signal
from collections import Counter
from collections.abc import Iterable
from typing import Any

from bench.asking import gateway, question
from bench.cluster import MODEL, WEST, Cluster
from bench.load import Arrival, OpenLoop, Sample, poisson
from bench.stats import percentiles
from launcher.processes import ServiceProcess

RATE, SECONDS, KILL_AT_S = 20.0, 20.0, 8.0
TOKENS, EACH_MS = 40, 10.0
_REGIONS = {**WEST, "east": {"latitude": 35.7, "longitude": 139.7}}


async def measure(cluster: Cluster) -> dict[str, Any]:
    """`failed_calls` and `slowest_ms` over the whole load; times in milliseconds, infinite where a call failed."""
    regions = {"west": await _region(cluster, "west", llms=2), "east": await _region(cluster, "east", llms=1)}
    services = {
        name: {
            "endpoints": [
                {"address": process.spec.address, "region": region}
                for region, processes in regions.items()
                for process in processes
                if process.spec.name.startswith(name)
            ]
        }
        for name in ("cache", "router", "llm")
    }
    await cluster.control(services, regions=_REGIONS)
    front = await cluster.gateway(
        cache_address="xds:///cache", router_address="xds:///router", llm_addresses={MODEL: "xds:///llm"}
    )
    load = OpenLoop(gateway(await cluster.channel(front)))
    cluster.progress(f"{RATE:g} streams a second for {SECONDS:g} s; the west dies after {KILL_AT_S:g} s")
    killing = asyncio.create_task(_kill(regions["west"]))
    samples = await load.run(_arrivals())
    await killing
    return _summary(samples)


async def _region(cluster: Cluster, region: str, llms: int) -> list[ServiceProcess]:
    cache, router = await cluster.cache(f"cache-{region}"), await cluster.router(f"router-{region}")
    story = {"each_ms": EACH_MS, "tokens": TOKENS, "continues": True}
    return [cache, router, *[await cluster.llm(f"llm-{region}-{number}", **story) for number in range(llms)]]


def _arrivals() -> list[Arrival]:
    """Questions that were not asked before."""
    times = enumerate(poisson(RATE, SECONDS, random.Random(1)))
    return [Arrival(at, question(f"Tell me story number {number}.", TOKENS, model=MODEL)) for number, at in times]


async def _kill(processes: Iterable[ServiceProcess]) -> None:
    await asyncio.sleep(KILL_AT_S)
    for process in processes:
        process.signal(signal.SIGKILL)


def _summary(samples: list[Sample]) -> dict[str, Any]:
    """Before the kill, in the five seconds after it, and later. A call that failed takes for ever."""
    spans = {"before": (0, KILL_AT_S - 1), "during": (KILL_AT_S - 1, KILL_AT_S + 4), "after": (KILL_AT_S + 4, SECONDS)}
    total_ms = {
        name: percentiles([each.waited_s * 1000 for each in samples if start <= each.at_s < end], digits=1)
        for name, (start, end) in spans.items()
    }
    return {
        "failed_calls": sum(not sample.good for sample in samples),
        "slowest_ms": round(max(sample.waited_s for sample in samples) * 1000, 1),
        "calls": len(samples),
        "outcomes": dict(Counter(sample.outcome.value for sample in samples)),
        "total_ms": total_ms,
    }
