"""Tools of the mesh: two slow ones by the gateway and one after the other by the application, and what others pay.

Real gateways before a simulated model and simulated tools, which take a chosen time: the mesh is measured, and neither
a model nor a tool. All arms are asked in turns. The overhead is that of a question without tools, at a gateway that has
sources of tools and at one that has none.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.table import Table

from bench.simulated_tools import simulated_tools
from bench.stats import cpu_s, percentiles
from hedgerow import AsyncClient, MeshTool
from hedgerow.channel import open_channel
from hedgerow.tool.v1 import tool_pb2, tool_pb2_grpc
from launcher.processes import ServiceProcess, ServiceSpec, free_ports

PAUSES_S = {"slow": 0.15, "slower": 0.2}
FIRST_MS = 30  # of the simulated model
ASKED, PLAIN, WARM_UP = 100, 2_000, 100  # answers of each arm
QUESTION = "What is the capital of France?"
Progress = Callable[[str], None]
Arm = Callable[[], Awaitable[object]]


async def run(progress: Progress) -> dict[str, object]:
    """Start what is needed, measure, stop it. About two minutes."""
    with tempfile.TemporaryDirectory() as folder:
        async with simulated_tools(PAUSES_S) as tools, _gateways(Path(folder), tools) as gateways:
            equipped, bare = (client for client, _ in gateways)
            progress(
                f"tools: two tools of {', '.join(f'{s * 1000:.0f} ms' for s in PAUSES_S.values())}, {ASKED} each way"
            )
            called = await _interleaved(_ways(equipped, tools), ASKED)
            progress(f"tools: {PLAIN} questions without any at a gateway with and without sources")
            plain: dict[str, Arm] = {"with": lambda: equipped.ask(QUESTION), "without": lambda: bare.ask(QUESTION)}
            await _interleaved(plain, WARM_UP)
            before = [cpu_s(pid) for _, pid in gateways]
            asked = await _interleaved(plain, PLAIN)
            spent = [cpu_s(pid) - old for (_, pid), old in zip(gateways, before, strict=True)]
    return {
        "tools_ms": {name: round(pause * 1000) for name, pause in PAUSES_S.items()},
        "model_ms": FIRST_MS,
        "n": ASKED,
        "total_ms": {name: percentiles(times) for name, times in called.items()},
        "plain_n": PLAIN,
        "plain_ms": {name: percentiles(times) for name, times in asked.items()},
        "plain_cpu_us": {name: round(s / PLAIN * 1e6) for name, s in zip(asked, spent, strict=True)},
    }


def _ways(equipped: AsyncClient, address: str) -> dict[str, Arm]:
    """Both tools and an answer with what they say."""

    async def by_the_gateway() -> None:
        answer = await equipped.ask(QUESTION, mesh_tools=[MeshTool(name, {}) for name in PAUSES_S], max_tokens=1)
        assert not answer.degraded, answer.degraded

    async def by_the_application() -> None:
        async with open_channel(address) as channel:
            make_stub: Any = tool_pb2_grpc.ToolServiceStub
            stub = make_stub(channel)
            calls = [tool_pb2.CallToolRequest(name=name, arguments="{}") for name in PAUSES_S]
            told = [(await stub.CallTool(call)).content for call in calls]
        await equipped.ask("\n".join([*told, QUESTION]), max_tokens=1)

    async def without() -> None:
        await equipped.ask(QUESTION, max_tokens=1)

    return {
        "no tools": without,
        "at once, by the gateway": by_the_gateway,
        "in turn, by the application": by_the_application,
    }


async def _interleaved(arms: Mapping[str, Arm], count: int) -> dict[str, list[float]]:
    """Milliseconds of each."""
    times: dict[str, list[float]] = {name: [] for name in arms}
    for _ in range(count):
        for name, ask in arms.items():
            began = time.perf_counter()
            await ask()
            times[name].append((time.perf_counter() - began) * 1000)
    return times


@asynccontextmanager
async def _gateways(folder: Path, tools: str) -> AsyncIterator[list[tuple[AsyncClient, int]]]:
    """Two before one model, with sources of tools and without, and their processes."""
    at = [f"127.0.0.1:{port}" for port in free_ports(3)]
    sources = {"sources": {"simulated": {"address": tools, "call_ms": 2_000}}}
    common = {"LLM_ADDRESSES": json.dumps({"m": at[0]}), "CACHE_ADDRESS": "", "ROUTER_ADDRESS": ""}
    model = {"HEDGEROW_SIMULATED_LLM_ADDRESS": at[0], "HEDGEROW_SIMULATED_LLM_FIRST_MS": str(FIRST_MS)}
    specs = [ServiceSpec("llm", "bench.simulated_llm", at[0], model)]
    for name, address, own in (("equipped", at[1], {"TOOLS": json.dumps(sources)}), ("bare", at[2], {})):
        told = {f"HEDGEROW_GATEWAY_{key}": value for key, value in {"ADDRESS": address, **common, **own}.items()}
        specs.append(ServiceSpec(name, "services.gateway", address, told))
    async with AsyncExitStack() as stack:
        processes = [ServiceProcess(spec, folder) for spec in specs]
        for process in processes:
            stack.push_async_callback(process.stop)
            await process.wait_serving()
        clients = [await stack.enter_async_context(AsyncClient(address)) for address in at[1:]]
        for client in clients:
            await client.prewarm()
        yield [(client, process.pid) for client, process in zip(clients, processes[1:], strict=True)]


def table(result: Mapping[str, Any]) -> Group:
    """For people."""
    slow = " and ".join(f"{ms} ms" for ms in result["tools_ms"].values())
    title = f"Tools of {slow}, a model of {result['model_ms']} ms (n = {result['n']} each)"
    called = Table("", "p50", "p95", "p99", title=title)
    plain = Table("", "p50", "p95", "p99", title=f"A question without tools (n = {result['plain_n']} each)")
    plain.caption = "processor time of the gateway: " + ", ".join(
        f"{name} {told} µs" for name, told in result["plain_cpu_us"].items()
    )
    for shown, times in ((called, result["total_ms"]), (plain, result["plain_ms"])):
        for name, told in times.items():
            shown.add_row(name, *(f"{told[key]:.2f} ms" for key in ("p50", "p95", "p99")))
    return Group(called, plain)
