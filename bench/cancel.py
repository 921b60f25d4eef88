"""How soon the engine stops when the client leaves.

By gRPC it cancels, or vanishes (its connection is cut), in mid-stream; by HTTP/1.1 it closes its connection. The demo
mesh on its real engines. Stopped means that vLLM's own count of running requests, asked of the llm service over and
over, is back at zero.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import aiohttp

import hedgerow
from bench.asking import in_turns
from bench.cluster import Progress, clustered
from bench.stats import percentiles
from hedgerow.llm.v1 import llm_pb2, llm_pb2_grpc
from launcher.demo import SERVICES, demo_mesh
from launcher.mesh import Mesh
from launcher.processes import free_ports
from tests.fault.proxy import FaultProxy
from tests.models import FIXTURES

SAMPLES = 30
_STORY = "Tell me a long story about a fox."
_LONG = "([a-z]+ ){400}"  # forced to have 400 words, the answer does not end before it is cancelled
_OPTIONS: hedgerow.Options = {"tier": "quality", "cache": "bypass", "max_tokens": 512, "regex": _LONG}
_BODY = {
    "model": "quality",
    "messages": [{"role": "user", "content": _STORY}],
    "stream": True,
    "max_tokens": 512,
    "response_format": {"type": "regex", "regex": _LONG},
    "hedgerow": {"cache": "bypass"},
}
_POLL_S = 0.002  # asked without a pause, the question would take the cores from those it is about


async def run(progress: Progress) -> dict[str, object]:
    """Start the demo mesh, measure, stop it. About a minute."""
    async with clustered(progress) as cluster:
        progress("starting the demo mesh")
        *ports, http_port = free_ports(len(SERVICES) + 1)
        specs = demo_mesh(ports, cluster.folder, FIXTURES, http_port=http_port)
        at = {spec.name: spec.address for spec in specs}
        await cluster.stack.enter_async_context(Mesh(specs, cluster.folder))
        session = await cluster.stack.enter_async_context(aiohttp.ClientSession())
        client = await cluster.stack.enter_async_context(hedgerow.AsyncClient(at["gateway"]))
        engine = _Engine(await cluster.channel(at["llm-quality"]))
        post = partial(session.post, f"http://127.0.0.1:{http_port}/v1/chat/completions")
        ways: dict[str, Callable[[int], Awaitable[float]]] = {
            "grpc_cancelled": lambda number: _cancel(client, engine),
            "grpc_cut": lambda number: _vanish(at["gateway"], engine),
            "http1": lambda number: _close(post, engine),
        }
        progress(f"{SAMPLES} clients that leave in each way, in turns")
        found = await in_turns(ways, SAMPLES)
    return {"stopped_ms": {name: percentiles(spent, 1) for name, spent in found.items()}, "samples": SAMPLES}


class _Engine:
    def __init__(self, channel: Any):
        self._stub: Any = llm_pb2_grpc.LLMServiceStub(channel)  # type: ignore[no-untyped-call]

    async def runs(self, anything: bool) -> None:
        """Return when it runs a request, which is later than the first token, or none."""
        async with asyncio.timeout(10):
            while bool((await self._stub.GetModel(llm_pb2.GetModelRequest(), timeout=5)).running) is not anything:
                await asyncio.sleep(_POLL_S)

    async def stopped_after_ms(self, leave: Callable[[], object]) -> float:
        """Milliseconds from a client's leaving to an engine that runs nothing."""
        await self.runs(True)
        left = time.perf_counter()
        leave()
        await self.runs(False)
        return (time.perf_counter() - left) * 1000


async def _cancel(client: hedgerow.AsyncClient, engine: _Engine) -> float:
    stream = client.stream(_STORY, **_OPTIONS)
    await _first_text(stream)
    return await engine.stopped_after_ms(stream.cancel)


async def _vanish(gateway: str, engine: _Engine) -> float:
    async with FaultProxy(gateway) as wire, hedgerow.AsyncClient(wire.address) as client:
        stream = client.stream(_STORY, **_OPTIONS)
        await _first_text(stream)
        return await engine.stopped_after_ms(wire.cut)


async def _close(post: Any, engine: _Engine) -> float:
    response = await post(json=_BODY)
    while b'"content":"' not in await response.content.readany():
        pass
    return await engine.stopped_after_ms(response.close)


async def _first_text(stream: hedgerow.AsyncAnswerStream) -> None:
    async for event in stream:
        if isinstance(event, hedgerow.TextDelta):
            return
