"""Many streams by HTTP at once, each at reading speed: how long the longest silence in them is, and what they cost.

A simulated engine writes 20 tokens a second for each of 200 streams, through one gateway with every policy on. Engine,
gateway and the client that reads all of them share this machine's cores.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import aiohttp
from rich.table import Table

from bench.stats import cpu_s, percentiles
from launcher.processes import ServiceProcess, ServiceSpec, free_ports

NAME = "sse"
STREAMS, TOKENS, EACH_MS = 200, 200, 50.0
STALL_MS = 200.0
_BUDGET_MS = 60_000
Progress = Callable[[str], None]


async def run(progress: Progress) -> dict[str, object]:
    """Start what is needed, measure, stop it. About fifteen seconds."""
    with tempfile.TemporaryDirectory() as folder:
        async with AsyncExitStack() as stack:
            llm, gateway, http = (f"127.0.0.1:{port}" for port in free_ports(3))
            pids = {}
            for spec in (_llm(llm), _gateway(gateway, http, llm)):
                progress(f"sse: starting {spec.name}")
                process = ServiceProcess(spec, Path(folder))
                stack.push_async_callback(process.stop)
                await process.wait_serving()
                pids[spec.name] = process.pid
            connector = aiohttp.TCPConnector(limit=STREAMS)
            session = await stack.enter_async_context(aiohttp.ClientSession(f"http://{http}", connector=connector))
            progress(f"sse: {STREAMS} streams of {TOKENS} tokens, {1000 / EACH_MS:g} a second each")
            began, spent = time.perf_counter(), {name: cpu_s(pid) for name, pid in pids.items()}
            arrivals = await asyncio.gather(*(_read(session, number) for number in range(STREAMS)))
            lasted = time.perf_counter() - began
            cores = {name: round((cpu_s(pid) - spent[name]) / lasted, 3) for name, pid in pids.items()}
    return _result(arrivals, cores, lasted)


def _result(arrivals: list[list[float]], cores: Mapping[str, float], lasted_s: float) -> dict[str, object]:
    gaps = [(later - earlier) * 1000 for times in arrivals for earlier, later in pairwise(times)]
    chunks = sum(map(len, arrivals))
    return {
        "streams": STREAMS,
        "tokens": TOKENS,
        "gap_ms": {**percentiles(gaps), "max": round(max(gaps), 1)},
        "stalls": sum(gap > STALL_MS for gap in gaps),
        "chunks_per_s": round(chunks / lasted_s, 1),
        "cores": dict(cores),
    }


async def _read(session: aiohttp.ClientSession, number: int) -> list[float]:
    """When each piece of one stream came, in seconds."""
    times, last = [], b""
    body = {
        "model": "simulated",
        "stream": True,
        "max_tokens": TOKENS,
        "messages": [{"role": "user", "content": f"Tell me story {number}."}],
        "hedgerow": {"budget_ms": _BUDGET_MS, "cache": "bypass"},
    }
    async with session.post("/v1/chat/completions", json=body) as response:
        async for data in response.content.iter_any():
            times.append(time.perf_counter())
            last = (last + data)[-100:]
    if b"[DONE]" not in last:
        raise RuntimeError(f"HTTP {response.status}: {last!r}")
    return times


def _llm(address: str) -> ServiceSpec:
    environment = {
        "HEDGEROW_SIMULATED_LLM_ADDRESS": address,
        "HEDGEROW_SIMULATED_LLM_TOKENS": str(TOKENS),
        "HEDGEROW_SIMULATED_LLM_EACH_MS": str(EACH_MS),
    }
    return ServiceSpec("llm", "bench.simulated_llm", address, environment)


def _gateway(address: str, http: str, llm: str) -> ServiceSpec:
    environment = {
        "HEDGEROW_GATEWAY_ADDRESS": address,
        "HEDGEROW_GATEWAY_HTTP_ADDRESS": http,
        "HEDGEROW_GATEWAY_LLM_ADDRESSES": json.dumps({"simulated": [llm] * 2}),
        "HEDGEROW_GATEWAY_LIMIT": json.dumps({"algorithm": "fixed", "initial": STREAMS}),
        "HEDGEROW_GATEWAY_DEFAULT_BUDGET_MS": str(_BUDGET_MS),
    }
    return ServiceSpec("gateway", "services.gateway", address, environment)


def table(result: Mapping[str, Any]) -> Table:
    """The result, for people."""
    table = Table(title=f"{result['streams']} streams of {result['tokens']} tokens by HTTP")
    for column in ("gap p50", "gap p95", "gap p99", "longest", f"over {STALL_MS:g} ms", "chunks/s", "gateway", "llm"):
        table.add_column(column, justify="right")
    gap, cores = result["gap_ms"], result["cores"]
    gaps = (f"{gap[key]:.1f} ms" for key in ("p50", "p95", "p99", "max"))
    told = (str(result["stalls"]), f"{result['chunks_per_s']:.0f}", f"{cores['gateway']:.2f}", f"{cores['llm']:.2f}")
    table.add_row(*gaps, *told)
    table.caption = "Gateway and llm: cores."
    return table
