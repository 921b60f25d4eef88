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
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from bench.load import Arrival, OpenLoop, Sample, ask_gateway, poisson
from bench.mesh.cluster import MODEL, Cluster, Progress
from bench.stats import percentiles
from hedgerow.channel import open_channel
from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2
from launcher.processes import ServiceProcess

RATE, SECONDS, KILL_AT_S = 20.0, 20.0, 8.0
TOKENS, EACH_MS = 40, 10.0
_REGIONS = {"west": {"latitude": 52.5, "longitude": 13.4}, "east": {"latitude": 35.7, "longitude": 139.7}}


async def measure(folder: Path, progress: Progress) -> dict[str, Any]:
    """`failed_calls` and `slowest_ms` over the whole load; times in milliseconds, infinite where a call failed."""
    async with AsyncExitStack() as stack:
        cluster = Cluster(stack, folder, progress)
        west, east = await _region(cluster, "west", llms=2), await _region(cluster, "east", llms=1)
        services = {
            name: {
                "endpoints": [
                    {"address": process.spec.address, "region": region}
                    for region, processes in (("west", west), ("east", east))
                    for process in processes
                    if process.spec.name.startswith(name)
                ]
            }
            for name in ("cache", "router", "llm")
        }
        await cluster.control({"regions": _REGIONS, "services": services})
        gateway = await cluster.start(
            "gateway",
            "services.gateway",
            cache_address="xds:///cache",
            router_address="xds:///router",
            llm_addresses={MODEL: "xds:///llm"},
        )
        channel = await stack.enter_async_context(open_channel(gateway.spec.address))
        load = OpenLoop(ask_gateway([channel], timeout_s=30))
        progress(f"mesh: {RATE:g} streams a second for {SECONDS:g} s; the west dies after {KILL_AT_S:g} s")
        killing = asyncio.create_task(_kill(west))
        samples = await load.run(_arrivals())
        await killing
    return _summary(samples)


async def _region(cluster: Cluster, region: str, llms: int) -> list[ServiceProcess]:
    cache, router = await cluster.start(f"cache-{region}", "services.cache"), await cluster.router(f"router-{region}")
    names = [f"llm-{region}-{number}" for number in range(llms)]
    story = {"each_ms": EACH_MS, "tokens": TOKENS, "continues": True}
    return [cache, router, *[await cluster.llm(name, **story) for name in names]]


def _arrivals() -> list[Arrival]:
    return [Arrival(at, _request(number)) for number, at in enumerate(poisson(RATE, SECONDS, random.Random(1)))]


def _request(number: int) -> bytes:
    """A question that was not asked before."""
    return gateway_pb2.GenerateRequest(
        messages=[chat_pb2.Message(role=chat_pb2.ROLE_USER, content=f"Tell me story number {number}.")],
        model=MODEL,
        sampling=chat_pb2.Sampling(max_tokens=TOKENS),
        cache=gateway_pb2.CachePolicy(min_similarity=1),
        budget_ms=20_000,
    ).SerializeToString()


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
