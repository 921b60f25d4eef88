"""What the gateway adds to a stream: against the llm service called directly and against a bare relay.

All paths are measured in one run, interleaved call by call, on a simulated engine that answers at once, so that the
mesh and not a model is measured. Every policy is on. The exact hit runs on the real cache service.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
from rich.table import Table

from bench import first_text
from bench.stats import ADDED, cpu_s, percentiles
from hedgerow.channel import open_channel
from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2
from hedgerow.llm.v1 import llm_pb2
from launcher.processes import ServiceProcess, ServiceSpec, free_ports

NAME = "overhead"
TOKENS = 4  # messages of a measured answer
SAMPLES, WARM_UP = 2_000, 200  # calls per path
LONG_STREAMS, LONG_TOKENS = 20, 500  # for the cost of one relayed message
_QUESTION = [chat_pb2.Message(role=chat_pb2.ROLE_USER, content="What is the capital of France?")]
_GENERATE_LLM, _GENERATE = "/hedgerow.llm.v1.LLMService/Generate", "/hedgerow.gateway.v1.GatewayService/Generate"
# What is off by default; limits that nothing here reaches.
_EVERY_POLICY: dict[str, Any] = {
    "TENANTS": {"local": {"requests_per_s": 1e6, "requests_burst": 1e6, "tokens_per_minute": 1e9, "concurrency": 999}},
    "TARGETS": {name: {"p50_ms": 1_000, "p95_ms": 1_000, "p99_ms": 1_000} for name in ("llm", "ttft", "total")},
    "FIRST_TOKEN_BUDGET_MS": 10_000,
    "FALLBACKS": ["stale", "smaller", "template"],
}
Progress = Callable[[str], None]
Timing = tuple[float, float]  # seconds to the first text and to the end


async def run(progress: Progress) -> dict[str, object]:
    """Start what is needed, measure, stop it. About a minute."""
    with tempfile.TemporaryDirectory() as folder:
        async with _mesh(Path(folder), progress) as mesh:
            progress(f"overhead: {SAMPLES} calls on each of direct, floor and gateway, interleaved")
            times = await _interleave({"direct": mesh.direct, "floor": mesh.floor, "gateway": mesh.gateway}, SAMPLES)
            progress(f"overhead: exact hits and unary echoes, {SAMPLES} each, interleaved")
            hits = await _interleave({"exact_hit": mesh.exact_hit, "echo": mesh.echo}, SAMPLES)
            progress(f"overhead: {LONG_STREAMS} streams of {LONG_TOKENS} messages through floor and gateway")
            relay_cpu = await mesh.relay_cpu_us()
    return _result(times, hits, relay_cpu)


def _result(
    times: Mapping[str, list[Timing]], hits: Mapping[str, list[Timing]], relay_cpu: dict[str, float]
) -> dict[str, object]:
    paths = {
        name: {
            "ttft_ms": percentiles([first * 1000 for first, _ in timings]),
            "total_ms": percentiles([total * 1000 for _, total in timings]),
        }
        for name, timings in times.items()
    }
    added = {name: _added(paths[name]["total_ms"], paths["direct"]["total_ms"]) for name in ("gateway", "floor")}
    return {
        **paths,
        "added_ms": added["gateway"],
        "floor_added_ms": added["floor"],
        "added_over_floor": {key: round(added["gateway"][key] / added["floor"][key], 2) for key in added["floor"]},
        "relay_cpu_us_per_message": relay_cpu,
        "exact_hit_ms": percentiles([total * 1000 for _, total in hits["exact_hit"]]),
        "echo_ms": percentiles([total * 1000 for _, total in hits["echo"]]),
        "samples": SAMPLES,
    }


def _added(path: Mapping[str, float], direct: Mapping[str, float]) -> dict[str, float]:
    return {key: round(path[key] - direct[key], 3) for key in path}


def table(result: Mapping[str, Any]) -> Table:
    """The result, for people."""
    table = Table(title=f"Overhead of the gateway, ms ({result['samples']} calls per path, {TOKENS} messages each)")
    for column in ("path", "first p50", "first p99", "total p50", "total p95", "total p99", "added p50", "added p99"):
        table.add_column(column, justify="left" if column == "path" else "right")
    for name in ("direct", "floor", "gateway"):
        first, total = result[name]["ttft_ms"], result[name]["total_ms"]
        added = {"floor": result["floor_added_ms"], "gateway": result["added_ms"]}.get(name, {})
        cells = (
            first["p50"],
            first["p99"],
            total["p50"],
            total["p95"],
            total["p99"],
            added.get("p50"),
            added.get("p99"),
        )
        table.add_row(name, *("" if cell is None else f"{cell:.2f}" for cell in cells))
    for name in ("exact_hit", "echo"):
        total = result[f"{name}_ms"]
        table.add_row(name.replace("_", " "), "", "", *(f"{total[key]:.2f}" for key in ("p50", "p95", "p99")))
    cpu = result["relay_cpu_us_per_message"]
    table.caption = f"{ADDED}\nCPU of a relayed message: floor {cpu['floor']:.0f} µs, gateway {cpu['gateway']:.0f} µs"
    return table


async def _interleave(paths: Mapping[str, Callable[[], Awaitable[Timing]]], samples: int) -> dict[str, list[Timing]]:
    times: dict[str, list[Timing]] = {name: [] for name in paths}
    for number in range(WARM_UP + samples):
        for name, path in paths.items():
            timing = await path()
            if number >= WARM_UP:
                times[name].append(timing)
    return times


class _Mesh:
    """The paths to measure."""

    def __init__(self, channels: Mapping[str, grpc.aio.Channel], pids: Mapping[str, int]):
        self._direct: Any = channels["llm"].unary_stream(_GENERATE_LLM)
        self._floor: Any = channels["floor"].unary_stream(_GENERATE_LLM)
        self._gateway: Any = channels["gateway"].unary_stream(_GENERATE)
        self._echo: Any = channels["floor"].unary_unary("/hedgerow.llm.v1.LLMService/Echo")
        self._pids = pids

    async def direct(self, tokens: int = TOKENS) -> Timing:
        return await _stream(self._direct, _llm_request(tokens), _llm_text)

    async def floor(self, tokens: int = TOKENS) -> Timing:
        return await _stream(self._floor, _llm_request(tokens), _llm_text)

    async def gateway(self, tokens: int = TOKENS) -> Timing:
        return await _stream(self._gateway, _gateway_request(tokens, bypass=True), _gateway_text)

    async def exact_hit(self) -> Timing:
        return await _stream(self._gateway, _gateway_request(TOKENS, bypass=False), _gateway_text)

    async def echo(self) -> Timing:
        started = time.perf_counter()
        await self._echo(_llm_request(TOKENS))
        total = time.perf_counter() - started
        return total, total

    async def relay_cpu_us(self) -> dict[str, float]:
        """CPU time of the relaying process for one message, in microseconds."""
        spent = {"floor": 0.0, "gateway": 0.0}
        for _ in range(LONG_STREAMS):
            for name, path in (("floor", self.floor), ("gateway", self.gateway)):
                before = cpu_s(self._pids[name])
                await path(LONG_TOKENS)
                spent[name] += cpu_s(self._pids[name]) - before
        return {name: round(seconds / (LONG_STREAMS * LONG_TOKENS) * 1e6, 1) for name, seconds in spent.items()}


@asynccontextmanager
async def _mesh(folder: Path, progress: Progress) -> AsyncIterator[_Mesh]:
    names = ("llm", "floor", "router", "cache", "gateway")
    addresses = {name: f"127.0.0.1:{port}" for name, port in zip(names, free_ports(len(names)), strict=True)}
    async with AsyncExitStack() as stack:
        pids = {}
        for spec in _specs(addresses, folder):
            progress(f"overhead: starting {spec.name}")
            process = ServiceProcess(spec, folder)
            stack.push_async_callback(process.stop)
            await process.wait_serving()
            pids[spec.name] = process.pid
        channels = {name: await stack.enter_async_context(open_channel(addresses[name])) for name in addresses}
        yield _Mesh(channels, pids)


def _specs(addresses: Mapping[str, str], folder: Path) -> list[ServiceSpec]:
    model = {"name": "simulated", "tier": "fast", "context_tokens": 100_000}
    settings: dict[str, tuple[str, dict[str, str]]] = {
        "llm": ("bench.simulated_llm", {"HEDGEROW_SIMULATED_LLM_ADDRESS": addresses["llm"]}),
        "floor": (
            "bench.bare_relay",
            {"HEDGEROW_BARE_RELAY_ADDRESS": addresses["floor"], "HEDGEROW_BARE_RELAY_TARGET": addresses["llm"]},
        ),
        "router": (
            "services.router",
            {"HEDGEROW_ROUTER_ADDRESS": addresses["router"], "HEDGEROW_ROUTER_MODELS": json.dumps([model])},
        ),
        "cache": (
            "services.cache",
            {"HEDGEROW_CACHE_ADDRESS": addresses["cache"], "HEDGEROW_CACHE_DATABASE": str(folder / "cache.db")},
        ),
        "gateway": (
            "services.gateway",
            {
                "HEDGEROW_GATEWAY_ADDRESS": addresses["gateway"],
                "HEDGEROW_GATEWAY_CACHE_ADDRESS": addresses["cache"],
                "HEDGEROW_GATEWAY_ROUTER_ADDRESS": addresses["router"],
                # The same address twice: two replicas, so that the hedge's timer is armed.
                "HEDGEROW_GATEWAY_LLM_ADDRESSES": json.dumps({"simulated": [addresses["llm"]] * 2}),
                **{f"HEDGEROW_GATEWAY_{name}": json.dumps(value) for name, value in _EVERY_POLICY.items()},
            },
        ),
    }
    return [ServiceSpec(name, module, addresses[name], env) for name, (module, env) in settings.items()]


async def _stream(start: Any, request: bytes, text: Callable[[bytes], bool]) -> Timing:
    started, first = time.perf_counter(), None
    call = start(request, timeout=30)
    while (message := await call.read()) is not grpc.aio.EOF:
        if first is None and text(message):
            first = time.perf_counter() - started
    total = time.perf_counter() - started
    return first or total, total


def _llm_request(tokens: int) -> bytes:
    sampling = chat_pb2.Sampling(max_tokens=tokens)
    return llm_pb2.GenerateRequest(messages=_QUESTION, sampling=sampling).SerializeToString()


def _gateway_request(tokens: int, *, bypass: bool) -> bytes:
    sampling, cache = chat_pb2.Sampling(max_tokens=tokens), gateway_pb2.CachePolicy(bypass=bypass)
    request = gateway_pb2.GenerateRequest(messages=_QUESTION, sampling=sampling, cache=cache, budget_ms=20_000)
    return request.SerializeToString()


def _llm_text(message: bytes) -> bool:
    return first_text.is_in_message(llm_pb2.GenerateResponse.FromString(message))


def _gateway_text(message: bytes) -> bool:
    return any(map(first_text.is_in_event, gateway_pb2.GenerateResponse.FromString(message).events))
