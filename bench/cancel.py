"""How soon the engine stops when the client leaves.

By gRPC it cancels, or vanishes (its connection is cut), in mid-stream; by HTTP/1.1 it closes its connection, and by
HTTP/2 through Envoy it resets its stream, each in mid-stream and while it waits for a whole answer. The demo mesh on
its real engines, with a real Envoy. Stopped means that vLLM's own count of running requests, asked of the llm service
over and over, is back at zero.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any, Self

from rich.table import Table

import hedgerow
from bench.mesh.cluster import Cluster, an_address
from bench.stats import percentiles
from bench.wires import Wire, http1, http2
from hedgerow.channel import open_channel
from hedgerow.llm.v1 import llm_pb2, llm_pb2_grpc
from launcher.demo import SERVICES, demo_mesh
from launcher.mesh import Mesh
from launcher.processes import free_ports
from tests.models import FIXTURES

SAMPLES = 30
_STORY = "Tell me a long story about a fox."
_LONG = "([a-z]+ ){400}"  # made to match 400 words, the answer does not end by itself while the clock runs
_OPTIONS: hedgerow.Options = {"tier": "quality", "cache": "bypass", "max_tokens": 512, "regex": _LONG}
_BODY = {
    "model": "quality",
    "messages": [{"role": "user", "content": _STORY}],
    "max_tokens": 512,
    "response_format": {"type": "regex", "regex": _LONG},
    "hedgerow": {"cache": "bypass"},
}
_CLIENTS = {
    "cancelled": "gRPC, it cancels",
    "vanished": "gRPC, its connection is cut",
    "http1": "HTTP/1.1, in mid-stream",
    "http1_whole": "HTTP/1.1, not streamed",
    "http2": "HTTP/2 through Envoy, in mid-stream",
    "http2_whole": "HTTP/2 through Envoy, not streamed",
}
_POLL_S = 0.002  # asked without a pause, the question would take the cores from those it is about
Progress = Callable[[str], None]


async def run(progress: Progress) -> dict[str, object]:
    """Start the demo mesh, measure, stop it. One to two minutes."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        progress("cancel: starting the demo mesh")
        *ports, http_port = free_ports(len(SERVICES) + 1)
        specs = demo_mesh(ports, folder, FIXTURES, http_port=http_port)
        at = {spec.name: spec.address for spec in specs}
        async with AsyncExitStack() as stack:
            enter = stack.enter_async_context
            await enter(Mesh(specs, folder))
            edge = await _envoy(Cluster(stack, folder, progress), at["gateway"], http_port)
            engine = _Engine(await enter(open_channel(at["llm-quality"])))
            client = await enter(hedgerow.AsyncClient(at["gateway"]))
            gateway = f"127.0.0.1:{http_port}"
            ways: dict[str, Callable[[], Awaitable[float]]] = {
                "cancelled": lambda: _cancel(client, engine),
                "vanished": lambda: _vanish(at["gateway"], engine),
                "http1": lambda: _leave(http1, gateway, engine),
                "http1_whole": lambda: _leave(http1, gateway, engine, stream=False),
                "http2": lambda: _leave(http2, edge, engine),
                "http2_whole": lambda: _leave(http2, edge, engine, stream=False),
            }
            progress(f"cancel: {SAMPLES} clients each that leave in {len(ways)} ways, in turns")
            times: dict[str, list[float]] = {way: [] for way in ways}
            for _ in range(SAMPLES):
                for way, measure in ways.items():
                    times[way].append(await measure())
    told = {f"{way}_ms": {**percentiles(spent, 1), "max": round(max(spent), 1)} for way, spent in times.items()}
    return {**told, "samples": SAMPLES}


async def _envoy(cluster: Cluster, gateway: str, http_port: int) -> str:
    """Where an Envoy serves before the gateway."""
    edge, endpoint = an_address(), {"address": gateway, "http_port": http_port, "region": "west"}
    region = {"west": {"latitude": 52.5, "longitude": 13.4}}
    services = {"gateway": {"endpoints": [endpoint]}}
    await cluster.control({"regions": region, "services": services, "edge": {"address": edge}})
    await cluster.envoy(edge)
    return edge


def table(result: Mapping[str, Any]) -> Table:
    """The result, for people."""
    table = Table(title=f"From the client's leaving to an idle engine, ms ({result['samples']} streams each)")
    for column in ("client", "p50", "p95", "p99", "max"):
        table.add_column(column, justify="left" if column == "client" else "right")
    for way, shown in _CLIENTS.items():
        row = result[f"{way}_ms"]
        table.add_row(shown, *(f"{row[key]:.1f}" for key in ("p50", "p95", "p99", "max")))
    return table


class _Engine:
    def __init__(self, channel: Any):
        self._stub: Any = llm_pb2_grpc.LLMServiceStub(channel)  # type: ignore[no-untyped-call]

    async def running(self) -> int:
        """Requests that vLLM is running."""
        model = await self._stub.GetModel(llm_pb2.GetModelRequest(), timeout=5)
        return int(model.running)

    async def started(self) -> None:
        """Return when it runs a request: the first token may be here before the count is."""
        async with asyncio.timeout(1):
            while not await self.running():
                await asyncio.sleep(_POLL_S)

    async def stopped_after_ms(self, left: float) -> float:
        """Milliseconds from `left` (perf_counter) to an engine that runs nothing."""
        async with asyncio.timeout(10):
            while await self.running():
                await asyncio.sleep(_POLL_S)
        return (time.perf_counter() - left) * 1000


async def _cancel(client: hedgerow.AsyncClient, engine: _Engine) -> float:
    stream = client.stream(_STORY, **_OPTIONS)
    await _first_text(stream)
    await engine.started()
    left = time.perf_counter()
    stream.cancel()
    return await engine.stopped_after_ms(left)


async def _vanish(gateway: str, engine: _Engine) -> float:
    async with _Wire(gateway) as wire, hedgerow.AsyncClient(wire.address) as client:
        stream = client.stream(_STORY, **_OPTIONS)
        await _first_text(stream)
        await engine.started()
        left = time.perf_counter()
        wire.cut()
        return await engine.stopped_after_ms(left)


async def _leave(wire: Wire, address: str, engine: _Engine, *, stream: bool = True) -> float:
    content = json.dumps({**_BODY, "stream": stream}).encode()
    async with wire(address, "/v1/chat/completions", {"content-type": "application/json"}, content) as asked:
        if stream:
            await asked.until(b'"content":"')
        await engine.started()
        left = time.perf_counter()
        await asked.leave()
        return await engine.stopped_after_ms(left)


async def _first_text(stream: hedgerow.AsyncAnswerStream) -> None:
    async for event in stream:
        if isinstance(event, hedgerow.TextDelta):
            return


class _Wire:
    """A TCP connection to `target` that can be cut, as when a client's machine goes away."""

    def __init__(self, target: str):
        self._host, _, self._port = target.rpartition(":")
        self._writers: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._join, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._server.close()
        self.cut()

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(self._host, int(self._port))
        self._writers += (writer, back)
        with suppress(ConnectionError):
            await asyncio.gather(_pump(reader, back), _pump(there, writer))


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while data := await source.read(65536):
        sink.write(data)
        await sink.drain()
