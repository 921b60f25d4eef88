"""What it costs to find the others by xDS, and what Envoy costs in front.

Each call is a question that the cache is asked for, and does not have, and four messages of a simulated llm: one hop to
each. The same backends are behind all paths, and every call goes over each of them, in all orders. Each path has a
gateway of its own: one that is called twice as often would be the warmer one, by half a millisecond.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import grpc

from bench.load import GATEWAY_GENERATE
from bench.mesh.cluster import MODEL, Cluster, Progress, an_address
from bench.stats import percentiles
from hedgerow.channel import open_channel
from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2

SAMPLES, WARM_UP = 2_000, 200  # calls per path
TOKENS = 4
# Exact lookups alone; and questions too long to embed, so that what is stored afterwards disturbs nobody.
_LONGEST_EMBEDDED = 8


async def measure(folder: Path, progress: Progress) -> dict[str, dict[str, float]]:
    """Milliseconds of a call over each path, and what it adds to the first."""
    async with AsyncExitStack() as stack:
        targets = await _start(Cluster(stack, folder, progress), progress)
        calls: dict[str, Any] = {}
        for name, target in targets.items():
            channel = await stack.enter_async_context(open_channel(target))
            calls[name] = channel.unary_stream(GATEWAY_GENERATE)
        progress(f"mesh: {SAMPLES} calls on each of {', '.join(calls)}, interleaved")
        times: dict[str, list[float]] = {name: [] for name in calls}
        orders = itertools.cycle(itertools.permutations(calls))  # nobody always comes after the same one
        for number in range(WARM_UP + SAMPLES):
            for name in next(orders):
                spent_ms = await _ask(calls[name], number)
                if number >= WARM_UP:
                    times[name].append(spent_ms)
    return _summary(times)


async def _start(cluster: Cluster, progress: Progress) -> dict[str, str]:
    """Where each path begins."""
    llm, router = await cluster.llm("llm"), await cluster.router()
    cache = await cluster.start("cache", "services.cache", max_embedded_tokens=_LONGEST_EMBEDDED)
    static = await cluster.start(
        "gateway-static",
        "services.gateway",
        cache_address=cache.spec.address,
        router_address=router.spec.address,
        llm_addresses={MODEL: llm.spec.address},
        l1_cache_entries=0,
    )
    behind_envoy, edge = an_address(), an_address()
    places = {"cache": cache.spec.address, "router": router.spec.address, "llm": llm.spec.address}
    services: dict[str, Any] = {
        name: {"endpoints": [{"address": address, "region": "west"}]}
        for name, address in {**places, "gateway": behind_envoy}.items()
    }
    services["cache"]["balance"] = "ring_hash"
    region = {"west": {"latitude": 52.5, "longitude": 13.4}}
    await cluster.control({"regions": region, "services": services, "edge": {"address": edge}})
    by_name: dict[str, Any] = {
        "cache_address": "xds:///cache",
        "router_address": "xds:///router",
        "llm_addresses": {MODEL: "xds:///llm"},
        "l1_cache_entries": 0,
    }
    by_xds = await cluster.start("gateway-xds", "services.gateway", **by_name)
    await cluster.start("gateway-envoy", "services.gateway", behind_envoy, **by_name)
    await cluster.envoy(edge)
    return {"static": static.spec.address, "xds": by_xds.spec.address, "envoy": edge}


def question(number: int) -> str:
    """One that the cache is asked for."""
    return f"What is the capital of the country that comes as number {number} in the list, and how large is it?"


async def _ask(call: Any, number: int) -> float:
    request = gateway_pb2.GenerateRequest(
        messages=[chat_pb2.Message(role=chat_pb2.ROLE_USER, content=f"{question(number)} {time.time_ns()}")],
        sampling=chat_pb2.Sampling(max_tokens=TOKENS),
        cache=gateway_pb2.CachePolicy(min_similarity=1),
        budget_ms=20_000,
    ).SerializeToString()
    began = time.perf_counter()
    running = call(request, timeout=30)
    while await running.read() is not grpc.aio.EOF:
        pass
    return (time.perf_counter() - began) * 1000


def _summary(times: Mapping[str, list[float]]) -> dict[str, dict[str, float]]:
    found = {}
    for name, spent_ms in times.items():
        found[name] = {f"{key}_ms": value for key, value in percentiles(spent_ms).items()}
    for each in found.values():
        for key in ("p50_ms", "p99_ms"):
            each[f"added_{key}"] = round(each[key] - found["static"][key], 3)
    return found
