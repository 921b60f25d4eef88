"""What the mesh costs over vLLM itself with a public model: first token, and tokens/s of 1 and 16 callers.

SmolLM2-135M-Instruct of the catalogue (`hedgerow models pull smollm2-135m`), plain settings, in bfloat16. The mesh is a
gateway, a router and an llm service, asked by gRPC with the cache left out; beside it stands vLLM's bare `AsyncLLM`
(`bench.raw_vllm`). Both are loaded all the time and asked in turns, with prompts that neither has seen.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median
from typing import Any

from rich.table import Table

from bench.public.ways import Ask, Sample, standing
from launcher.catalog import store

NAME = "public"
MODEL = "smollm2-135m"
ANSWERS = 20  # of each way by one caller
TOKENS = 64  # of each answer, whatever the model would rather write
CALLERS, ROUNDS = 16, 5
SETTLE_S = 0.3
Progress = Callable[[str], None]


async def run(progress: Progress) -> dict[str, object]:
    """Start what is needed, measure, stop it. About three minutes."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        ways = await standing(stack, folder, store.path(MODEL), progress)
        progress(f"public: {ANSWERS} answers on each of {', '.join(ways)}, one at a time, in turns")
        alone = await _alone(ways)
        progress(f"public: {ROUNDS} rounds of {CALLERS} callers on each, in turns")
        rates = await _together(ways)
    return {**{name: _row(alone[name], rates[name]) for name in ways}, **_compared(alone, rates)}


async def _alone(ways: Mapping[str, Ask]) -> dict[str, list[Sample]]:
    samples: dict[str, list[Sample]] = {name: [] for name in ways}
    for number in range(-2, ANSWERS):
        for name in _in_turn(list(ways), number):
            await asyncio.sleep(SETTLE_S)
            sample = await ways[name](_prompt(number), TOKENS)
            if number >= 0:  # those before are a warm-up
                samples[name].append(sample)
    return samples


async def _together(ways: Mapping[str, Ask]) -> dict[str, list[float]]:
    """Tokens/s of all callers together, in each round."""
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(-1, ROUNDS):
        for name in _in_turn(list(ways), number):
            await asyncio.sleep(SETTLE_S)
            began = time.perf_counter()
            asked = (ways[name](_prompt(1_000 + CALLERS * number + caller), TOKENS) for caller in range(CALLERS))
            samples = await asyncio.gather(*asked)
            if number >= 0:
                rates[name].append(sum(sample.tokens for sample in samples) / (time.perf_counter() - began))
    return rates


def _in_turn(names: list[str], number: int) -> list[str]:
    """The one that goes first changes."""
    return names if number % 2 else names[::-1]


def _prompt(number: int) -> str:
    return f"Story {number}. Tell me about a town by the sea that has {number} houses and a lighthouse."


def _row(alone: Sequence[Sample], rates: Sequence[float]) -> dict[str, float]:
    return {
        "first_ms": round(median(sample.first_s for sample in alone) * 1000, 1),
        "tokens_per_s": round(median(sample.tokens_per_s for sample in alone), 1),
        f"tokens_per_s_of_{CALLERS}": round(median(rates), 1),
    }


def _compared(alone: Mapping[str, Sequence[Sample]], rates: Mapping[str, Sequence[float]]) -> dict[str, object]:
    """Ratios and differences of the pairs that were asked one after the other, medians."""
    pairs = list(zip(alone["mesh"], alone["raw"], strict=True))
    both = zip(rates["mesh"], rates["raw"], strict=True)
    return {
        "first_added_ms": round(median(mesh.first_s - raw.first_s for mesh, raw in pairs) * 1000, 2),
        "over_raw": round(median(mesh.tokens_per_s / raw.tokens_per_s for mesh, raw in pairs), 3),
        f"over_raw_of_{CALLERS}": round(median(mesh / raw for mesh, raw in both), 3),
        "samples": {"answers": ANSWERS, "tokens": TOKENS, "rounds": ROUNDS},
    }


def table(result: Mapping[str, Any]) -> Table:
    """The result, for people."""
    title = f"SmolLM2-135M through the mesh and by vLLM alone, medians of {ANSWERS} answers and {ROUNDS} rounds"
    table = Table("", "first token, ms", "tokens/s", f"tokens/s of {CALLERS} callers", title=title)
    for name in ("raw", "mesh"):
        row = result[name]
        shown = (row["first_ms"], row["tokens_per_s"], row[f"tokens_per_s_of_{CALLERS}"])
        table.add_row(name, *map(str, shown))
    added = (f"+ {result['first_added_ms']}", f"× {result['over_raw']}", f"× {result[f'over_raw_of_{CALLERS}']}")
    table.add_row("mesh over raw, pair by pair", *added)
    return table
