"""Prompts that begin alike, sent where their beginning is, against each replica in turn. On real engines.

Two replicas of the demo model serve prompts with one of 8 system prompts each. A replica's key-value cache holds about
five of them, as production caches hold a part of what is asked: a replica that sees all eight forgets each before it
comes again; one that sees four keeps them. Each phase has system prompts of its own, so that no policy finds what the
other left behind, and the policies take turns.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.mesh.cluster import Cluster, Progress
from bench.stats import percentiles
from hedgerow import AsyncClient, Final, TextDelta
from tests.models import MODELS

POLICIES = {"round_robin": "round_robin", "prefix_aware": "prefix"}
PREFIXES, REQUESTS, PHASES = 8, 64, 3  # requests and phases of each policy
_WARM_UP = 2 * PREFIXES  # requests of a phase that are not counted: the first of each prefix must be read by somebody
_LINES = 140  # of a system prompt, about 1,700 tokens
_KV_BLOCKS = 72  # of 128 tokens: five system prompts and what is being answered
_MODEL = "demo-llm"
_CITIES = ("Paris", "Rome", "Madrid", "Berlin", "Vienna", "Lisbon", "Athens", "Dublin", "Oslo", "Cairo")


@dataclass(slots=True)
class _Seen:
    firsts_ms: list[float] = field(default_factory=list)
    prompt_tokens: int = 0
    cached_tokens: int = 0


async def measure(folder: Path, progress: Progress) -> dict[str, dict[str, float]]:
    """`ttft_p50_ms` and `cached_tokens_share` of each policy."""
    async with AsyncExitStack() as stack:
        cluster = Cluster(stack, folder, progress)
        llms = [(await _engine(cluster, number)).spec.address for number in (1, 2)]
        clients = {}
        for name, policy in POLICIES.items():
            gateway = await cluster.start(
                f"gateway-{name}",
                "services.gateway",
                cache_address="",
                router_address="",
                llm_addresses={_MODEL: llms},
                balance=policy,
                hedge__mode="off",
            )
            clients[name] = await stack.enter_async_context(AsyncClient(gateway.spec.address))
        seen = {name: _Seen() for name in clients}
        for phase in range(PHASES):
            for name, client in clients.items():
                progress(f"mesh: prefixes, phase {phase + 1} of {PHASES}, {name}")
                await _phase(client, f"{name} {phase}", seen[name])
    return {name: _summary(each) for name, each in seen.items()}


async def _engine(cluster: Cluster, number: int) -> Any:
    model = MODELS / _MODEL
    return await cluster.start(
        f"llm-{number}",
        "services.llm",
        model_name=_MODEL,
        vllm__model=str(model),
        vllm__max_model_len=2048,
        vllm__max_num_seqs=4,
        vllm__enforce_eager=True,
        vllm__num_gpu_blocks_override=_KV_BLOCKS,
    )


async def _phase(client: AsyncClient, salt: str, seen: _Seen) -> None:
    rng = random.Random(salt)
    systems = [_system(rng, f"{salt} {number}") for number in range(PREFIXES)]
    asked = [number % PREFIXES for number in range(_WARM_UP)]
    asked += rng.choices(range(PREFIXES), k=REQUESTS)
    for count, number in enumerate(asked):
        question = f"What is {rng.randint(1, 20)} plus {rng.randint(1, 20)}?"
        first_ms, final = await _ask(client, systems[number], question)
        if count >= _WARM_UP:
            seen.firsts_ms.append(first_ms)
            seen.prompt_tokens += final.answer.usage.prompt_tokens
            seen.cached_tokens += final.answer.usage.cached_prompt_tokens


async def _ask(client: AsyncClient, system: str, question: str) -> tuple[float, Final]:
    """Milliseconds to the first text, and the last event."""
    began, first_ms, last = time.perf_counter(), 0.0, None
    stream = client.stream(question, system=system, max_tokens=4, temperature=0, budget_ms=20_000)
    async with stream as events:
        async for event in events:
            if isinstance(event, TextDelta):
                first_ms = first_ms or (time.perf_counter() - began) * 1000
            last = event
    assert isinstance(last, Final)  # every answer ends with one
    return first_ms, last


def _system(rng: random.Random, title: str) -> str:
    """A system prompt that begins like no other."""
    return "\n".join([f"Context {title}:", *_lines(rng)])


def _lines(rng: random.Random) -> Iterable[str]:
    for _ in range(_LINES):
        yield f"- {rng.choice(_CITIES)} is {rng.randint(2, 900)} minutes from {rng.choice(_CITIES)}."


def _summary(seen: _Seen) -> dict[str, float]:
    return {
        "ttft_p50_ms": round(statistics.median(seen.firsts_ms), 1),
        "ttft_mean_ms": round(statistics.mean(seen.firsts_ms), 1),
        "ttft_p95_ms": percentiles(seen.firsts_ms, digits=1)["p95"],
        "cached_tokens_share": round(seen.cached_tokens / seen.prompt_tokens, 3),
        "prompt_tokens": round(seen.prompt_tokens / len(seen.firsts_ms)),
        "requests": len(seen.firsts_ms),
    }


def rows(result: Mapping[str, Mapping[str, float]]) -> Iterable[tuple[str, ...]]:
    """Of the table."""
    for name, each in result.items():
        times = (f"{each[key]:.1f}" for key in ("ttft_p50_ms", "ttft_mean_ms", "ttft_p95_ms"))
        yield name, *times, f"{each['cached_tokens_share']:.0%}", f"{each['requests']:.0f}"
