"""What the gateway adds to the first text where it forwards a caller's own words, and where it translates them.

One gateway by HTTP, a simulated provider of two APIs that answers at once, and a model service for each of its APIs.
The same question is asked in either API of the provider itself, of the model behind the same API (forwarded) and of the
model behind the other one (translated), call by call. Both APIs have as many calls on each path, so that it makes no
difference which of them costs less to read and to write.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from rich.table import Table

from bench.stats import percentiles
from launcher.processes import ServiceProcess, ServiceSpec, free_ports

NAME = "forwarded"
SAMPLES, WARM_UP = 2_000, 200  # calls per path and prompt
PROMPTS = {"short": "What is the capital of France?", "32 KiB": "Q: 2 + 2?\nA: 4\n\n" * 2_048}
_PATHS = ("direct", "forwarded", "translated")
_APIS = {"chat": "chat/completions", "messages": "messages"}  # and the names of the models behind them
_TEXT = b"word"  # the provider says nothing else
Progress = Callable[[str], None]


async def run(progress: Progress) -> dict[str, object]:
    """Start what is needed, measure, stop it. About two minutes."""
    with tempfile.TemporaryDirectory() as folder:
        async with _started(Path(folder), progress) as urls, aiohttp.ClientSession() as session:
            measured = {}
            for name, prompt in PROMPTS.items():
                progress(f"forwarded: {SAMPLES} calls by each of {', '.join(_PATHS)}, interleaved, prompt: {name}")
                measured[name] = await _interleave(session, urls, prompt)
    return {"samples": SAMPLES, "prompts": measured}


async def _interleave(session: aiohttp.ClientSession, urls: Mapping[str, str], prompt: str) -> dict[str, Any]:
    asked = {"max_tokens": 9, "stream": True, "messages": [{"role": "user", "content": prompt}]}
    bodies = {model: json.dumps({"model": model, **asked}).encode() for model in _APIS}
    other = dict(zip(_APIS, reversed(_APIS), strict=True))
    times: dict[str, list[float]] = {path: [] for path in _PATHS}
    for number in range((WARM_UP + SAMPLES) // len(_APIS)):
        for api, at in _APIS.items():
            for path in _PATHS:
                url = f"{urls['provider' if path == 'direct' else 'gateway']}/{at}"
                first_s = await _first_s(session, url, bodies[other[api] if path == "translated" else api])
                if number >= WARM_UP // len(_APIS):
                    times[path].append(first_s * 1_000)
    first = {path: percentiles(each) for path, each in times.items()}
    added = {
        path: {key: round(first[path][key] - first["direct"][key], 3) for key in first[path]} for path in _PATHS[1:]
    }
    sooner = sum(forwarded < translated for forwarded, translated in zip(*map(times.get, _PATHS[1:]), strict=True))
    return {"ttft_ms": first, "added_ms": added, "forwarded_sooner": round(sooner / SAMPLES, 3)}


async def _first_s(session: aiohttp.ClientSession, url: str, body: bytes) -> float:
    began, first, read = time.perf_counter(), 0.0, b""
    async with session.post(url, data=body, headers={"content-type": "application/json"}) as response:
        async for data in response.content.iter_any():
            read += data
            if not first and _TEXT in read:
                first = time.perf_counter() - began
    if not first:
        raise RuntimeError(f"HTTP {response.status}: {read[-200:]!r}")
    return first


@asynccontextmanager
async def _started(folder: Path, progress: Progress) -> AsyncIterator[dict[str, str]]:
    """The URLs of the provider and of the gateway."""
    provider = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.provider", "http1", "--tokens", "4", "--each-ms", "0"), stdin=PIPE, stdout=PIPE
    )
    assert provider.stdin
    assert provider.stdout
    try:
        async with AsyncExitStack() as stack:
            provider_url = (await provider.stdout.readline()).decode().strip()
            gateway, http, *llms = (f"127.0.0.1:{port}" for port in free_ports(2 + len(_APIS)))
            models = dict(zip(_APIS, llms, strict=True))
            for spec in (
                _llm(models["chat"], ENGINE="openai", OPENAI__MODEL="x", OPENAI__BASE_URL=provider_url),
                _llm(models["messages"], ENGINE="anthropic", ANTHROPIC__MODEL="x", ANTHROPIC__BASE_URL=provider_url),
                _gateway(gateway, http, models),
            ):
                progress(f"forwarded: starting {spec.name}")
                process = ServiceProcess(spec, folder)
                stack.push_async_callback(process.stop)
                await process.wait_serving()
            yield {"provider": provider_url, "gateway": f"http://{http}/v1"}
    finally:
        provider.stdin.close()
        await provider.wait()


def _llm(address: str, **settings: str) -> ServiceSpec:
    environment = {f"HEDGEROW_LLM_{name}": value for name, value in {"ADDRESS": address, **settings}.items()}
    return ServiceSpec(f"llm-{settings['ENGINE']}", "services.llm", address, environment)


def _gateway(address: str, http: str, models: Mapping[str, str]) -> ServiceSpec:
    settings = {
        "ADDRESS": address,
        "HTTP_ADDRESS": http,
        "LLM_ADDRESSES": json.dumps(models),
        "CACHE_ADDRESS": "",
        "ROUTER_ADDRESS": "",
        "PROFILE": "transparent",
    }
    environment = {f"HEDGEROW_GATEWAY_{name}": value for name, value in settings.items()}
    return ServiceSpec("gateway", "services.gateway", address, environment)


def table(result: Mapping[str, Any]) -> Table:
    """The result, for people."""
    table = Table(title=f"First text, ms ({result['samples']} calls per path and prompt, interleaved)")
    for column in ("prompt", "path", "first p50", "first p99", "added p50", "added p99"):
        table.add_column(column, justify="left" if column in ("prompt", "path") else "right")
    for prompt, measured in result["prompts"].items():
        for path, first in measured["ttft_ms"].items():
            added = measured["added_ms"].get(path, {})
            cells = (first["p50"], first["p99"], added.get("p50"), added.get("p99"))
            table.add_row(prompt, path, *("" if cell is None else f"{cell:.2f}" for cell in cells))
    sooner = ", ".join(f"{name}: {100 * each['forwarded_sooner']:.0f}%" for name, each in result["prompts"].items())
    table.caption = f"Pairs of calls in which the forwarded one was sooner: {sooner}"
    return table
