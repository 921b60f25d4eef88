"""How soon the engine stops when the client leaves, by cancelling or by vanishing (SIGKILL) in mid-stream.

The demo mesh on its real engines. Stopped means that vLLM's own count of running requests, asked of the llm service
over and over, is back at zero.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rich.table import Table

import hedgerow
from bench.stats import percentiles
from hedgerow.channel import open_channel
from hedgerow.cli.mesh import SERVICES, Mesh, default_models_dir, demo_mesh
from hedgerow.cli.processes import free_ports
from hedgerow.llm.v1 import llm_pb2, llm_pb2_grpc

SAMPLES = 30
_STORY = "Tell me a long story about a fox."
_VANISHING = """
import hedgerow, sys
for event in hedgerow.Client(sys.argv[1]).stream(sys.argv[2], tier="quality", cache="bypass"):
    if isinstance(event, hedgerow.TextDelta):
        print(flush=True)
"""
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

    async def stopped_after_ms(self, left: float) -> float:
        """Milliseconds from `left` (perf_counter) to an engine that runs nothing."""
        async with asyncio.timeout(10):
            while await self.running():
                await asyncio.sleep(0)
        return (time.perf_counter() - left) * 1000


async def _cancel(client: hedgerow.AsyncClient, engine: _Engine) -> float:
    stream = client.stream(_STORY, tier="quality", cache="bypass")
    async for event in stream:
        if isinstance(event, hedgerow.TextDelta):
            break
    assert await engine.running() == 1
    left = time.perf_counter()
    stream.cancel()
    return await engine.stopped_after_ms(left)


async def _vanish(gateway: str, engine: _Engine) -> float:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _VANISHING, gateway, _STORY, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    await process.stdout.readline()  # its first token
    assert await engine.running() == 1
    left = time.perf_counter()
    process.kill()
    stopped = await engine.stopped_after_ms(left)
    await process.wait()
    return stopped
