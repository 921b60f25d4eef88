"""Answers a second with one and with two worker processes behind one port.

The answers come from the gateway's own L1 cache, so that the gateway is what is full and not something behind it. The
load is a closed loop over many connections: the kernel spreads connections, not calls. The load generator has no core
of its own, so the figures say what this machine gets out of a second worker, not what a second core does.
"""

from __future__ import annotations

import itertools
import os
import statistics
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from bench.load import Arrival, GrpcAsk, ask_gateway, closed_loop
from bench.mesh.cluster import MODEL, Cluster, Progress
from hedgerow.channel import open_channel
from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2

CALLERS, CONNECTIONS, ROUNDS, ROUND_S = 32, 16, 7, 4.0
_REQUEST = gateway_pb2.GenerateRequest(
    messages=[chat_pb2.Message(role=chat_pb2.ROLE_USER, content="What is the capital of France?")],
    sampling=chat_pb2.Sampling(max_tokens=4),
).SerializeToString()


async def measure(folder: Path, progress: Progress) -> dict[str, Any]:
    """Median of the rounds, which take turns, for each number of workers."""
    async with AsyncExitStack() as stack:
        cluster = Cluster(stack, folder, progress)
        llm, router = await cluster.llm("llm"), await cluster.router()
        cache = await cluster.start("cache", "services.cache")
        loads = {}
        for workers in (1, 2):
            gateway = await cluster.start(
                f"gateway-{workers}",
                "services.gateway",
                workers=workers,
                cache_address=cache.spec.address,
                router_address=router.spec.address,
                llm_addresses={MODEL: llm.spec.address},
            )
            channels = [await stack.enter_async_context(open_channel(gateway.spec.address)) for _ in range(CONNECTIONS)]
            loads[str(workers)] = ask_gateway(channels, timeout_s=30)
            await _rps(loads[str(workers)], 1.0)  # whatever is done once is done
        rps: dict[str, list[float]] = {name: [] for name in loads}
        for number in range(ROUNDS):
            progress(f"mesh: {CALLERS} callers on 1 and 2 workers, round {number + 1} of {ROUNDS}")
            for name, load in loads.items():
                rps[name].append(await _rps(load, ROUND_S))
    return {
        **{name: round(statistics.median(values), 1) for name, values in rps.items()},
        "cores": os.cpu_count(),
        "callers": CALLERS,
    }


async def _rps(ask: GrpcAsk, seconds: float) -> float:
    samples = await closed_loop(ask, itertools.repeat(Arrival(0, _REQUEST)), CALLERS, seconds)
    return sum(sample.good for sample in samples) / seconds
