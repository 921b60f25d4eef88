"""A proxy in one process and in one for each service: `python -m bench.sharing [--runs N]`.

`hedgerow up` in front of three models of a simulated provider, asked with OpenAI's client: the CPU time from its start
to the first answer, its processes and their memory. Runs of both shapes alternate; each figure is a median.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
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

from bench.provider.server import SimulatedProvider
from launcher.mesh import HTTP_OFFSET
from tests.integration.running_up import ports_in_a_row

RUNS = 5
SHAPES = {"one process": (), "processes": ("--processes",)}
_MESSAGES: Any = [{"role": "user", "content": "Where are you?"}]
_IDLE_S, _AGAIN_S, _START_S = 1.0, 0.03, 30.0


@dataclass
class Proxy:
    """A running `hedgerow up` that has given an answer."""

    process: psutil.Process
    cpu_s: float  # of all its processes until then, those that have ended included

    def memory(self) -> dict[str, float]:
        """The number of the services' processes, and the memory of them and of `hedgerow up`."""
        services = self.process.children(recursive=True)
        pss = sum(each.memory_full_info().pss for each in (self.process, *services))
        return {"processes": len(services), "all_pss_mb": pss / 1e6}


@asynccontextmanager
async def proxy(provider: str, options: tuple[str, ...]) -> AsyncIterator[Proxy]:
    """In front of three models at the provider."""
    port = ports_in_a_row(HTTP_OFFSET + 1)
    models = [word for name in "abc" for word in ("--model", f"{name}={provider}#simulated")]
    command = ["-m", "hedgerow_cli", "up", "--base-port", str(port), *models, *options]
    with TemporaryDirectory() as folder:
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
        process = await asyncio.create_subprocess_exec(
            sys.executable, *command, cwd=folder, env=environment, stdout=asyncio.subprocess.DEVNULL
        )
        try:
            url = f"http://127.0.0.1:{port + HTTP_OFFSET}/v1"
            async with AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:
                async with asyncio.timeout(_START_S):
                    while not await _answers(client):
                        await asyncio.sleep(_AGAIN_S)
                up = psutil.Process(process.pid)
                yield Proxy(up, _cpu_s(up))
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


async def _once(provider: SimulatedProvider, options: tuple[str, ...]) -> dict[str, float]:
    async with proxy(provider.url, options) as up:
        await asyncio.sleep(_IDLE_S)
        return {"cpu_to_first_answer_s": up.cpu_s, **up.memory()}


async def main(count: int) -> None:
    """Measure, and print the medians as JSON."""
    runs: dict[str, list[dict[str, float]]] = {shape: [] for shape in SHAPES}
    async with SimulatedProvider() as provider:
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
