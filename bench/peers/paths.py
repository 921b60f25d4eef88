"""The ways to one provider, with all that stands on them."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path as Folder
from subprocess import PIPE, Popen
from typing import Any

import aiohttp
import grpc
import psutil

from bench import first_text
from bench.peers import litellm
from bench.stats import cpu_s
from hedgerow.channel import open_channel
from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2
from launcher.processes import ServiceProcess, ServiceSpec, free_ports

SHORT, LONG = 4, 200  # tokens of an answer
_MODELS = {SHORT: "short", LONG: "long"}
_ASKED = "What is the capital of France?"
_GENERATE = "/hedgerow.gateway.v1.GatewayService/Generate"
_BUDGET_MS = 30_000
Ask = Callable[[int], Awaitable[tuple[float, float]]]


@dataclass(frozen=True, slots=True)
class Path:
    """One way: `ask` returns the seconds to the first text and to the end; `pids` are of what stands on it."""

    ask: Ask
    pids: tuple[int, ...] = ()

    def cpu_s(self) -> float:
        """What those have spent so far, in seconds."""
        return sum(cpu_s(each) for pid in self.pids for each in _with_children(pid))


async def standing(
    stack: AsyncExitStack, folder: Folder, litellm_command: Folder, progress: Callable[[str], None]
) -> Mapping[str, Path]:
    """`direct`, `litellm`, `grpc` and `http`, until `stack` ends."""
    urls = {name: stack.enter_context(_provider(tokens)) for tokens, name in _MODELS.items()}
    proxy, *ours = free_ports(5)
    short, long, gateway, http = (f"127.0.0.1:{port}" for port in ours)
    specs = [
        _llm("short", short, urls["short"]),
        _llm("long", long, urls["long"]),
        _gateway(gateway, http, {"short": short, "long": long}),
        _litellm(folder, litellm_command, proxy, urls),
    ]
    pids = {}
    for spec in specs:
        progress(f"peers: starting {spec.name}")
        process = ServiceProcess(spec, folder)
        stack.push_async_callback(process.stop)
        pids[spec.name] = process.pid
        if spec.name == "litellm":
            await litellm.serving(process, f"http://127.0.0.1:{proxy}")
        else:
            await process.wait_serving()
    session = await stack.enter_async_context(aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=64)))
    channel = await stack.enter_async_context(open_channel(gateway))
    between = tuple(pid for name, pid in pids.items() if name != "litellm")
    return {
        "direct": Path(_over_http(session, urls)),
        "litellm": Path(_over_http(session, dict.fromkeys(urls, f"http://127.0.0.1:{proxy}/v1")), (pids["litellm"],)),
        "grpc": Path(_over_grpc(channel), between),
        "http": Path(_over_http(session, dict.fromkeys(urls, f"http://{http}/v1"), _UNCACHED), between),
    }


_UNCACHED = {"x-hedgerow-cache": "bypass", "x-hedgerow-budget-ms": str(_BUDGET_MS)}


def _over_http(
    session: aiohttp.ClientSession, urls: Mapping[str, str], headers: Mapping[str, str] | None = None
) -> Ask:
    """By OpenAI's chat completions, streamed."""

    async def ask(tokens: int) -> tuple[float, float]:
        model = _MODELS[tokens]
        body = {"model": model, "stream": True, "messages": [{"role": "user", "content": _ASKED}]}
        began, first, text = time.perf_counter(), None, b""
        async with session.post(f"{urls[model]}/chat/completions", json=body, headers=headers) as response:
            async for data in response.content.iter_any():
                text += data
                if first is None and b'"content":"word' in text.replace(b'": "', b'":"'):
                    first = time.perf_counter() - began
        total = time.perf_counter() - began
        if response.status != 200 or first is None or b"[DONE]" not in text:
            raise RuntimeError(f"HTTP {response.status}: {text[:300]!r}")
        return first, total

    return ask


def _over_grpc(channel: grpc.aio.Channel) -> Ask:
    generate: Any = channel.unary_stream(_GENERATE)

    async def ask(tokens: int) -> tuple[float, float]:
        request = gateway_pb2.GenerateRequest(
            messages=[chat_pb2.Message(role=chat_pb2.ROLE_USER, content=_ASKED)],
            model=_MODELS[tokens],
            budget_ms=_BUDGET_MS,
            cache=gateway_pb2.CachePolicy(bypass=True),
        )
        began, first, ended = time.perf_counter(), None, False
        call = generate(request.SerializeToString())
        while (message := await call.read()) is not grpc.aio.EOF:
            for event in gateway_pb2.GenerateResponse.FromString(message).events:
                if first is None and first_text.is_in_event(event):
                    first = time.perf_counter() - began
                ended = ended or event.HasField("final")
        if first is None or not ended:
            raise RuntimeError("an answer without text or end")
        return first, time.perf_counter() - began

    return ask


@contextmanager
def _provider(tokens: int) -> Iterator[str]:
    command = [sys.executable, "-m", "bench.provider", "http1", "--tokens", str(tokens), "--each-ms", "0"]
    with Popen(command, stdin=PIPE, stdout=PIPE, text=True) as process:
        assert process.stdout
        yield process.stdout.readline().strip()  # leaving ends its input, and so the process


def _llm(name: str, address: str, url: str) -> ServiceSpec:
    settings = {"base_url": url, "model": name}
    environment = {
        "HEDGEROW_LLM_ADDRESS": address,
        "HEDGEROW_LLM_ENGINE": "openai",
        "HEDGEROW_LLM_OPENAI": json.dumps(settings),
    }
    return ServiceSpec(f"llm-{name}", "services.llm", address, environment)


def _gateway(address: str, http: str, llms: Mapping[str, str]) -> ServiceSpec:
    environment = {
        "HEDGEROW_GATEWAY_ADDRESS": address,
        "HEDGEROW_GATEWAY_HTTP_ADDRESS": http,
        "HEDGEROW_GATEWAY_LLM_ADDRESSES": json.dumps(llms),
        "HEDGEROW_GATEWAY_LIMIT": json.dumps({"initial": 100}),
    }
    return ServiceSpec("gateway", "services.gateway", address, environment)


def _litellm(folder: Folder, command: Folder, port: int, urls: Mapping[str, str]) -> ServiceSpec:
    config = litellm.configured(folder / "litellm.yaml", urls)
    words = (str(command), "--config", str(config), "--host", "127.0.0.1", "--port", str(port), "--num_workers", "1")
    environment = {
        "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",  # as the gateway on loopback
        "REPEATED_STREAMING_CHUNK_LIMIT": "1000000",  # the provider says one word again and again
        "LITELLM_LOG": "ERROR",
        "LITELLM_TELEMETRY": "False",
        "PYTHONPATH": "",
    }
    return ServiceSpec("litellm", "", f"127.0.0.1:{port}", environment, command=words)


def _with_children(pid: int) -> list[int]:
    return [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]
