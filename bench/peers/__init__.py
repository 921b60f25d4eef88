"""What stands between a client and its provider costs: nothing, LiteLLM's proxy, and a gateway by gRPC and by HTTP.

All are measured in one run, in turns, before one simulated provider that answers at once. LiteLLM comes from PyPI into
a folder of its own, with one worker and without keys or logging; the gateway has all of its policies, the cache left
out, and one llm service behind it. Clients, proxies and the provider share this machine's cores.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median
from typing import Any

from rich.table import Table

from bench.peers import litellm
from bench.peers.paths import LONG, SHORT, standing
from bench.peers.paths import Path as Way
from bench.stats import percentiles

NAME = "peers"
SAMPLES, WARM_UP = 400, 40  # answers of each path, one at a time
LONG_SAMPLES = 40
ROUNDS, ROUND_S = 5, 3.0  # of callers at once
CALLERS = (10, 32)
Progress = Callable[[str], None]


async def run(progress: Progress) -> dict[str, object]:
    """Start what is needed, measure, stop it. About four minutes, and one more the first time."""
    executable = await litellm.installed(progress)
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        ways = await standing(stack, folder, executable, progress)
        progress(f"peers: {SAMPLES} answers on each of {', '.join(ways)}, in turns")
        first = await _one_at_a_time(ways, SHORT, SAMPLES, WARM_UP)
        progress(f"peers: {LONG_SAMPLES} answers of {LONG} tokens, in turns")
        long = await _one_at_a_time(ways, LONG, LONG_SAMPLES, 2)
        rates = {}
        for callers in CALLERS:
            progress(f"peers: {callers} callers, {ROUNDS} rounds of {ROUND_S:g} s on each")
            rates[callers] = await _at_once(ways, callers)
    return {
        "samples": SAMPLES,
        **{
            name: {
                "ttft_ms": percentiles([seconds * 1000 for seconds, _ in first[name]]),
                "total_200_ms": round(median(total for _, total in long[name]) * 1000, 2),
                **{f"rps_{callers}": round(median(rate for rate, _ in rates[callers][name]), 1) for callers in CALLERS},
                "cpu_ms_per_request": round(median(cpu for _, cpu in rates[CALLERS[0]][name]) * 1000, 2),
            }
            for name in ways
        },
    }


async def _one_at_a_time(
    ways: Mapping[str, Way], tokens: int, samples: int, warm_up: int
) -> dict[str, list[tuple[float, float]]]:
    """Seconds to the first text and to the end."""
    timings: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for number in range(warm_up + samples):
        for name, way in ways.items():
            timing = await way.ask(tokens)
            if number >= warm_up:
                timings[name].append(timing)
    return timings


async def _at_once(ways: Mapping[str, Way], callers: int) -> dict[str, list[tuple[float, float]]]:
    """Answers a second, and seconds of CPU for each, in each round."""
    rounds: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, way in ways.items():
            rounds[name].append(await _round(way, callers))
    return rounds


async def _round(way: Way, callers: int) -> tuple[float, float]:
    began, cpu_s, answers = time.perf_counter(), way.cpu_s(), 0
    ends = began + ROUND_S

    async def caller() -> None:
        nonlocal answers
        while time.perf_counter() < ends:
            await way.ask(SHORT)
            answers += 1

    await asyncio.gather(*(caller() for _ in range(callers)))
    return answers / (time.perf_counter() - began), (way.cpu_s() - cpu_s) / answers


def table(result: Mapping[str, Any]) -> Table:
    """The result, for people."""
    table = Table(title=f"Between client and provider ({result['samples']} answers of {SHORT} tokens each)")
    for column in ("", "first p50", "first p99", "added p50", f"{LONG} tokens", *map(_at_once_title, CALLERS), "CPU"):
        table.add_column(column, justify="right" if column else "left")
    direct = result["direct"]["ttft_ms"]["p50"]
    for name, row in result.items():
        if name == "samples":
            continue
        first = row["ttft_ms"]
        rates = (f"{row[f'rps_{callers}']:.0f} /s" for callers in CALLERS)
        table.add_row(
            name,
            f"{first['p50']:.2f}",
            f"{first['p99']:.2f}",
            f"{first['p50'] - direct:.2f}",
            f"{row['total_200_ms']:.1f}",
            *rates,
            f"{row['cpu_ms_per_request']:.2f}",
        )
    table.caption = "Milliseconds. CPU: of the processes between, for one answer."
    return table


def _at_once_title(callers: int) -> str:
    return f"{callers} at once"
