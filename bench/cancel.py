"""How soon the engine stops when the client leaves, by cancelling or by vanishing (its connection cut) in mid-stream.

The demo mesh on its real engines. Stopped means that vLLM's own count of running requests, asked of the llm service
over and over, is back at zero.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from rich.table import Table

import hedgerow
from bench.stats import percentiles
from hedgerow.channel import open_channel
from hedgerow.llm.v1 import llm_pb2, llm_pb2_grpc
from launcher.mesh import SERVICES, Mesh, default_models_dir, demo_mesh
from launcher.processes import free_ports

SAMPLES = 30
_STORY = "Tell me a long story about a fox."
# Made to match 400 words, the answer does not end by itself while the clock runs.
_OPTIONS: hedgerow.Options = {"tier": "quality", "cache": "bypass", "max_tokens": 512, "regex": "([a-z]+ ){400}"}
_POLL_S = 0.002  # asked without a pause, the question would take the cores from those it is about
Progress = Callable[[str], None]


async def run(progress: Progress) -> dict[str, object]:
    """Start the demo mesh, measure, stop it. One to two minutes."""
    with tempfile.TemporaryDirectory() as folder:
        progress("cancel: starting the demo mesh")
        specs = demo_mesh(free_ports(len(SERVICES)), Path(folder), default_models_dir())
        at = {spec.name: spec.address for spec in specs}
        async with Mesh(specs, Path(folder)), open_channel(at["llm-quality"]) as channel:
            engine = _Engine(channel)
            progress(f"cancel: {SAMPLES} clients that cancel, {SAMPLES} that vanish")
            cancelled, vanished = [], []
            async with hedgerow.AsyncClient(at["gateway"]) as client:
                for _ in range(SAMPLES):
                    cancelled.append(await _cancel(client, engine))
                    vanished.append(await _vanish(at["gateway"], engine))
    return {
        "cancelled_ms": {**percentiles(cancelled, 1), "max": round(max(cancelled), 1)},
        "vanished_ms": {**percentiles(vanished, 1), "max": round(max(vanished), 1)},
        "samples": SAMPLES,
    }


def table(result: Mapping[str, Any]) -> Table:
    """The result, for people."""
    table = Table(title=f"From the client's leaving to an idle engine, ms ({result['samples']} streams each)")
    for column in ("client", "p50", "p95", "p99", "max"):
        table.add_column(column, justify="left" if column == "client" else "right")
    for name in ("cancelled", "vanished"):
        row = result[f"{name}_ms"]
        table.add_row(name, *(f"{row[key]:.1f}" for key in ("p50", "p95", "p99", "max")))
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
