"""Latency of a provider called directly, through LiteLLM's proxy, and through a gateway by gRPC and by HTTP.

All are measured in one run, in turns, before one simulated provider that answers at once. LiteLLM comes from PyPI into
a folder of its own, with one worker and without keys or logging; the gateway has all of its policies, the cache left
out, and one llm service behind it. Clients, proxies and the provider share this machine's cores.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import aiohttp
import psutil
import yaml

from bench.asking import Timing, added, gateway, in_turns, milliseconds, posted, question, timed
from bench.cluster import Cluster, Progress, an_address, clustered
from bench.environments import environment
from bench.stats import cpu_s
from launcher.processes import ServiceFailed, ServiceProcess, ServiceSpec

LITELLM = "litellm[proxy]==1.106.2\n"
SAMPLES, WARM_UP = 400, 40  # answers of each way, one at a time
SHORT, LONG, LONG_SAMPLES = 4, 200, 40  # tokens of an answer
ROUNDS, ROUND_S, CALLERS = 5, 3.0, (10, 32)  # of callers at once
_MODELS = {SHORT: "short", LONG: "long"}
_ASKED = "What is the capital of France?"
_STARTS_S = 90.0
# As the gateway on loopback; and the provider says one word again and again.
_LITELLM = {
    "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
    "REPEATED_STREAMING_CHUNK_LIMIT": "1000000",
    "LITELLM_LOG": "ERROR",
    "LITELLM_TELEMETRY": "False",
    "PYTHONPATH": "",
}


@dataclass(frozen=True, slots=True)
class Way:
    """`ask` takes the number of an answer's tokens; `pids` are the processes between client and provider."""

    ask: Callable[[int], Awaitable[Timing]]
    pids: tuple[int, ...] = ()

    async def one(self, number: int, tokens: int) -> Timing:
        return await self.ask(tokens)

    async def at_once(self, number: int, callers: int) -> tuple[float, float]:
        """Answers a second of so many callers, and seconds of CPU for each answer."""
        began, spent_s, answers = time.perf_counter(), self._cpu_s(), 0

        async def caller() -> None:
            nonlocal answers
            while time.perf_counter() < began + ROUND_S:
                await self.ask(SHORT)
                answers += 1

        await asyncio.gather(*(caller() for _ in range(callers)))
        return answers / (time.perf_counter() - began), (self._cpu_s() - spent_s) / answers

    def _cpu_s(self) -> float:
        processes = (psutil.Process(pid) for pid in self.pids)
        return sum(cpu_s(each.pid) for one in processes for each in (one, *one.children(recursive=True)))


async def run(progress: Progress) -> dict[str, object]:
    """Start what is needed, measure, stop it. About four minutes, and one more the first time."""
    executable = await asyncio.to_thread(environment, "litellm", LITELLM, progress) / "litellm"
    async with clustered(progress) as cluster:
        ways = await _ways(cluster, executable)
        progress(f"{SAMPLES} answers on each of {', '.join(ways)}, in turns")
        short = await in_turns({name: partial(way.one, tokens=SHORT) for name, way in ways.items()}, SAMPLES, WARM_UP)
        progress(f"{LONG_SAMPLES} answers of {LONG} tokens, in turns")
        long = await in_turns({name: partial(way.one, tokens=LONG) for name, way in ways.items()}, LONG_SAMPLES, 2)
        rounds = {}
        for callers in CALLERS:
            progress(f"{callers} callers, {ROUNDS} rounds of {ROUND_S:g} s on each")
            loads = {name: partial(way.at_once, callers=callers) for name, way in ways.items()}
            rounds[callers] = await in_turns(loads, ROUNDS)
    firsts = {name: milliseconds(timings)["ttft_ms"] for name, timings in short.items()}
    return {
        "ttft_ms": firsts,
        "added_ms": {name: added(firsts[name], firsts["direct"]) for name in firsts if name != "direct"},
        "answers": {
            name: {
                "total_200_ms": round(median(total for _, total in long[name]) * 1000, 2),
                **{
                    f"rps_{callers}": round(median(rate for rate, _ in rounds[callers][name]), 1) for callers in CALLERS
                },
                "cpu_ms_per_request": round(median(cpu for _, cpu in rounds[CALLERS[0]][name]) * 1000, 2),
            }
            for name in ways
        },
        "samples": SAMPLES,
    }


async def _ways(cluster: Cluster, executable: Path) -> dict[str, Way]:
    urls = {name: await cluster.provider(tokens) for tokens, name in _MODELS.items()}
    llms = {
        name: await cluster.start(
            f"llm-{name}", "services.llm", engine="openai", openai={"base_url": url, "model": name}
        )
        for name, url in urls.items()
    }
    http = an_address()
    front = await cluster.gateway(
        http_address=http,
        llm_addresses={name: each.spec.address for name, each in llms.items()},
        limit={"initial": 100},
    )
    proxy = await _litellm(cluster, executable, urls)
    connector = aiohttp.TCPConnector(limit=64)
    session = await cluster.stack.enter_async_context(aiohttp.ClientSession(connector=connector))
    by_grpc = gateway(await cluster.channel(front))
    between = (front.pid, *(each.pid for each in llms.values()))

    def by_http(bases: Mapping[str, str], **headers: str) -> Callable[[int], Awaitable[Timing]]:
        async def ask(tokens: int) -> Timing:
            name = _MODELS[tokens]
            asked = {"model": name, "stream": True, "messages": [{"role": "user", "content": _ASKED}]}
            return await posted(session, f"{bases[name]}/chat/completions", json.dumps(asked).encode(), headers)

        return ask

    uncached = by_http(dict.fromkeys(urls, f"http://{http}/v1"), **{"x-hedgerow-cache": "bypass"})
    return {
        "direct": Way(by_http(urls)),
        "litellm": Way(by_http(dict.fromkeys(urls, f"http://{proxy.spec.address}/v1")), (proxy.pid,)),
        "grpc": Way(lambda tokens: timed(by_grpc, question(_ASKED, bypass=True, model=_MODELS[tokens])), between),
        "http": Way(uncached, between),
    }


async def _litellm(cluster: Cluster, executable: Path, urls: Mapping[str, str]) -> ServiceProcess:
    """LiteLLM's proxy before the provider, serving. Raises `ServiceFailed`."""
    models = [
        {"model_name": name, "litellm_params": {"model": f"openai/{name}", "api_base": url, "api_key": "none"}}
        for name, url in urls.items()
    ]
    config, address = cluster.folder / "litellm.yaml", an_address()
    settings = {"num_retries": 0, "telemetry": False, "drop_params": True}
    config.write_text(yaml.safe_dump({"model_list": models, "litellm_settings": settings}))
    host, _, port = address.rpartition(":")
    words = (str(executable), "--config", str(config), "--host", host, "--port", port, "--num_workers", "1")
    process = cluster.begin(ServiceSpec("litellm", "", address, _LITELLM, command=words))
    ends = time.monotonic() + _STARTS_S
    async with aiohttp.ClientSession() as session:
        while True:
            try:
                async with session.get(f"http://{address}/health/liveliness") as response:
                    if response.status == 200:
                        return process
            except aiohttp.ClientError:
                pass
            if process.exit_code is not None or time.monotonic() > ends:
                raise ServiceFailed(f"litellm has ended or is not serving after {_STARTS_S:g} s:\n{process.tail()}")
            await asyncio.sleep(0.2)
