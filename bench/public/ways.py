"""The two ways to one public model: vLLM's bare `AsyncLLM`, and the mesh."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from bench import first_text
from bench.mesh.cluster import Cluster, an_address
from hedgerow.channel import open_channel
from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2

Progress = Callable[[str], None]
MODEL = "smol"
BUDGET_MS = 120_000
_START_S = 300.0
_GENERATE = "/hedgerow.gateway.v1.GatewayService/Generate"


@dataclass(frozen=True)
class Sample:
    """One answer."""

    first_s: float  # to the first text
    total_s: float
    tokens: int

    @property
    def tokens_per_s(self) -> float:
        return self.tokens / self.total_s


Ask = Callable[[str, int], Awaitable[Sample]]  # a prompt and how many tokens


async def standing(stack: AsyncExitStack, folder: Path, model: Path, progress: Progress) -> Mapping[str, Ask]:
    """`raw` and `mesh`, both loaded, until `stack` is left."""
    raw = await _raw(stack, folder, model, progress)
    gateway, _ = await mesh(stack, folder, model, progress)
    channel = await stack.enter_async_context(open_channel(gateway))
    return {"raw": raw, "mesh": _through(channel)}


async def mesh(stack: AsyncExitStack, folder: Path, model: Path, progress: Progress) -> tuple[str, str]:
    """Where a gateway, a router and an llm service are serving the model: by gRPC, and by HTTP."""
    cluster = Cluster(stack, folder, progress)
    llm = await cluster.start("llm", "services.llm", model_name=MODEL, vllm__model=str(model))
    router = await cluster.start(
        "router", "services.router", models=[{"name": MODEL, "tier": "fast", "context_tokens": 8192}]
    )
    http = an_address()
    gateway = await cluster.start(
        "gateway",
        "services.gateway",
        http_address=http,
        llm_addresses={MODEL: llm.spec.address},
        router_address=router.spec.address,
        cache_address="",
        default_budget_ms=BUDGET_MS,
    )
    return gateway.spec.address, http


def _through(channel: grpc.aio.Channel) -> Ask:
    generate: Any = channel.unary_stream(_GENERATE)

    async def ask(prompt: str, tokens: int) -> Sample:
        request = gateway_pb2.GenerateRequest(
            messages=[chat_pb2.Message(role=chat_pb2.ROLE_USER, content=prompt)],
            sampling=chat_pb2.Sampling(temperature=0, max_tokens=tokens, ignore_eos=True),
            model=MODEL,
            budget_ms=BUDGET_MS,
        )
        began, first, final = time.perf_counter(), 0.0, None
        call = generate(request.SerializeToString())
        while (message := await call.read()) is not grpc.aio.EOF:
            for event in gateway_pb2.GenerateResponse.FromString(message).events:
                if first_text.is_in_event(event):
                    first = first or time.perf_counter() - began
                if event.HasField("final"):
                    final = event.final
        if final is None:
            raise RuntimeError("an answer without an end")
        return Sample(first, time.perf_counter() - began, final.usage.completion_tokens)

    return ask


async def _raw(stack: AsyncExitStack, folder: Path, model: Path, progress: Progress) -> Ask:
    """`bench.raw_vllm`, loaded."""
    progress("public: loading vLLM")
    log = stack.enter_context((folder / "raw.log").open("wb"))
    command = (sys.executable, "-m", "bench.raw_vllm", json.dumps({"model": str(model)}))
    process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, stderr=log)
    assert process.stdin
    assert process.stdout
    stack.push_async_callback(process.wait)
    stack.callback(process.stdin.close)
    await asyncio.wait_for(process.stdout.readline(), _START_S)
    return _Raw(stack, process.stdin, process.stdout).ask


class _Raw:
    """Tells replies apart by their numbers."""

    def __init__(self, stack: AsyncExitStack, requests: asyncio.StreamWriter, replies: asyncio.StreamReader):
        self._requests, self._replies = requests, replies
        self._waiting: dict[int, asyncio.Future[Sample]] = {}
        self._last = 0
        reading = asyncio.create_task(self._read())
        stack.callback(reading.cancel)

    async def ask(self, prompt: str, tokens: int) -> Sample:
        self._last += 1
        waiting: asyncio.Future[Sample] = asyncio.get_running_loop().create_future()
        self._waiting[self._last] = waiting
        asked = {"id": self._last, "prompt": prompt, "max_tokens": tokens, "ignore_eos": True}
        self._requests.write(json.dumps(asked).encode() + b"\n")
        return await waiting

    async def _read(self) -> None:
        while line := await self._replies.readline():
            reply = json.loads(line)
            sample = Sample(reply["first_s"], reply["total_s"], reply["tokens"])
            self._waiting.pop(reply["id"]).set_result(sample)
