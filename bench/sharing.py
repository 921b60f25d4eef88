"""A proxy in one process and in one for each service: `python -m bench.sharing [--runs N]`.

`hedgerow up` in front of three models of a simulated provider, asked with OpenAI's client: the time from its start to
the first answer and the CPU time until then, its processes and their memory, the time of an answer beside the
provider's own, and how soon the provider sees that a caller has left. Runs of both shapes alternate; each figure is a
median.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from argparse import ArgumentParser
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import psutil
import uvloop
from openai import APIError, AsyncOpenAI

from bench.provider.server import Behaviour, SimulatedProvider
from launcher.mesh import HTTP_OFFSET
from tests.integration.running_up import ports_in_a_row

RUNS, ANSWERS, LEAVINGS = 5, 200, 20
SHAPES = {"one process": (), "processes": ("--processes",)}
_MESSAGES: Any = [{"role": "user", "content": "Where are you?"}]
_SHORT, _LONG = Behaviour(tokens=4), Behaviour(tokens=1_000, each_ms=10)
_IDLE_S, _AGAIN_S, _LOOK_S, _START_S = 1.0, 0.03, 0.0005, 30.0
_MIB = 2**20


@dataclass
class Proxy:
    """A running `hedgerow up`; `first_s` after its start it gave its first answer."""

    process: psutil.Process
    client: AsyncOpenAI
    first_s: float
    cpu_s: float  # of all its processes until then, those that have ended included

    def memory(self) -> dict[str, float]:
        """Of the services' processes, and of `hedgerow up` beside them."""
        services = self.process.children(recursive=True)
        told = [each.memory_full_info() for each in services]
        own = self.process.memory_full_info()
        return {
            "processes": len(services),
            "services_rss_mib": sum(each.rss for each in told) / _MIB,
            "services_pss_mib": sum(each.pss for each in told) / _MIB,
            "up_rss_mib": own.rss / _MIB,
            "all_pss_mib": (sum(each.pss for each in told) + own.pss) / _MIB,
        }


@asynccontextmanager
async def proxy(provider: str, options: tuple[str, ...]) -> AsyncIterator[Proxy]:
    """In front of three models at the provider."""
    port = ports_in_a_row(HTTP_OFFSET + 1)
    models = [word for name in "abc" for word in ("--model", f"{name}={provider}#simulated")]
    command = ["-m", "hedgerow_cli", "up", "--base-port", str(port), *models, *options]
    with TemporaryDirectory() as folder:
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
        began = time.monotonic()
        process = await asyncio.create_subprocess_exec(
            sys.executable, *command, cwd=folder, env=environment, stdout=asyncio.subprocess.DEVNULL
        )
        try:
            url = f"http://127.0.0.1:{port + HTTP_OFFSET}/v1"
            async with AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:
                async with asyncio.timeout(_START_S):
                    while not await _answers(client):
                        await asyncio.sleep(_AGAIN_S)
                first_s, up = time.monotonic() - began, psutil.Process(process.pid)
                yield Proxy(up, client, first_s, _cpu_s(up))
        finally:
            process.send_signal(signal.SIGINT)
            await process.wait()


def _cpu_s(up: psutil.Process) -> float:
    own = up.cpu_times()
    running = [each.cpu_times() for each in up.children(recursive=True)]
    ended_s = own.children_user + own.children_system
    return float(ended_s + sum(each.user + each.system for each in (own, *running)))


async def _answers(client: AsyncOpenAI) -> bool:
    try:
        await client.chat.completions.create(model="a", messages=_MESSAGES)
    except APIError:
        return False
    return True


async def _answer_ms(client: AsyncOpenAI, model: str) -> float:
    """The median time of an answer of four tokens."""
    times = []
    for _ in range(ANSWERS):
        began = time.perf_counter()
        await client.chat.completions.create(model=model, messages=_MESSAGES)
        times.append((time.perf_counter() - began) * 1000)
    return median(times)


async def _leaving_ms(client: AsyncOpenAI, provider: SimulatedProvider) -> list[float]:
    """From a caller's leave in mid-answer to the provider's notice of it."""
    times = []
    for _ in range(LEAVINGS):
        provider.upcoming.append(_LONG)
        stopped = provider.counts.stopped
        stream = await client.chat.completions.create(model="a", messages=_MESSAGES, stream=True)
        await anext(aiter(stream))
        began = time.perf_counter()
        await stream.close()
        async with asyncio.timeout(_START_S):
            while provider.counts.stopped == stopped:
                await asyncio.sleep(_LOOK_S)
        times.append((time.perf_counter() - began) * 1000)
    return times


async def _once(provider: SimulatedProvider, options: tuple[str, ...]) -> dict[str, float]:
    async with proxy(provider.url, options) as up:
        await asyncio.sleep(_IDLE_S)
        told = {"first_answer_s": up.first_s, "cpu_to_first_answer_s": up.cpu_s, **up.memory()}
        async with AsyncOpenAI(base_url=provider.url, api_key="none", max_retries=0) as direct:
            own_ms = await _answer_ms(direct, "simulated")
        leaving = await _leaving_ms(up.client, provider)
        added_ms = await _answer_ms(up.client, "a") - own_ms
        return {**told, "added_ms": added_ms, "leaving_ms": median(leaving), "leaving_most_ms": max(leaving)}


async def main(count: int) -> None:
    """Measure, and print the medians as JSON."""
    runs: dict[str, list[dict[str, float]]] = {shape: [] for shape in SHAPES}
    async with SimulatedProvider(behaviour=_SHORT) as provider:
        for number in range(count):
            for shape, options in SHAPES.items():
                runs[shape].append(await _once(provider, options))
                print(f"run {number + 1}, {shape}: {runs[shape][-1]}", file=sys.stderr)
    print(json.dumps({shape: _medians(found) for shape, found in runs.items()}, indent=2))


def _medians(found: list[dict[str, float]]) -> dict[str, float]:
    return {name: round(median(run[name] for run in found), 2) for name in found[0]}


if __name__ == "__main__":
    parser = ArgumentParser()
    parser.add_argument("--runs", type=int, default=RUNS)
    uvloop.run(main(parser.parse_args().runs))
